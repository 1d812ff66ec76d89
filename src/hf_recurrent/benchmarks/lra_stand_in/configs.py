"""The configs of the stand-ins for Long Range Arena and their parameters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..long_documents import configs as long_documents
from ..lra import configs as lra
from ..parameters import Parameter, integer

CONFIGS = {
    "digits": "handwritten digits of 8 x 8 pixels, in place of `image`; bundled with scikit-learn",
    "pathfinder16": "drawings of 16 x 16 pixels, in place of `pathfinder32`; generated",
    "reviews": "texts in folders pos and neg, data_dir, in place of `text`",
    "passages": "pairs of passages of the installed Python standard library, of one module or of two, in place of "
    "`retrieval`",
}
_SHARES = {"validation_share": 0.1, "test_share": 0.2}

PARAMETERS = {
    **{
        f"{split}_share": Parameter(
            long_documents.PARAMETERS[f"{split}_share"].check,
            f"share of the rows in the {split} split, by a hash of their names or places",
        )
        for split in ("validation", "test")
    },
    "seed": Parameter(integer(0), "every seed gives other rows, or divides those that there are in another way"),
    "max_bytes": Parameter(integer(1), "texts are cut after so many bytes; passages have as many"),
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(integer(0), "rows of the validation split"),
    "num_test": Parameter(integer(0), "rows of the test split"),
    "contour_length": lra.PARAMETERS["contour_length"],
    "distractor_length": Parameter(integer(1, 64), "segments of each short contour"),
    "num_distractors": Parameter(integer(0, 64), "short contours to place, as far as there is room"),
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "digits": MappingProxyType({"seed": 0, **_SHARES}),
        "pathfinder16": MappingProxyType(
            {
                "seed": 0,
                "num_train": 100_000,
                "num_validation": 1000,
                "num_test": 2000,
                "contour_length": 3,
                "distractor_length": 1,
                "num_distractors": 0,
            }
        ),
        "reviews": MappingProxyType({"seed": 0, **_SHARES, "max_bytes": 4096}),
        "passages": MappingProxyType(
            {"seed": 0, "num_train": 20_000, "num_validation": 1000, "num_test": 2000, "max_bytes": 1024}
        ),
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """No parameter depends on another here."""
    return params
