"""The logical inference configs, their parameters, and which split a pair belongs to.

- `original`: train and validation have sentences of at most 6 operators, test has 7 to 12 ("12 or more").
- `split_a`, `split_b`, `split_c`: pairs of at most 6 operators; those in which either sentence contains a
  pattern are the test split (Shen et al., 2019, Ordered Memory).

The default sizes are those that the authors' files give.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, integer

CONFIGS = {
    "original": "train and validation: at most 6 operators; test: 7 to 12 operators",
    "split_a": "test: pairs that contain `( and ( not a ) )`, at most 6 operators",
    "split_b": "test: pairs that contain `( and ( not`, at most 6 operators",
    "split_c": "test: pairs that contain `( and ( not` or `( or ( not`, at most 6 operators",
}
PATTERNS = {
    "split_a": ("( and ( not a ) )",),
    "split_b": ("( and ( not ",),
    "split_c": ("( and ( not ", "( or ( not "),
}
MOST_OPERATORS = 12
# every tenth pair that is not held out for testing is a validation pair
VALIDATION_EVERY = 10

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed gives other data"),
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(integer(0), "rows of the validation split"),
    "num_test": Parameter(integer(0), "rows of the test split"),
    "max_train_operators": Parameter(integer(1, MOST_OPERATORS - 1), "most operators of a training sentence"),
}


def _defaults(num_train: int, num_validation: int, num_test: int) -> dict[str, Any]:
    return {
        "seed": 0,
        "num_train": num_train,
        "num_validation": num_validation,
        "num_test": num_test,
        "max_train_operators": 6,
    }


DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": _defaults(121_977, 13_552, 13_445),
        "split_a": _defaults(116_073, 12_896, 6_560),
        "split_b": _defaults(79_154, 8_794, 47_581),
        "split_c": _defaults(46_707, 5_189, 83_633),
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """No parameter depends on another here."""
    return params


def is_held_out(config_name: str, text: str, text_pair: str) -> bool:
    """Whether either sentence contains the pattern of a compositional config."""
    patterns = PATTERNS.get(config_name, ())
    return any(pattern in sentence for pattern in patterns for sentence in (text, text_pair))
