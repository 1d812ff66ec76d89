"""The tables of a data set on the Hub that has a train and a test split, `plain_text/<split>-*.parquet`.

The arena has a validation split too, which is a part of train: its examples are known by their places in train, counted
from 0 over all tables.
"""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files import parquet_rows, split_tables

FOLDER = "plain_text"

# some rows of a table by their places in it, from 0; None: all of them
Places = frozenset[int] | None


def train_and_test(folder: Path) -> dict[str, list[str]]:
    """The tables of both splits; none where there is no table.

    Raises:
        ValueError: some are missing.
    """
    tables = split_tables(folder / FOLDER)
    if tables and not {"train", "test"} <= set(tables):
        raise ValueError(f"{folder / FOLDER} has tables of {', '.join(tables)}: expected those of train and test")
    return tables


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


def table_rows(path: str, places: Places, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a table, each with its place for messages.

    Raises:
        ValueError: the table is damaged, or lacks a column.
    """
    for place, row in enumerate(parquet_rows(path, columns)):
        if places is None or place in places:
            yield f"{path}, row {place + 1}", row
