"""Shared parts of the toy data sets for Long Range Arena: configs, parameters, facts."""

from typing import Any

from ..benchmark import Config, make_info
from ..info import BenchmarkInfo
from ..lra.common import PARAMETERS as ARENA_PARAMETERS
from ..parameters import SIZES, Parameter, fraction, integer, optional

_SHARES = {"validation_share": 0.1, "test_share": 0.2}

PARAMETERS = {
    **{
        f"{split}_share": Parameter(
            fraction,
            f"share of the examples in the {split} split, by a hash of their names or places",
        )
        for split in ("validation", "test")
    },
    "seed": Parameter(integer(0), "every seed gives other examples, or divides those that there are in another way"),
    "max_bytes": Parameter(integer(1), "texts are cut after so many bytes; passages have as many"),
    **SIZES,
    "contour_length": ARENA_PARAMETERS["contour_length"],
    "min_contour_length": Parameter(
        optional(integer(2, 64)),
        "drawings take turns to have contours of so many segments, of one more, and so on up to contour_length; None: "
        "all have contour_length",
    ),
    "distractor_length": Parameter(integer(1, 64), "segments of each short contour"),
    "num_distractors": Parameter(integer(0, 64), "short contours to place, as far as there is room"),
}

CONFIGS = {
    "digits": Config(
        "handwritten digits of 8 x 8 pixels, in place of `image`; bundled with scikit-learn", {"seed": 0, **_SHARES}
    ),
    "pathfinder16": Config(
        "drawings of 16 x 16 pixels, in place of `pathfinder32`; generated",
        {
            "seed": 0,
            "num_train": 100_000,
            "num_validation": 1000,
            "num_test": 2000,
            "contour_length": 3,
            "min_contour_length": None,
            "distractor_length": 1,
            "num_distractors": 0,
        },
    ),
    "reviews": Config(
        "texts in folders pos and neg, data_dir, in place of `text`", {"seed": 0, **_SHARES, "max_bytes": 4096}
    ),
    "passages": Config(
        "pairs of passages of the installed Python standard library, of one module or of two, in place of `retrieval`",
        {"seed": 0, "num_train": 20_000, "num_validation": 1000, "num_test": 2000, "max_bytes": 1024},
    ),
}
NO_ARENA = "It is no part of Long Range Arena: results are not comparable with any published ones."


def toy_info(**facts: Any) -> BenchmarkInfo:
    """The facts about a toy data set."""
    facts = {"parse_meaning": "", "synthetic": False, **facts}
    return make_info(PARAMETERS, CONFIGS, default_config="digits", name="lra_stand_in", **facts)
