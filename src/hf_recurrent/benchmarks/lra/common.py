"""Configs, parameters, papers, the authors' release and the forms of examples of the tasks of Long Range Arena.

Sizes and settings are those of the authors' release where it has them, and those of the code that made Table 4 of
"Investigating Recurrent Transformers with Dynamic Halt" where the two differ: texts are cut after 4,096 bytes (the
release after 1,000 or 4,000, by model).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..benchmark import Benchmark, Config, make_info
from ..byte_text import decode_bytes
from ..info import BenchmarkInfo
from ..listops import benchmark as listops
from ..listops.benchmark import ListOps
from ..parameters import SIZES, Parameter, choice, integer, number, optional, text
from ..pixels import draw_picture, format_pixels, parse_pixels

if TYPE_CHECKING:
    import numpy as np

# sides of pathfinder images
WINDOWS = {f"pathfinder{side}": side for side in (32, 64, 128, 256)}
DIFFICULTIES = ("curv_baseline", "curv_contour_length_9", "curv_contour_length_14")
SPLIT_RULES = ("dynamic_halt", "s4")
GRAYSCALES = ("lra", "pil")

_CONTINUITY = number(lambda value: 0.0 < value <= 10.0, "a number above 0, of at most 10")

PARAMETERS = {
    **{name: listops.PARAMETERS[name] for name in listops.CONFIGS["lra"].defaults},
    **SIZES,
    "num_validation": Parameter(
        optional(integer(0)),
        "examples of the validation split; None where the test split also serves for it, as in all published code",
    ),
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
        optional(_CONTINUITY),
        "how straight contours are: turning by d has weight cos(continuity d)^2; None: as released",
    ),
    "difficulty": Parameter(choice(DIFFICULTIES), "set of images in data_dir"),
    "split_rule": Parameter(
        choice(SPLIT_RULES), "who divided the images in data_dir: the code of the dynamic halt paper, or that of S4"
    ),
}


# the parameters that count for files only
PATHFINDER_FILES = MappingProxyType({"difficulty": "curv_contour_length_14", "split_rule": "dynamic_halt"})

_PATHFINDER = {
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
CONFIGS = {
    "listops": Config(
        "ListOps expressions of 501-1999 tokens, the config `lra` of benchmark `listops`; generated, or data_dir",
        listops.CONFIGS["lra"].defaults,
    ),
    "text": Config(
        "film reviews as bytes, negative or positive; from the Hub (IMDB) or data_dir",
        {"dataset": "stanfordnlp/imdb", "revision": "main", "max_bytes": 4096, "num_validation": None},
    ),
    "retrieval": Config(
        "pairs of papers as bytes, related or not; from data_dir (AAN, as in the authors' release)",
        {"max_bytes": 4096},
    ),
    "image": Config(
        "photographs of ten kinds of things, as 1,024 grey pixels; from the Hub (CIFAR-10) or data_dir",
        {"dataset": "uoft-cs/cifar10", "revision": "main", "grayscale": "lra"},
    ),
    "pathfinder32": Config(
        "drawings of 1,024 pixels: is there a path from one disc to the other? Generated, or data_dir", _PATHFINDER
    ),
    "pathfinder64": Config("the same with 4,096 pixels", _PATHFINDER),
    "pathfinder128": Config("the same with 16,384 pixels, known as Path-X", _PATHFINDER),
    "pathfinder256": Config("the same with 65,536 pixels", _PATHFINDER),
}

# of images, as the tokenizers spell them
PIXELS = tuple(map(str, range(256)))
PIXELS_MEANING = "grey values from 0 to 255, row by row from the top left, separated by single spaces"
PICTURE = "the image in letters: the pixels that are brighter than its mean, two rows of pixels to a line"
CUT_MEANING = "bytes of {0}, after it was cut to `max_bytes`"
BLACK_PIXELS = (
    "Black is a pixel like any other. The authors' models take it for padding, that of the dynamic halt paper gives it "
    "a random vector that is never trained."
)

PAPER = "https://arxiv.org/abs/2011.04006"
CITATION = (
    "Yi Tay, Mostafa Dehghani, Samira Abnar, Yikang Shen, Dara Bahri, Philip Pham, Jinfeng Rao, Liu Yang, Sebastian "
    "Ruder and Donald Metzler. Long Range Arena: A Benchmark for Efficient Transformers. ICLR, 2021."
)
_ARENA = """@inproceedings{tay2021long,
  title = {Long Range Arena: A Benchmark for Efficient Transformers},
  author = {Tay, Yi and Dehghani, Mostafa and Abnar, Samira and Shen, Yikang and Bahri, Dara and Pham, Philip and
            Rao, Jinfeng and Yang, Liu and Ruder, Sebastian and Metzler, Donald},
  booktitle = {International Conference on Learning Representations},
  year = {2021},
  url = {https://arxiv.org/abs/2011.04006}
}"""
_SOURCES = {
    "listops": ListOps.info.bibtex,
    "text": """@inproceedings{maas2011learning,
  title = {Learning Word Vectors for Sentiment Analysis},
  author = {Maas, Andrew L. and Daly, Raymond E. and Pham, Peter T. and Huang, Dan and Ng, Andrew Y. and
            Potts, Christopher},
  booktitle = {Annual Meeting of the Association for Computational Linguistics},
  year = {2011},
  url = {https://aclanthology.org/P11-1015}
}""",
    "retrieval": """@article{radev2013acl,
  title = {The ACL Anthology Network Corpus},
  author = {Radev, Dragomir R. and Muthukrishnan, Pradeep and Qazvinian, Vahed and Abu-Jbara, Amjad},
  journal = {Language Resources and Evaluation},
  volume = {47},
  year = {2013}
}""",
    "image": """@techreport{krizhevsky2009learning,
  title = {Learning Multiple Layers of Features from Tiny Images},
  author = {Krizhevsky, Alex},
  institution = {University of Toronto},
  year = {2009}
}""",
    "pathfinder": """@inproceedings{linsley2018learning,
  title = {Learning Long-Range Spatial Dependencies with Horizontal Gated Recurrent Units},
  author = {Linsley, Drew and Kim, Junkyung and Veerabadran, Vijay and Windolf, Charles and Serre, Thomas},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2018},
  url = {https://arxiv.org/abs/1805.08315}
}""",
}


def task_info(task: str, *, parse_meaning: str = "", **facts: Any) -> BenchmarkInfo:
    """The facts about a task; its BibTeX entries are those of the arena and of the paper that its data are from."""
    return make_info(
        PARAMETERS,
        CONFIGS,
        default_config="listops",
        name="lra",
        paper=PAPER,
        citation=CITATION,
        bibtex=f"{_ARENA}\n\n{_SOURCES[task]}",
        parse_meaning=PICTURE if facts.get("modality") == "pixels" else parse_meaning,
        **facts,
    )


class PixelTask(Benchmark):
    """A task on images that are read pixel by pixel."""

    parameters = PARAMETERS

    def render(self, texts: Mapping[str, str], max_lines: int) -> str:
        return draw_picture(parse_pixels(texts["pixels"]), max_lines)


# folders that the archive is unpacked to
_ROOTS = ("", "lra_release", "lra_release/lra_release")


def find(data_dir: Path, folders: Sequence[str], names: Sequence[str]) -> Path:
    """The folder that holds all of `names` (files or folders): `data_dir`, or one of `folders` in the release.

    Raises:
        ValueError: there is none; the message has all that is missing where the least is missing.
    """
    if data_dir.is_file():
        raise ValueError(f"data_dir={str(data_dir)!r} is a file: unpack it, and give the folder")
    places = [data_dir / root / folder for folder in ("", *folders) for root in _ROOTS]
    missing = {place: [name for name in names if not (place / name).exists()] for place in places}
    best = min(places, key=lambda place: len(missing[place]))
    if missing[best]:
        # where nothing is found, the user meant the first place
        raise ValueError(
            f"data_dir={str(data_dir)!r}: {best} has no {', '.join(missing[best])}; expected {', '.join(names)} there, "
            f"or in its folder {' or '.join(folders)}"
        )
    return best


def text_example(content: bytes, label: int, max_bytes: int) -> dict[str, object]:
    """The example of a text, of which the first `max_bytes` are kept; a cut goes through characters too."""
    kept = content[:max_bytes]
    return {"text": decode_bytes(kept), "label": label, "length": len(kept), "full_length": len(content)}


def pair_example(first: bytes, second: bytes, label: int, max_bytes: int) -> dict[str, object]:
    """The example of two texts, each cut by itself."""
    first, second = first[:max_bytes], second[:max_bytes]
    return {
        "text": decode_bytes(first),
        "text_pair": decode_bytes(second),
        "label": label,
        "length": len(first),
        "length_pair": len(second),
    }


def image_example(pixels: "np.ndarray", label: int) -> dict[str, object]:
    """The example of an image of whole numbers (side, side)."""
    return {
        "pixels": format_pixels(pixels),
        "label": label,
        "brightness": round(float(pixels.mean())),
        "contrast": round(float(pixels.std())),
    }
