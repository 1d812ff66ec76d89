"""The ACL Anthology Network as Long Range Arena has it: from the authors' tables to the rows of every split.

`new_aan_pairs.train.tsv`, `new_aan_pairs.eval.tsv` and `new_aan_pairs.test.tsv` (in the release in `tsv_data`) have no
header and a pair in each line, without any quoting:

    label<TAB>id<TAB>id<TAB>text<TAB>text            0.0	P05-1001	W04-1013	The first ...	The second ...

A reader that takes quotes for more than characters merges rows. The train table of the release has 147,086; one with
fewer is read too. Lines are read as bytes: those that are no UTF-8 are data (`byte_text`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..sampling import Shard
from .release import find
from .rows import pair_row

FILES = {
    "train": "new_aan_pairs.train.tsv",
    "validation": "new_aan_pairs.eval.tsv",
    "test": "new_aan_pairs.test.tsv",
}
FOLDERS = ("tsv_data",)
RELEASE = "https://github.com/google-research/long-range-arena"
_FIELDS = ("label", "id", "id", "text", "text")
_FORM = "<TAB>".join(_FIELDS)


class PairTable(NamedTuple):
    path: str
    max_bytes: int


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """There is none: the texts may not be passed on.

    Raises:
        ValueError: always; it says where the texts are.
    """
    raise ValueError(
        f"config {config_name!r} has no source that may be downloaded here: give data_dir, the authors' release (see "
        f"{RELEASE}) or a folder with {', '.join(FILES.values())}"
    )


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """One shard per split.

    Raises:
        ValueError: files are missing; all of them are named.
    """
    folder = find(data_dir, FOLDERS, tuple(FILES.values()))
    return {
        split: [Shard(0, "file", PairTable(str(folder / name), params["max_bytes"]))] for split, name in FILES.items()
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    return (shard.payload.path,)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: the table has no rows, or one that is not whole; the message has its file and line.
    """
    table, number = shard.payload, 0
    with open(table.path, "rb") as file:
        for number, line in enumerate(file, start=1):
            label, first, second = _parse(line, f"{table.path}:{number}")
            yield pair_row(first, second, label, table.max_bytes)
    if not number:
        raise ValueError(f"{table.path} is empty: is the release whole?")


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
