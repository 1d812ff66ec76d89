"""What the stand-ins for Long Range Arena say about themselves: a family for each."""

from types import MappingProxyType

from .. import pixel_drawings
from ..family import Family, family_info, gathered
from ..long_documents.family import BYTES, LONG_DOCUMENTS
from ..lra.family import IMAGE, PATHFINDER_32, PICTURE, RETRIEVAL, TEXT
from . import configs, digits, drawings, passages, reviews

DESCRIPTION = (
    "Data that is at hand offline, most of it real, for trials of models that are meant for Long Range Arena. Nothing "
    "measured on it is a number of that benchmark."
)
_NO_ARENA = "It is no part of Long Range Arena: results are not comparable with any published ones."


# facts about drawings that do not depend on their size
_SHARED = (
    *("label_names", "text_columns", "slice_columns", "filter_column", "column_meanings", "vocabulary", "modality"),
    *("packages", "paper", "citation", "bibtex", "license"),
)


def _unchanged(text: str) -> str:
    return text


def _info(**facts):
    return family_info(
        configs, default_config="digits", name="lra_stand_in", **{"parse_meaning": "", "synthetic": False, **facts}
    )


DIGITS = Family(
    info=_info(
        title="Stand-in for Long Range Arena: handwritten digits",
        description="Handwritten digits of 8 x 8 pixels, read one after the other; the label is the digit.",
        label_names=tuple("0123456789"),
        text_columns=("pixels",),
        slice_columns=IMAGE.info.slice_columns,
        column_meanings=MappingProxyType(
            {
                **IMAGE.info.column_meanings,
                "pixels": "ink from 0 to 16, row by row from the top left, separated by single spaces",
            }
        ),
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
        "place there and of the seed says which split an image belongs to.",
        limits=(_NO_ARENA, "Images have 64 pixels, those of the arena 1,024.", "A writer may be in several splits."),
    ),
    configs=configs,
    splits=digits,
    trees=pixel_drawings,
    normalize=_unchanged,
)

DRAWINGS = Family(
    info=_info(
        title="Stand-in for Long Range Arena: small drawings",
        description="Drawings of 16 x 16 grey pixels, read one after the other: two dashed contours and two discs; the "
        "label is whether one contour joins the discs.",
        **{name: getattr(PATHFINDER_32.info, name) for name in _SHARED},
        parse_meaning=PICTURE,
        synthetic=True,
        limits=(
            _NO_ARENA,
            "Images have 256 pixels, and by default contours of 3 segments and none that distract; the smallest of the "
            "arena have 1,024 pixels, 14 segments and up to 5 contours that distract.",
        ),
    ),
    configs=configs,
    splits=drawings,
    trees=pixel_drawings,
    normalize=_unchanged,
)

REVIEWS = Family(
    info=_info(
        title="Stand-in for Long Range Arena: reviews",
        description="Texts in two folders, read byte by byte; the label is the folder.",
        label_names=TEXT.info.label_names,
        text_columns=TEXT.info.text_columns,
        slice_columns=TEXT.info.slice_columns,
        column_meanings=MappingProxyType(
            {
                **TEXT.info.column_meanings,
                "text": "the text as it is in its file, cut to `max_bytes`; a byte b that is no part of UTF-8 text "
                "stands there as U+10FF00 + b",
                "full_length": "bytes of the whole file",
            }
        ),
        vocabulary=BYTES,
        modality="bytes",
        paper=TEXT.info.paper,
        citation=TEXT.info.citation,
        bibtex=TEXT.info.bibtex,
        license="other (that of the texts that are given)",
        limits=(_NO_ARENA,),
    ),
    configs=configs,
    splits=None,
    files=reviews,
    trees=None,
    normalize=_unchanged,
    file_parameters=tuple(configs.DEFAULTS["reviews"]),
    file_configs=("reviews",),
    file_names="pos/*.txt and neg/*.txt",
    export_configs=(),
)

PASSAGES = Family(
    info=_info(
        title="Stand-in for Long Range Arena: passages",
        description="Pairs of passages of the Python standard library, read byte by byte; the label is whether they "
        "are from one module or package.",
        label_names=RETRIEVAL.info.label_names,
        text_columns=RETRIEVAL.info.text_columns,
        slice_columns=RETRIEVAL.info.slice_columns,
        column_meanings=MappingProxyType(
            {
                "text": "the first passage",
                "text_pair": "the second passage, which shares no byte with the first",
                "length": "bytes of the first passage",
                "length_pair": "bytes of the second passage",
            }
        ),
        vocabulary=BYTES,
        modality="bytes",
        paper="https://docs.python.org/3/library/",
        citation="The Python Standard Library. Python Software Foundation.",
        bibtex="""@misc{python,
  title = {The Python Standard Library},
  author = {{Python Software Foundation}},
  howpublished = {https://docs.python.org/3/library/}
}""",
        license=LONG_DOCUMENTS.info.license.split(" ")[0] + " (copyright of the Python Software Foundation)",
        license_link=LONG_DOCUMENTS.info.license_link,
        provenance="A hash of its name and of the seed says which split a module or package belongs to, so that those "
        "of the test split are unseen. Then pairs are drawn: half of them from one module, half from two.",
        limits=(
            _NO_ARENA,
            "The texts are those of the interpreter that makes them: another version of Python gives others.",
        ),
    ),
    configs=configs,
    splits=None,
    files=passages,
    trees=None,
    normalize=_unchanged,
)

LRA_STAND_IN = gathered(
    {"digits": DIGITS, "pathfinder16": DRAWINGS, "reviews": REVIEWS, "passages": PASSAGES}, DESCRIPTION
)
