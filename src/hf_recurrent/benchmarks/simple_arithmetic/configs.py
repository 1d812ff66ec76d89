"""The config of simple arithmetic: its splits, its parameters, and where they come from.

- `original`: the data of the Neural Data Router paper. Train and the first validation and test split have 1 to 5
  operations on the longest chain, `validation_ood` has 6 and `test_ood` 7 and 8. An operand is an operation with a
  probability of 0.2, in the deeper splits of 0.3 (the paper names the first only).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..depths import check_ood_depths
from ..parameters import Parameter, boolean, integer

CONFIGS = {"original": "the paper's data: as many rows of every depth, and deeper ones for model selection and test"}

MOST_WORDS = 100
_SHORTEST_OPERATION = 5

PARAMETERS = {
    "seed": Parameter(integer(0), "every seed gives other data"),
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(integer(0), "rows of each validation split"),
    "num_test": Parameter(integer(0), "rows of each test split"),
    "max_train_depth": Parameter(integer(2), "most operations on the longest chain in train, validation and test"),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has expressions of up to so many operations more than max_train_depth"
    ),
    "max_test_depth": Parameter(integer(4), "most operations on the longest chain in `test_ood`"),
    "max_length": Parameter(integer(_SHORTEST_OPERATION, MOST_WORDS), "most words of an expression"),
    "disjoint": Parameter(
        boolean,
        "True: no row of validation or test is in train, which alone has expressions of one operation; False: as the "
        "authors have it, where their splits overlap (200 rows, all there are, have one operation in each)",
    ),
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "original": {
            "seed": 0,
            "num_train": 100_200,
            "num_validation": 1000,
            "num_test": 1000,
            "max_train_depth": 5,
            "valid_extra_depth": 1,
            "max_test_depth": 8,
            "max_length": 50,
            "disjoint": True,
        }
    }
)


def max_operators(max_length: int) -> int:
    """Each operator adds four words: two brackets, itself and another digit."""
    return (max_length - 1) // 4


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on several parameters."""
    check_ood_depths(params)
    if params["max_test_depth"] > max_operators(params["max_length"]):
        raise ValueError(
            f"max_length={params['max_length']}: an expression of max_test_depth={params['max_test_depth']} operations "
            f"on a chain has at least {4 * params['max_test_depth'] + 1} words; raise max_length (to at most "
            f"{MOST_WORDS}) or lower the depths"
        )
    return params
