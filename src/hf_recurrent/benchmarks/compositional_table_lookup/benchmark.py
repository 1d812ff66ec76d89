"""Compositional table lookup: its configs, its parameters and its splits.

The configs differ in the direction of reading; both have the same commands, example by example. The defaults are the
sizes and depths of the Neural Data Router paper: train and the first validation and test split have 1 to 5 functions,
`validation_ood` 6 to 8 and `test_ood` 9 to 10. With `valid_extra_depth=2` these are 6 to 7 and 8 to 10, on which the
paper's Transformers without gates were selected and tested.

The sets of commands are facts (`commands.py`). The seed chooses which part of the pool is held out, for the first
validation and test split, which of the commands with `k` are tested, and the order of examples. Asking for fewer
examples leaves out the last ones.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..benchmark import Benchmark, Config, Plan, make_info
from ..papers import NEURAL_DATA_ROUTER
from ..parameters import Parameter, check_ood_depths, integer, optional
from ..sampling import make_rng, make_shards, non_empty, shuffled
from .commands import DEEPER, POOL, Drawn, draw_sets, new_primitive_sizes, pool_size, reserved_sizes
from .expressions import ARGUMENTS, FUNCTIONS, VOCABULARY, make_example, normalize, render

SHIFTS = {
    "test_basic": "part of training",
    "test_new_primitive_1": "functions never composed",
    "test_new_primitive_2": "functions never composed",
    "test_new_composition": "new compositions",
}
# a command of `test_ood` costs max_test_depth draws, however short it becomes: more would take for ever
MAX_FUNCTIONS = 100

PARAMETERS = {
    "seed": Parameter(
        integer(0),
        "chooses what is held out of the training distribution, and the order of examples; the commands that examples "
        "are taken from are the same for every seed",
    ),
    "num_train": Parameter(optional(integer(0)), "examples of the train split; None: all there are, 53,704 by default"),
    "num_validation": Parameter(
        optional(integer(0)),
        "maximum number of examples of each validation split; None: all there are, 4,000 and 1,000 by default",
    ),
    "num_test": Parameter(
        optional(integer(0)),
        "maximum number of examples of each test split; None: all there are, from 88 to 4,000 by default",
    ),
    "max_train_depth": Parameter(integer(2), "maximum number of functions of a command of the training distribution"),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has commands of up to so many functions more than max_train_depth"
    ),
    "max_test_depth": Parameter(integer(4, MAX_FUNCTIONS), "maximum number of functions of a command of `test_ood`"),
}

_DEFAULTS = {
    "seed": 0,
    "num_train": None,
    "num_validation": None,
    "num_test": None,
    "max_train_depth": 5,
    "valid_extra_depth": 3,
    "max_test_depth": 10,
}
CONFIGS = {
    "forward": Config(
        "the argument first, then the functions in the order in which they are applied: `101 a b`", _DEFAULTS
    ),
    "backward": Config("the function that is applied last first, the argument at the end: `b a 101`", _DEFAULTS),
}

# of the pool, for each of validation and test
HELD_OUT = 4000
TESTED_NEW_PRIMITIVE_2 = 1000
# further copies in train of the commands of a single function that is not composed
COPIES = 30

BASIC = [Drawn((function,), argument) for function in range(len(FUNCTIONS)) for argument in range(len(ARGUMENTS))]
_COPIED = [command for command in BASIC if FUNCTIONS[command.functions[0]] in ("j", "k")]
_SIZES = {"train": "num_train", "validation": "num_validation", "test": "num_test"}


def _held_out(max_depth: int) -> int:
    """Examples of the validation split, and of the test split, that are held out of the pool."""
    return pool_size(max_depth) * HELD_OUT // POOL


def available(params: Mapping[str, Any]) -> dict[str, int]:
    """How many examples every split can have, train and validation first."""
    depth = params["max_train_depth"]
    held_out = _held_out(depth)
    with_j, with_k = new_primitive_sizes(depth)
    return {
        "train": pool_size(depth) - 2 * held_out + len(BASIC) + COPIES * len(_COPIED),
        "validation": held_out,
        "validation_ood": DEEPER,
        "test": held_out,
        "test_ood": DEEPER,
        "test_basic": len(BASIC),
        "test_new_primitive_1": with_j,
        "test_new_primitive_2": min(TESTED_NEW_PRIMITIVE_2, with_k),
        "test_new_composition": sum(reserved_sizes(depth)),
    }


def sizes(params: Mapping[str, Any]) -> dict[str, int]:
    """The examples of every split that has any.

    Raises ValueError for more examples than any of the splits can have.
    """
    possible = available(params)
    wanted = {}
    for kind, parameter in _SIZES.items():
        own = {split: size for split, size in possible.items() if split.split("_")[0] == kind}
        limit = params[parameter]
        if limit is not None and limit > max(own.values()):
            listed = ", ".join(f"{split} {size}" for split, size in own.items())
            raise ValueError(
                f"{parameter}={limit}: with max_train_depth={params['max_train_depth']}, there are at most so many "
                f"examples: {listed}; ask for fewer, or None for all"
            )
        wanted |= {split: size if limit is None else min(size, limit) for split, size in own.items()}
    return non_empty(wanted)


def _commands(params: Mapping[str, Any]) -> dict[str, list[Drawn]]:
    """All commands of every split."""
    depth = params["max_train_depth"]
    sets = draw_sets(depth, depth + params["valid_extra_depth"], params["max_test_depth"])

    def mixed(name: str, commands: list[Drawn]) -> list[Drawn]:
        return shuffled(commands, make_rng("compositional_table_lookup", name, depth, params["seed"]))

    held_out = _held_out(depth)
    pool = mixed("pool", sets.pool)
    return {
        "train": mixed("train", [*pool[2 * held_out :], *BASIC, *COPIES * _COPIED]),
        "validation": pool[:held_out],
        "validation_ood": sets.validation_ood,
        "test": pool[held_out : 2 * held_out],
        "test_ood": sets.test_ood,
        "test_basic": mixed("basic", BASIC),
        "test_new_primitive_1": sets.new_primitive_1,
        "test_new_primitive_2": mixed("new_primitive_2", sets.new_primitive_2)[:TESTED_NEW_PRIMITIVE_2],
        "test_new_composition": mixed("new_composition", sets.new_composition),
    }


class CompositionalTableLookup(Benchmark):
    """Apply functions that are known by heart, one after another (Csordás et al., 2022)."""

    parameters = PARAMETERS
    read_text = staticmethod(normalize)
    draw_text = staticmethod(render)
    answer = "its value is {}"
    token_pattern = r"[01]{3}|[a-k]"
    info = make_info(
        PARAMETERS,
        CONFIGS,
        default_config="forward",
        name="compositional_table_lookup",
        title="Compositional Table Lookup",
        description="Functions `a` to `k`, known by heart, are applied to one of eight arguments, one after another; "
        "the label is the value.",
        label_names=ARGUMENTS,
        text_columns=("text",),
        slice_columns=("depth",),
        column_meanings={
            "text": "the argument and the functions; tokens are separated by single spaces",
            "depth": "functions that are applied one after another",
        },
        parse_meaning="each function as its name and value, with what it is applied to indented below it",
        vocabulary=VOCABULARY,
        **NEURAL_DATA_ROUTER,
        limits=(
            "`validation` and `test` are held out of the training distribution; `validation_ood` and `test_ood` need "
            "more functions than any example of train has. The paper selects models on `validation_ood`.",
            "Depths are not balanced, except in `validation_ood` and `test_ood`: commands are drawn without "
            "repetition, so that there are few short ones.",
            "Examples of train with one function repeat: each command of `j` or `k` is there 31 times. These functions "
            "are never composed in train, which `test_new_primitive_1` (`j`) and `test_new_primitive_2` (`k`) test.",
            "All examples of `test_basic` are in train: it measures whether the tables are known. So are the examples "
            "of one function in `test_new_composition`, three with the paper's depths; its others are compositions "
            "that no example of train has alone, with any argument.",
            "The reference implementation chooses the held-out examples without a seed, and its order puts no command "
            "of two functions into its validation split, by accident; here both parts are drawn alike, with a seed.",
        ),
    )

    def shift(self, config_name: str, params: Mapping[str, Any], split: str) -> str:
        return SHIFTS.get(split) or super().shift(config_name, params, split)

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that depend on several parameters."""
        check_ood_depths(params)
        return params

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return list(sizes(params))

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        wanted, commands = sizes(params), _commands(params)
        return {
            split: make_shards(
                partial(map, make_example), [command.text(config_name) for command in commands[split][:size]]
            )
            for split, size in wanted.items()
        }
