"""Documents in tables of the Hub's kind: Parquet files, and JSON lines, compressed or not.

| config | columns that are read | a document |
|---|---|---|
| `pg19` | `text`, `short_book_title`, `url` | a row |
| `arxiv_math` | `text`, `meta` | a row whose `meta` (an object, or its JSON) has `config` = "arxiv" |
| `github` | `repo_name`, `path`, and `content` or `code` | all rows of a repository, in the order of their paths |

Rows of a repository lie anywhere in such tables. They are sorted in a temporary file on the disk, so that the memory
that this takes does not grow with the corpus.
"""

import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..files import parquet_columns, parquet_rows
from .documents import joined

SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".json.gz")
# files beside the tables of a data set
_CARDS = ("README.md", "LICENSE", "LICENSE.txt", "dataset_infos.json")
_SPLIT = re.compile(r"(?:^|/)(train|validation|valid|val|dev|test)(?![a-z])", re.IGNORECASE)
_SPLIT_NAMES = {"valid": "validation", "val": "validation", "dev": "validation"}
# rows of a book each are large
_ROWS_AT_A_TIME = 16

Row = Mapping[str, Any]


def among(files: Iterable[str]) -> list[str]:
    """The tables among some files."""
    return [name for name in files if name.endswith(SUFFIXES)]


def only(files: Iterable[str]) -> bool:
    """Whether files are those of a data set: tables, perhaps with a card, and no others."""
    others = [name for name in files if not name.endswith(SUFFIXES)]
    return bool(among(files)) and set(others) <= set(_CARDS)


def by_split(tables: Iterable[str]) -> dict[str | None, list[str]]:
    """Tables by the split that their paths name; all under None if there are no splits, or only `train`.

    Raises:
        ValueError: some paths name a split, and others do not.
    """
    found: dict[str | None, list[str]] = {}
    for name in tables:
        match = _SPLIT.search(name)
        split = None if match is None else _SPLIT_NAMES.get(match[1].lower(), match[1].lower())
        found.setdefault(split, []).append(name)
    if None in found and len(found) > 1:
        raise ValueError(
            f"the path of {found[None][0]} names no split, unlike those of other tables: remove it or rename it"
        )
    return {None: found["train"]} if set(found) == {"train"} else found


def named_texts(config: str, paths: Iterable[str], keep: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The names and texts of the documents in tables whose names pass `keep`.

    Raises:
        ValueError: a table is damaged, or lacks a column.
    """
    if config == "github":
        yield from _repositories(paths, keep)
        return
    for path in paths:
        for place, row in _rows(path, _COLUMNS[config]):
            if config == "pg19":
                number = _string(row, "url", place).rstrip("/").rpartition("/")[2]
                name = f"{number} {_string(row, 'short_book_title', place)}"
            else:
                meta = row["meta"]
                try:
                    meta = json.loads(meta) if isinstance(meta, str) else meta
                    if meta["config"] != "arxiv":
                        continue
                except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
                    raise ValueError(
                        f"{place}: expected in column 'meta' an object with 'config', got {meta!r:.80}"
                    ) from error
                name = _string(meta, "file", place)
            text = _string(row, "text", place)
            if keep(name):
                yield name, text


def _repositories(paths: Iterable[str], keep: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    # not every build of Python has it
    import sqlite3

    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as folder:
        database = sqlite3.connect(Path(folder) / "files.sqlite")
        try:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("CREATE TABLE files (repository TEXT, path TEXT, place INTEGER, content TEXT)")
            files = ((name, path, place, text) for place, (name, path, text) in enumerate(_source_files(paths, keep)))
            database.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", files)
            database.execute("CREATE INDEX ordered ON files (repository, path, place)")
            order = "SELECT repository, content FROM files ORDER BY repository, path, place"
            for name, rows in groupby(database.execute(order), itemgetter(0)):
                yield name, joined(content for _, content in rows)
        finally:
            database.close()


def _source_files(paths: Iterable[str], keep: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    for table in paths:
        for place, row in _rows(table, _COLUMNS["github"]):
            repository = _string(row, "repo_name", place)
            if keep(repository):
                content = "content" if "content" in row else "code"
                yield repository, _string(row, "path", place), _string(row, content, place)


# alternatives are in one tuple
_COLUMNS = {
    "pg19": (("text",), ("short_book_title",), ("url",)),
    "arxiv_math": (("text",), ("meta",)),
    "github": (("repo_name",), ("path",), ("content", "code")),
}


def _rows(path: str, columns: tuple[tuple[str, ...], ...]) -> Iterator[tuple[str, Row]]:
    """The rows of a table with the columns, and the place of each for messages."""
    if path.endswith(".parquet"):
        rows = parquet_rows(path, _chosen(columns, parquet_columns(path), path), _ROWS_AT_A_TIME)
    else:
        rows = _json_rows(path)
    for number, row in enumerate(rows, start=1):
        place = f"{path}, row {number}"
        _chosen(columns, row, place)
        yield place, row


def _chosen(columns: tuple[tuple[str, ...], ...], found: Iterable[str], place: str) -> list[str]:
    """The columns out of those found, one of each alternative."""
    found = list(found)
    chosen = [next((name for name in names if name in found), None) for names in columns]
    if None in chosen:
        missing = " or ".join(columns[chosen.index(None)])
        raise ValueError(f"{place}: expected a column {missing}, found {', '.join(found) or 'none'}")
    return chosen


def _json_rows(path: str) -> Iterator[Row]:
    opened = gzip.open if path.endswith(".gz") else open
    whole = 0
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError("a line is no JSON object")
                    yield row
                whole = number
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        raise ValueError(f"{path}: the text after line {whole} cannot be read as JSON lines ({error})") from error


def _string(row: Row, column: str, place: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise ValueError(f"{place}: expected text in column {column!r}, got {value!r:.80}")
    return value
