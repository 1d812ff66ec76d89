"""From a config and its parameters to the rows of every split.

The sets of commands are facts (`commands.py`). The seed chooses which part of the pool is held out, for the first
validation and test split, which of the commands with `k` are tested, and the order of rows. Asking for fewer rows
leaves out the last ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ..sampling import Shard, make_rng, make_shards, shuffled
from .commands import DEEPER, POOL, Drawn, draw_sets, new_primitive_sizes, pool_size, reserved_sizes
from .expressions import ARGUMENTS, FUNCTIONS, make_row

# of the pool, for each of validation and test
HELD_OUT = 4000
TESTED_NEW_PRIMITIVE_2 = 1000
# further copies in train of the commands of a single function that is not composed
COPIES = 30

BASIC = [Drawn((function,), argument) for function in range(len(FUNCTIONS)) for argument in range(len(ARGUMENTS))]
_COPIED = [command for command in BASIC if FUNCTIONS[command.functions[0]] in ("j", "k")]
_SIZES = {"train": "num_train", "validation": "num_validation", "test": "num_test"}


def _held_out(max_depth: int) -> int:
    """Rows of the validation split, and of the test split, that are held out of the pool."""
    return pool_size(max_depth) * HELD_OUT // POOL


def available(params: Mapping[str, Any]) -> dict[str, int]:
    """How many rows every split can have, train and validation first."""
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
    """The rows of every split that has any.

    Raises ValueError for more rows than any of the splits can have.
    """
    possible = available(params)
    wanted = {}
    for kind, parameter in _SIZES.items():
        own = {split: size for split, size in possible.items() if split.split("_")[0] == kind}
        most = params[parameter]
        if most is not None and most > max(own.values()):
            listed = ", ".join(f"{split} {size}" for split, size in own.items())
            raise ValueError(
                f"{parameter}={most}: with max_train_depth={params['max_train_depth']}, there are at most so many "
                f"rows: {listed}; ask for fewer, or None for all"
            )
        wanted |= {split: size if most is None else min(size, most) for split, size in own.items()}
    wanted = {split: size for split, size in wanted.items() if size}
    if not wanted:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    return wanted


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits of a config that have rows, train and validation first."""
    return list(sizes(params))


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows."""
    wanted, commands = sizes(params), _commands(params)
    return {
        split: make_shards("texts", [command.text(config_name) for command in commands[split][:size]])
        for split, size in wanted.items()
    }


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


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    return (make_row(text) for text in shard.payload)
