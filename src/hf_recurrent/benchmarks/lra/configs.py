"""The configs of Long Range Arena and their parameters.

Sizes and settings are those of the authors' release where it says them, and those of the code that made Table 4 of
"Investigating Recurrent Transformers with Dynamic Halt" where the two differ: texts are cut after 4,096 bytes (the
release after 1,000 or 4,000, by model).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..listops import configs as listops
from ..parameters import Parameter, choice, integer, optional, text

# of pathfinder images
WINDOWS = {f"pathfinder{side}": side for side in (32, 64, 128, 256)}
DIFFICULTIES = ("curv_baseline", "curv_contour_length_9", "curv_contour_length_14")
SPLIT_RULES = ("dynamic_halt", "s4")
GRAYSCALES = ("lra", "pil")

CONFIGS = {
    "listops": "ListOps expressions of 501-1999 words, the config `lra` of benchmark `listops`; generated, or data_dir",
    "text": "film reviews as bytes, negative or positive; from the Hub (IMDB) or data_dir",
    "retrieval": "pairs of papers as bytes, related or not; from data_dir (AAN, as in the authors' release)",
    "image": "photographs of ten kinds of things, as 1,024 grey pixels; from the Hub (CIFAR-10) or data_dir",
    "pathfinder32": "drawings of 1,024 pixels: is there a path from one disc to the other? Generated, or data_dir",
    "pathfinder64": "the same with 4,096 pixels",
    "pathfinder128": "the same with 16,384 pixels, known as Path-X",
    "pathfinder256": "the same with 65,536 pixels",
}


def _continuity(value: Any) -> float:
    if isinstance(value, (bool, str)) or not 0.0 < float(value) <= 10.0:
        raise ValueError
    return float(value)


_continuity.expected = "a number above 0, of at most 10"

PARAMETERS = {
    **{name: listops.PARAMETERS[name] for name in listops.DEFAULTS["lra"]},
    "num_train": Parameter(integer(0), "rows of the train split"),
    "num_validation": Parameter(
        optional(integer(0)),
        "rows of the validation split; None where the test split also serves for validation, as in all published code",
    ),
    "num_test": Parameter(integer(0), "rows of the test split"),
    "dataset": Parameter(text, "data set on the Hub, where no data_dir is given"),
    "revision": Parameter(text, "branch, tag or commit of that data set"),
    "max_bytes": Parameter(integer(1), "texts are cut after so many bytes, each of a pair by itself"),
    "grayscale": Parameter(
        choice(GRAYSCALES), "how colours become grey: as in the authors' code (lra), or as Pillow does it (pil)"
    ),
    "contour_length": Parameter(integer(2, 64), "segments of each of the two long contours"),
    "distractor_length": Parameter(
        optional(integer(1, 64)), "segments of each short contour; None: a third of contour_length"
    ),
    "num_distractors": Parameter(
        optional(integer(0, 64)),
        "short contours to place, as far as there is room; None: as many as the release has for their length",
    ),
    "continuity": Parameter(
        optional(_continuity),
        "how straight contours are: turning by d has weight cos(continuity d)^2; None: as released",
    ),
    "difficulty": Parameter(choice(DIFFICULTIES), "set of images in data_dir"),
    "split_rule": Parameter(
        choice(SPLIT_RULES), "who divided the images in data_dir: the code of the dynamic halt paper, or that of S4"
    ),
}


def _pathfinder() -> Mapping[str, Any]:
    return MappingProxyType(
        {
            "seed": 0,
            "num_train": 160_000,
            "num_validation": 20_000,
            "num_test": 20_000,
            "contour_length": 14,
            "distractor_length": None,
            "num_distractors": None,
            "continuity": None,
            **PATHFINDER_FILES,
        }
    )


# those that have a meaning for files only
PATHFINDER_FILES = MappingProxyType({"difficulty": "curv_contour_length_14", "split_rule": "dynamic_halt"})

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "listops": listops.DEFAULTS["lra"],
        "text": MappingProxyType(
            {"dataset": "stanfordnlp/imdb", "revision": "main", "max_bytes": 4096, "num_validation": None}
        ),
        "retrieval": MappingProxyType({"max_bytes": 4096}),
        "image": MappingProxyType({"dataset": "uoft-cs/cifar10", "revision": "main", "grayscale": "lra"}),
        **{config: _pathfinder() for config in WINDOWS},
    }
)


def complete(config_name: str, params: dict[str, Any]) -> dict[str, Any]:
    """Checks that depend on the config.

    Raises:
        ValueError: a parameter of files where rows are generated, a size that is missing, or what `listops` refuses.
    """
    if config_name != "text" and params.get("num_validation", 0) is None:
        raise ValueError(f"num_validation=None: config {config_name!r} needs a number")
    if config_name == "listops":
        return listops.complete("lra", params)
    if config_name in WINDOWS:
        for name, value in PATHFINDER_FILES.items():
            if params[name] != value:
                raise ValueError(
                    f"{name}={params[name]!r} chooses among the images in data_dir: give data_dir, or for generated "
                    "images contour_length"
                )
    return params
