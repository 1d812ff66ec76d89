"""What benchmarks with splits of deeper rows than train's have in common."""

from collections.abc import Mapping
from typing import Any


def check_ood_depths(params: Mapping[str, Any]) -> None:
    """Raises ValueError where `validation_ood`, of depths up to `max_train_depth + valid_extra_depth`, leaves none up
    to `max_test_depth` for `test_ood`."""
    deepest = params["max_train_depth"] + params["valid_extra_depth"]
    if params["max_test_depth"] <= deepest:
        raise ValueError(
            f"max_test_depth={params['max_test_depth']}: no depth is left for test_ood, because validation_ood goes "
            f"to max_train_depth + valid_extra_depth = {deepest}; expected at least {deepest + 1}"
        )
