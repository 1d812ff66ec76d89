"""Toy images: handwritten digits and small drawings.

- The 1,797 digits of 8 x 8 pixels, with values from 0 to 16, come with scikit-learn.
- Pathfinder drawings of 16 x 16 pixels are made by the generator of the arena's, at a size that no release has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..benchmark import Plan
from ..long_documents.documents import shares, split_of
from ..lra.common import PICTURE, PixelTask, image_example
from ..lra.image import Photographs
from ..lra.pathfinder.benchmark import Pathfinder, plan_images
from ..lra.pathfinder.settings import Settings
from ..sampling import make_shards
from .common import NO_ARENA, PARAMETERS, toy_info

if TYPE_CHECKING:
    import numpy as np


def digit_examples(places: Sequence[int]) -> Iterator[dict[str, object]]:
    images, labels = _digits()
    for place in places:
        yield image_example(images[place], int(labels[place]))


@lru_cache(maxsize=1)
def _digits() -> "tuple[np.ndarray, np.ndarray]":
    """Images (N, 8, 8) uint8 and labels (N,)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError(
            f"config 'digits' needs scikit-learn, which brings the images ({error}): pip install 'hf-recurrent[digits]'"
        ) from error
    found = load_digits()
    return found.images.astype("uint8"), found.target


# as the arena's smallest, but for parts that would not fit
_SMALL = Settings(
    size=16,
    seed_distance=3,
    marker_radius=1.0,
    thickness=0.5,
    margins=(1,),
    num_distractors=0,
    continuity=1.0,
    snake_contrast=2.0,
    segment_contrast=0.75,
    segment_length=2,
    contour_length=3,
    distractor_length=1,
)

_PATHFINDER = Pathfinder("pathfinder32").info
# facts about drawings that do not depend on their size
_SHARED = (
    *("label_names", "text_columns", "slice_columns", "filter_column", "column_meanings", "vocabulary", "modality"),
    *("packages", "paper", "citation", "bibtex", "license"),
)


class Digits(PixelTask):
    """Handwritten digits, in place of photographs (Alpaydin and Kaynak, 1998)."""

    parameters = PARAMETERS
    info = toy_info(
        title="Toy data for Long Range Arena: handwritten digits",
        description="Handwritten digits of 8 x 8 pixels, read one after the other; the label is the digit.",
        label_names=tuple("0123456789"),
        text_columns=("pixels",),
        slice_columns=Photographs.info.slice_columns,
        column_meanings={
            **Photographs.info.column_meanings,
            "pixels": "ink from 0 to 16, row by row from the top left, separated by single spaces",
        },
        vocabulary=tuple(map(str, range(17))),
        modality="pixels",
        parse_meaning=PICTURE,
        packages=("scikit-learn",),
        paper="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        citation="E. Alpaydin and C. Kaynak. Optical Recognition of Handwritten Digits. UCI Machine Learning "
        "Repository, 1998.",
        bibtex="""@misc{alpaydin1998optical,
  title = {Optical Recognition of Handwritten Digits},
  author = {Alpaydin, E. and Kaynak, C.},
  howpublished = {UCI Machine Learning Repository},
  year = {1998},
  doi = {10.24432/C50P49}
}""",
        license="CC-BY-4.0 (Alpaydin and Kaynak, UCI Machine Learning Repository)",
        provenance="The images are those that scikit-learn bundles, the test set of the original data. A hash of its "
        "place there and of the seed decides the split of an image.",
        limits=(NO_ARENA, "Images have 64 pixels, those of the arena 1,024.", "A writer may be in several splits."),
    )

    def split_names(self, config_name: str, params: Mapping[str, Any]) -> list[str]:
        return list(shares(params))

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        """The shards of every split; a hash of its place decides the split of an image.

        Raises:
            ValueError: scikit-learn is not installed, or a split with a share gets no image.
        """
        splits: dict[str, list[int]] = {split: [] for split in self.split_names(config_name, params)}
        for place in range(len(_digits()[0])):
            splits[split_of(f"digits {place}", params)].append(place)
        empty = [split for split, places in splits.items() if not places]
        if empty:
            raise ValueError(
                f"validation_share={params['validation_share']}, test_share={params['test_share']}: no image falls "
                f"into {', '.join(empty)}; give larger shares, or 0 for a split that is not wanted"
            )
        return {split: make_shards(digit_examples, places) for split, places in splits.items()}


class Drawings(PixelTask):
    """Small Pathfinder drawings."""

    parameters = PARAMETERS
    info = toy_info(
        title="Toy data for Long Range Arena: small drawings",
        description="Drawings of 16 x 16 grey pixels, read one after the other: two dashed contours and two discs; the "
        "label is whether one contour joins the discs.",
        **{name: getattr(_PATHFINDER, name) for name in _SHARED},
        parse_meaning=PICTURE,
        synthetic=True,
        limits=(
            NO_ARENA,
            "Images have 256 pixels, and by default contours of 3 segments and none that distract; the smallest of the "
            "arena have 1,024 pixels, 14 segments and up to 5 contours that distract.",
        ),
    )

    def complete(self, config_name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Checks that the shortest contours are no longer than the longest."""
        shortest, longest = params["min_contour_length"], params["contour_length"]
        if shortest is not None and shortest > longest:
            raise ValueError(
                f"min_contour_length={shortest} is more than contour_length={longest}: give a number up to it, or None "
                "where all contours have contour_length segments"
            )
        return params

    def plan(self, config_name: str, params: Mapping[str, Any]) -> Plan:
        """The shards of every split. Raises ValueError where contours of such a length do not fit into the images."""
        names = ("distractor_length", "num_distractors")
        common = replace(_SMALL, **{name: params[name] for name in names})
        longest, shortest = params["contour_length"], params["min_contour_length"]
        lengths = [longest] if shortest is None else range(shortest, longest + 1)
        sizes = {split: params[f"num_{split}"] for split in self.split_names(config_name, params)}
        return plan_images([replace(common, contour_length=length) for length in lengths], sizes, params["seed"])
