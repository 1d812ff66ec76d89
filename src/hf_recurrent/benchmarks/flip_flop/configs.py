"""The flip-flop config: its splits, its parameters, and where they come from.

- `original`: Ray Chowdhury & Caragea's setting of Liu et al.'s task. 160,000 strings of 512 words with p_i = 0.8 to
  train on; 10,000 strings for each of the lengths 512 and 1024 and each p_i of 0.1, 0.8 and 0.98 to test on.

The validation split is what the paper says, 1,000 strings of each distribution that is tested. The reference
implementation has 7,000, because it counts a second thousand of the training distribution among them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..parameters import Parameter, integer, optional

CONFIGS = {
    "original": "train at one length and one share of distractors; a test split for each length and share to be tested"
}


def _length(value: Any) -> int:
    value = integer(4)(value)
    if value % 2:
        raise ValueError
    return value


def _percentage(value: Any) -> float:
    """A probability in whole percent: `ignore_percent` and the names of splits have no place for more."""
    if isinstance(value, (bool, str)):
        raise TypeError
    percent = round(100 * float(value))
    if not 0 < percent < 100 or abs(100 * float(value) - percent) > 1e-9:
        raise ValueError
    return percent / 100


def _several(check: Callable[[Any], Any], expected: str) -> Callable[[Any], tuple]:
    """A check for one or more values, which it returns from the least to the most, each once."""

    def check_all(value: Any) -> tuple:
        if isinstance(value, str):
            raise TypeError
        values = list(value) if hasattr(value, "__iter__") else [value]
        if not values:
            raise ValueError
        return tuple(sorted({check(item) for item in values}))

    check_all.expected = expected
    return check_all


_length.expected = "an even integer >= 4"
_percentage.expected = "a probability from 0.01 to 0.99, in whole percent"
_lengths = _several(_length, "a list of even integers >= 4, such as [512,1024]")
_percentages = _several(_percentage, "a list of probabilities from 0.01 to 0.99, in whole percent, such as [0.3,0.9]")

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed gives other data"),
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(
        integer(0), "rows of the validation split, in which the distributions of the test splits take turns"
    ),
    "num_test": Parameter(integer(0), "rows of each test split"),
    "train_length": Parameter(_length, "words of a training string"),
    "p_ignore": Parameter(_percentage, "probability of an `i` in training strings; `w` and `r` share the rest equally"),
    "test_lengths": Parameter(
        optional(_lengths), "words of test strings, a split for each; None: train_length, and twice that for the second"
    ),
    "test_p_ignore": Parameter(_percentages, "probabilities of an `i` in test strings, a split for each"),
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": {
            "seed": 0,
            "num_train": 160_000,
            "num_validation": 6000,
            "num_test": 10_000,
            "train_length": 512,
            "p_ignore": 0.8,
            "test_lengths": None,
            "test_p_ignore": (0.1, 0.8, 0.98),
        }
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """The lengths of the test strings follow from that of the training strings, where they are not given."""
    if params["test_lengths"] is None:
        params["test_lengths"] = (params["train_length"], 2 * params["train_length"])
    return params
