"""The ListOps configs: their splits, their parameters, and where each comes from.

- `original`: Nangia & Bowman's data. They drew trees until 100,000 were distinct and put 90,000 into the
  training file and 10,000 into the test file. Following Ray Chowdhury & Caragea, the first 1,000 training
  trees are the validation split (unfiltered) and training trees of more than 100 words are left out.
- `length_generalization`: the same grammar conditioned on lengths of 200-300, 300-400, ..., 900-1000 words.
- `argument_generalization`: 2-10 or 2-15 arguments per list instead of 2-5, conditioned on 100-1000 words.
  Papers give the lengths and the most arguments only. Chosen here: the number of arguments is uniform, as in
  training, and there are at most 10 levels, as in Long Range Arena. With the 20 levels of training, trees of
  up to 15 arguments are either hardly longer than 100 words or endless.
- `lra`: Long Range Arena's generator: 10 levels, 2-10 arguments, 501-1999 words.

Papers do not say how many trees the generalization splits have; the default is 2,000 each.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, boolean, integer, optional, probability
from .expressions import OPERATORS
from .grammar import Grammar

CONFIGS = {
    "original": "Nangia & Bowman's distribution: train (at most 100 words), validation, test",
    "length_generalization": "test splits of 200-300, 300-400, ..., 900-1000 words",
    "argument_generalization": "test splits with up to 10 and up to 15 arguments, 100-1000 words",
    "lra": "Long Range Arena: 501-1999 words, up to 10 arguments, train, validation, test",
}
LENGTH_RANGES = tuple((start, start + 100) for start in range(200, 1000, 100))
ARGUMENT_LIMITS = (10, 15)


def _operators(value: Any) -> tuple[str, ...]:
    """Operators with or without their bracket, in the benchmark's order."""
    if isinstance(value, str):
        value = (value,)
    names = {"[" + name.lstrip("[").upper() for name in value}
    if not names or not names <= set(OPERATORS):
        raise ValueError
    return tuple(name for name in OPERATORS if name in names)


_operators.expected = f"one or more of {', '.join(OPERATORS)}"

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed gives other data"),
    "num_train": Parameter(
        optional(integer(0)), "rows of the train split; None, for `original`: all of the authors' rows"
    ),
    "num_validation": Parameter(integer(0), "rows of the validation split"),
    "num_test": Parameter(integer(0), "rows of each test split"),
    "max_depth": Parameter(integer(1), "most lists inside one another"),
    "max_arguments": Parameter(
        optional(integer(2)),
        "most arguments of a list; None, for `argument_generalization`: a split for 10 and one for 15",
    ),
    "operators": Parameter(_operators, "operators to draw from"),
    "value_probability": Parameter(probability, "probability that an argument is a digit, not a list"),
    "min_length": Parameter(
        optional(integer(1)), "fewest words; None: no limit, for `length_generalization` the published ranges"
    ),
    "max_length": Parameter(
        optional(integer(1)), "most words; None: no limit, for `length_generalization` the published ranges"
    ),
    "max_train_length": Parameter(optional(integer(1)), "most words of training rows; None: no limit"),
    "depth_balanced": Parameter(boolean, "as many rows of every depth from 1 to max_depth"),
}

_GRAMMAR = {
    "max_depth": 19,
    "max_arguments": 5,
    "operators": OPERATORS,
    "value_probability": 0.75,
    "min_length": None,
    "max_length": None,
    "depth_balanced": False,
}
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": {
            "seed": 0,
            "num_train": None,
            "num_validation": 1000,
            "num_test": 10_000,
            **_GRAMMAR,
            "max_train_length": 100,
        },
        "length_generalization": {"seed": 0, "num_test": 2000, **_GRAMMAR},
        "argument_generalization": {
            "seed": 0,
            "num_test": 2000,
            **_GRAMMAR,
            "max_depth": 9,
            "max_arguments": None,
            "min_length": 100,
            "max_length": 1000,
        },
        "lra": {
            "seed": 0,
            "num_train": 96_000,
            "num_validation": 2000,
            "num_test": 2000,
            **_GRAMMAR,
            "max_depth": 9,
            "max_arguments": 10,
            "min_length": 501,
            "max_length": 1999,
        },
    }
)


def grammar_of(params: Mapping[str, Any], max_arguments: int | None = None) -> Grammar:
    return Grammar(
        max_depth=params["max_depth"],
        max_arguments=max_arguments or params["max_arguments"],
        value_probability=params["value_probability"],
        operators=tuple(params["operators"]),
    )


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on several parameters, and defaults that follow from others."""
    for name in ("num_train", "max_arguments"):
        allowed = (config_name, name) in (
            ("original", "num_train"),
            ("argument_generalization", "max_arguments"),
        )
        if params.get(name, 0) is None and not allowed:
            raise ValueError(f"{name}=None: config {config_name!r} needs a number")
    low, high = params["min_length"], params["max_length"]
    if high is not None and low is not None and low > high:
        raise ValueError(f"min_length={low} is larger than max_length={high}")
    if config_name == "length_generalization" and (low is None) != (high is None):
        raise ValueError(
            f"min_length={low}, max_length={high}: config 'length_generalization' has one split per range of "
            "lengths; give both limits (one split), or neither (the published ranges)"
        )
    if config_name in ("argument_generalization", "lra") and high is None:
        raise ValueError(f"max_length=None: config {config_name!r} needs a number")
    if params["depth_balanced"] and high is None and config_name == "original":
        # deep trees have no useful length limit of their own
        params["max_length"] = params["max_train_length"] or 1000
    elif low is not None and high is None:
        raise ValueError(f"min_length={low}: give max_length too")
    return params
