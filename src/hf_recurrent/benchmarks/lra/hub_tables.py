"""The tables of a data set on the Hub that has a train and a test split, `plain_text/<split>-*.parquet`.

The arena has a validation split too, which is a part of train: its examples are known by their places in train, counted
from 0 over all tables.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..files import parquet_rows, snapshot

FOLDER = "plain_text"
SPLITS = ("train", "test")


class Table(NamedTuple):
    """Some rows of a table by their places in it, from 0; None: all of them."""

    path: str
    places: frozenset[int] | None = None


def tables_folder(params: Mapping[str, Any]) -> Path:
    """The folder of a data set's tables; what is not here yet is downloaded.

    Raises:
        ValueError: the data set cannot be downloaded, or has not all of them.
    """
    wanted = [f"{FOLDER}/{split}-*.parquet" for split in SPLITS]
    folder = snapshot(params["dataset"], params["revision"], wanted)
    if not has_tables(folder):
        raise ValueError(
            f"dataset={params['dataset']!r} has no files {', '.join(wanted)}: name another one, or give data_dir"
        )
    split_tables(folder)
    return folder


def has_tables(folder: Path) -> bool:
    return any((folder / FOLDER).glob("*.parquet"))


def split_tables(folder: Path) -> dict[str, list[str]]:
    """The tables of each split in their order, such as `train-00000-of-00002.parquet`.

    Raises:
        ValueError: some are missing.
    """
    found = {split: sorted((folder / FOLDER).glob(f"{split}-*.parquet")) for split in SPLITS}
    for split, paths in found.items():
        counts = {path.stem.rpartition("-of-")[2] for path in paths}
        if not paths or any(count.isdecimal() and int(count) != len(paths) for count in counts):
            raise ValueError(
                f"{folder / FOLDER} has {len(paths)} tables {split}-*.parquet, which are not all: download the data "
                "set again"
            )
    return {split: [str(path) for path in paths] for split, paths in found.items()}


def divide(counts: Sequence[int], held_out: Container[int]) -> dict[str, list[frozenset[int]]]:
    """The places of train and validation examples in each of several files with so many examples, which make up train.

    >>> divide([2, 2], {1, 2})
    {'train': [frozenset({0}), frozenset({1})], 'validation': [frozenset({1}), frozenset({0})]}
    """
    starts = [sum(counts[:number]) for number in range(len(counts))]
    return {
        split: [
            frozenset(place for place in range(count) if (start + place in held_out) == (split == "validation"))
            for start, count in zip(starts, counts, strict=True)
        ]
        for split in ("train", "validation")
    }


def table_rows(table: Table, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table, each with its place for messages.

    Raises:
        ValueError: the table is damaged, or lacks a column.
    """
    for place, row in enumerate(parquet_rows(table.path, columns)):
        if table.places is None or place in table.places:
            yield f"{table.path}, row {place + 1}", row
