"""The config of ListOps with dependency depth: its splits, its parameters, and where they come from.

- `original`: the data of the Neural Data Router paper. Rows of every split are balanced over the operations that their
  value depends on: 1 to 5 in train and the first validation and test split, 6 in `validation_ood`, 7 and 8 in
  `test_ood`. The authors have one set beside train of 1 to 5 operations; here `validation` and `test` are two.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..depths import check_ood_depths
from ..parameters import Parameter, integer, probability
from .rules import shortest

CONFIGS = {"original": "the paper's data: as many rows of every depth, and deeper ones for model selection and test"}

# beyond, the weights of deep expressions take too long
MAX_LENGTH_LIMIT = 100

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed gives other data"),
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(integer(0), "rows of each validation split"),
    "num_test": Parameter(integer(0), "rows of each test split"),
    "max_train_depth": Parameter(
        integer(1), "most operations that the value of a row depends on in train, validation and test"
    ),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has expressions of up to so many operations more than max_train_depth"
    ),
    "max_test_depth": Parameter(integer(3), "most operations that the value of a row depends on in `test_ood`"),
    "length_limit": Parameter(
        integer(shortest(1), MAX_LENGTH_LIMIT),
        "the greatest length, for which an operator with its brackets counts 3, and a digit 1",
    ),
    "value_probability": Parameter(probability, "probability that an argument is a digit, not a list"),
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": {
            "seed": 0,
            "num_train": 1_000_000,
            "num_validation": 1000,
            "num_test": 1000,
            "max_train_depth": 5,
            "valid_extra_depth": 1,
            "max_test_depth": 8,
            "length_limit": 50,
            "value_probability": 0.7,
        }
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on several parameters."""
    check_ood_depths(params)
    deepest, limit = params["max_test_depth"], params["length_limit"]
    if shortest(deepest) > limit:
        raise ValueError(
            f"max_test_depth={deepest}: a value that depends on so many operations needs a length of at least "
            f"{shortest(deepest)}, but length_limit={limit}; raise length_limit (to at most {MAX_LENGTH_LIMIT}) or "
            "lower the depths"
        )
    return params
