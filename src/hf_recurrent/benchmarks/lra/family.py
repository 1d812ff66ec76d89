"""What Long Range Arena says about itself: a family for each of its tasks."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import pixel_drawings
from ..family import Family, family_info, gathered
from ..listops import splits as listops_splits
from ..listops import trees as listops_trees
from ..listops.family import LISTOPS
from ..long_documents.family import BYTES
from . import configs, image_files, listops_files, retrieval_files, text_files
from .papers import CITATION, PAPER, bibtex
from .pathfinder import files as pathfinder_files
from .pathfinder import splits as pathfinder_splits

DESCRIPTION = (
    "Five tasks whose inputs are long: nested lists, film reviews and pairs of papers as bytes, photographs and "
    "drawings as pixels."
)
# of images, as the tokenizers spell them
PIXELS = tuple(map(str, range(256)))
_PIXELS_MEANING = "grey values from 0 to 255, row by row from the top left, separated by single spaces"
PICTURE = "the image in letters: what is brighter than its mean, two rows of pixels to a line"
_CUT = "bytes of {0}, after it was cut to `max_bytes`"
_BLACK = (
    "Black is a pixel like any other. The authors' models take it for padding, that of the dynamic halt paper gives it "
    "a random vector that is never trained."
)


def _unchanged(text: str) -> str:
    return text


def _info(task: str, **facts: Any):
    return family_info(
        configs,
        default_config="listops",
        name="lra",
        paper=PAPER,
        citation=CITATION,
        bibtex=bibtex(task),
        **{"parse_meaning": PICTURE if facts.get("modality") == "pixels" else "", **facts},
    )


def _listops() -> Family:
    whole = _info(
        "listops",
        parse_meaning=LISTOPS.info.parse_meaning,
        title="Long Range Arena: ListOps",
        description="Nested lists of MIN, MAX, MED, SM (sum modulo 10) over digits, of 501 to 1999 words; the label is "
        "the value.",
        **{
            name: getattr(LISTOPS.info, name)
            for name in ("label_names", "text_columns", "slice_columns", "column_meanings", "vocabulary")
        },
        limits=(
            "The authors draw a set of trees and divide it in the order of a Python set, with no seed: their split "
            "cannot be made again. Here each split is drawn by itself, from the same distribution.",
            "The first operator alone allows 36% of the answers to be guessed.",
        ),
    )
    return Family(
        info=whole,
        configs=configs,
        splits=listops_splits,
        files=listops_files,
        trees=listops_trees,
        normalize=LISTOPS.normalize,
        file_configs=("listops",),
        file_names="basic_{train,val,test}.tsv",
    )


TEXT = Family(
    info=_info(
        "text",
        title="Long Range Arena: Text",
        description="Film reviews, read byte by byte; the label is whether they are in favour.",
        label_names=("negative", "positive"),
        text_columns=("text",),
        slice_columns=("length", "full_length"),
        column_meanings=MappingProxyType(
            {
                "text": "the review as it was posted, HTML line ends included, cut to `max_bytes`; a byte b that is no "
                "part of UTF-8 text stands there as U+10FF00 + b",
                "length": _CUT.format("the text"),
                "full_length": "bytes of the whole review",
            }
        ),
        vocabulary=BYTES,
        modality="bytes",
        synthetic=False,
        license="other (IMDB reviews, copyright of who wrote them)",
        limits=(
            "There is no validation split: with `num_validation` unset, the test split stands in for it, as in all "
            "published code. Numbers chosen by it are too good.",
            "The authors cut reviews after 1,000 bytes, or after 4,000 for some models; here it is 4,096 as in the "
            "code of the dynamic halt paper.",
        ),
    ),
    configs=configs,
    splits=None,
    files=text_files,
    trees=None,
    normalize=_unchanged,
    file_parameters=("max_bytes", "num_validation"),
    file_configs=("text",),
    file_names="train/pos, train/neg, test/pos and test/neg with *.txt, as in aclImdb",
    export_configs=(),
)

RETRIEVAL = Family(
    info=_info(
        "retrieval",
        title="Long Range Arena: Retrieval",
        description="Pairs of papers of the ACL Anthology, read byte by byte; the label is whether one cites "
        "the other.",
        label_names=("unrelated", "related"),
        text_columns=("text", "text_pair"),
        slice_columns=("length", "length_pair"),
        column_meanings=MappingProxyType(
            {
                "text": "the first paper, cut to `max_bytes`; a byte b that is no part of UTF-8 text stands there as "
                "U+10FF00 + b",
                "text_pair": "the second paper, cut alike",
                "length": _CUT.format("the first text"),
                "length_pair": _CUT.format("the second text"),
            }
        ),
        vocabulary=BYTES,
        modality="bytes",
        synthetic=False,
        license="other (papers of the ACL Anthology Network)",
        limits=("The texts are in the authors' release only, which must be given as data_dir.",),
    ),
    configs=configs,
    splits=None,
    files=retrieval_files,
    trees=None,
    normalize=_unchanged,
    file_parameters=("max_bytes",),
    file_configs=("retrieval",),
    file_names="new_aan_pairs.{train,eval,test}.tsv",
    export_configs=(),
)

IMAGE = Family(
    info=_info(
        "image",
        title="Long Range Arena: Image",
        description="Photographs of 32 x 32 grey pixels, read one after the other; the label is what they show.",
        label_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        text_columns=("pixels",),
        slice_columns=("brightness", "contrast"),
        column_meanings=MappingProxyType(
            {
                "pixels": _PIXELS_MEANING,
                "brightness": "mean of the pixels, rounded",
                "contrast": "standard deviation of the pixels, rounded",
            }
        ),
        vocabulary=PIXELS,
        modality="pixels",
        synthetic=False,
        license="other (CIFAR-10 names no licence)",
        limits=(
            "The last tenth of the training images are the validation split, in the order of their files. The authors' "
            "order is another, that of a shuffled copy.",
            _BLACK,
        ),
    ),
    configs=configs,
    splits=None,
    files=image_files,
    trees=pixel_drawings,
    normalize=_unchanged,
    file_parameters=("grayscale",),
    file_configs=("image",),
    file_names="data_batch_1.bin ... data_batch_5.bin and test_batch.bin",
    export_configs=(),
)


def _pathfinder(config: str) -> Family:
    side = configs.WINDOWS[config]
    return Family(
        info=_info(
            "pathfinder",
            title=f"Long Range Arena: Pathfinder-{side}{' (Path-X)' if side == 128 else ''}",
            description=f"Drawings of {side} x {side} grey pixels, read one after the other: two long dashed contours, "
            "short ones that distract, and two discs; the label is whether one contour joins the discs.",
            label_names=("separate", "connected"),
            text_columns=("pixels",),
            slice_columns=("contour_length", "distractor_length", "num_distractors", "num_placed", "marker_distance"),
            filter_column="marker_distance",
            column_meanings=MappingProxyType(
                {
                    "pixels": _PIXELS_MEANING,
                    "contour_length": "segments of each of the two long contours",
                    "distractor_length": "segments of each short contour",
                    "num_distractors": "short contours that were to be placed; -1 in the authors' files, which do not "
                    "say it",
                    "num_placed": "short contours for which there was room; -1 in the authors' files",
                    "marker_distance": "pixels between the centres of the discs, rounded; -1 in the authors' files",
                }
            ),
            vocabulary=PIXELS,
            modality="pixels",
            packages=("pillow",),
            limits=(
                "The images are not those of the release. Their statistics are compared with those of the reference "
                "generator, not with the release.",
                "In about 7% of the drawings of 32 x 32 pixels with contours of 14 segments, the contours meet so that "
                "both answers agree with the rules; the label is the generator's.",
                "Fewer short contours are placed than asked for, where there is no room for more.",
                "Of the authors' files, the cache knows the metadata: an image that is replaced under its name is not "
                "read again (give another cache_dir).",
                "Pillow draws and shrinks the segments: another version of it may shade pixels otherwise, most of all "
                "from 64 pixels on, where lines are wider than one.",
                _BLACK,
            ),
        ),
        configs=configs,
        splits=pathfinder_splits,
        files=pathfinder_files,
        trees=pixel_drawings,
        normalize=_unchanged,
        file_parameters=tuple(configs.PATHFINDER_FILES),
        file_configs=(config,),
        file_names=f"{config}/<difficulty>/imgs and metadata",
    )


_PATHFINDERS = {config: _pathfinder(config) for config in configs.WINDOWS}
PATHFINDER_32 = _PATHFINDERS["pathfinder32"]
MEMBERS: Mapping[str, Family] = {
    "listops": _listops(),
    "text": TEXT,
    "retrieval": RETRIEVAL,
    "image": IMAGE,
    **_PATHFINDERS,
}
LRA = gathered(MEMBERS, DESCRIPTION)
