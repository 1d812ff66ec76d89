"""The Retrieval task: pairs of papers of the ACL Anthology Network, from the authors' tables.

`new_aan_pairs.train.tsv`, `new_aan_pairs.eval.tsv` and `new_aan_pairs.test.tsv` (in the release in `tsv_data`) have no
header and a pair in each line, without any quoting:

    label<TAB>id<TAB>id<TAB>text<TAB>text            0.0	P05-1001	W04-1013	The first ...	The second ...

A reader that takes quotes for more than characters merges rows. The train table of the release has 147,086; one with
fewer is read too. Lines are read as bytes: those that are no UTF-8 are data (`byte_text`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..benchmark import Benchmark, Plan
from ..byte_text import BYTES
from ..sampling import Shard
from .common import CUT_MEANING, PARAMETERS, find, pair_example, task_info

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
FOLDERS = ("tsv_data",)
RELEASE = "https://github.com/google-research/long-range-arena"
_FIELDS = ("label", "id", "id", "text", "text")
_FORM = "<TAB>".join(_FIELDS)


def pair_examples(path: str, max_bytes: int) -> Iterator[dict[str, object]]:
    """The examples of a table.

    Raises:
        ValueError: the table has no rows, or one that is not whole; the message has its file and line.
    """
    number = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            label, first, second = _parse(line, f"{path}:{number}")
            yield pair_example(first, second, label, max_bytes)
    if not number:
        raise ValueError(f"{path} is empty: is the release whole?")


def _parse(line: bytes, place: str) -> tuple[int, bytes, bytes]:
    if not line.endswith(b"\n"):
        # a text that was cut looks like a whole one
        raise ValueError(f"{place}: the file ends in the middle of a line: is it whole? If so, end it with a line end")
    fields = line.rstrip(b"\r\n").split(b"\t")
    if len(fields) != len(_FIELDS) or not fields[3] or not fields[4]:
        found = f"{len(fields)} fields" if len(fields) != len(_FIELDS) else "an empty text"
        raise ValueError(f"{place}: expected '{_FORM}', got {found}")
    try:
        label = float(fields[0])
    except ValueError:
        label = None
    if label not in (0.0, 1.0):
        raise ValueError(f"{place}: expected the label 0.0 or 1.0 ('{_FORM}'), got {fields[0][:80]!r}")
    return int(label), fields[3], fields[4]


class Retrieval(Benchmark):
    """Pairs of papers, of which one cites the other or not (Radev et al., 2013)."""

    parameters = PARAMETERS
    generated = False
    export_configs = ()
    file_configs = ("retrieval",)
    file_parameters = ("max_bytes",)
    file_names = "new_aan_pairs.{train,eval,test}.tsv"
    info = task_info(
        "retrieval",
        title="Long Range Arena: Retrieval",
        description="Pairs of papers of the ACL Anthology, read byte by byte; the label is whether one cites "
        "the other.",
        label_names=("unrelated", "related"),
        languages=("en",),
        text_columns=("text", "text_pair"),
        slice_columns=("length", "length_pair"),
        column_meanings={
            "text": "the first paper, cut to `max_bytes`; a byte b that is no part of UTF-8 text stands there as "
            "U+10FF00 + b",
            "text_pair": "the second paper, cut alike",
            "length": CUT_MEANING.format("the first text"),
            "length_pair": CUT_MEANING.format("the second text"),
        },
        vocabulary=BYTES,
        modality="bytes",
        synthetic=False,
        license="other (papers of the ACL Anthology Network)",
        limits=("The texts are in the authors' release only, which must be given as data_dir.",),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        """Raises ValueError with the place of the texts, which may not be passed on."""
        raise ValueError(
            f"config {config_name!r} has no source that may be downloaded here: give data_dir, the authors' release "
            f"(see {RELEASE}) or a folder with {', '.join(FILES.values())}"
        )

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """One shard per split. Raises ValueError where files are missing; all of them are named."""
        folder = find(folder, FOLDERS, tuple(FILES.values()))
        paths = {split: str(folder / name) for split, name in FILES.items()}
        return {split: [Shard(pair_examples, (path, params["max_bytes"]), (path,))] for split, path in paths.items()}
