"""The configs of compositional table lookup: the direction of reading, the parameters, and where they come from.

Both configs have the same commands, row by row. The defaults are the sizes and depths of the Neural Data Router paper:
train and the first validation and test split have 1 to 5 functions, `validation_ood` 6 to 8 and `test_ood` 9 to 10.
With `valid_extra_depth=2` these are 6 to 7 and 8 to 10, on which the paper's Transformers without gates were selected
and tested.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..depths import check_ood_depths
from ..parameters import Parameter, integer, optional

CONFIGS = {
    "forward": "the argument first, then the functions in the order in which they are applied: `101 a b`",
    "backward": "the function that is applied last first, the argument at the end: `b a 101`",
}

# a command of `test_ood` costs max_test_depth draws, however short it becomes: more would take for ever
MOST_FUNCTIONS = 100

PARAMETERS = {
    "seed": Parameter(
        integer(0),
        "chooses what is held out of the training distribution, and the order of rows; the commands that rows are "
        "taken from are the same for every seed",
    ),
    "num_train": Parameter(optional(integer(0)), "rows of the train split; None: all there are, 53,704 by default"),
    "num_validation": Parameter(
        optional(integer(0)), "most rows of each validation split; None: all there are, 4,000 and 1,000 by default"
    ),
    "num_test": Parameter(
        optional(integer(0)), "most rows of each test split; None: all there are, from 88 to 4,000 by default"
    ),
    "max_train_depth": Parameter(integer(2), "most functions of a command of the training distribution"),
    "valid_extra_depth": Parameter(
        integer(1), "`validation_ood` has commands of up to so many functions more than max_train_depth"
    ),
    "max_test_depth": Parameter(integer(4, MOST_FUNCTIONS), "most functions of a command of `test_ood`"),
}

_DEFAULTS = MappingProxyType(
    {
        "seed": 0,
        "num_train": None,
        "num_validation": None,
        "num_test": None,
        "max_train_depth": 5,
        "valid_extra_depth": 3,
        "max_test_depth": 10,
    }
)
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(dict.fromkeys(CONFIGS, _DEFAULTS))


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on several parameters."""
    check_ood_depths(params)
    return params
