"""Rows of files that somebody else wrote: CSV, TSV, JSON, JSON Lines, Parquet and plain text, one at a time."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..benchmarks.files import parquet_columns, parquet_rows
from ..benchmarks.json_array import read_items
from ..files import parse_json
from ..templating import near_names
from .lines import GZIP, Lines, csv_records, open_lines

FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "text")
SUFFIXES = {f".{name}": name for name in FORMATS} | {".ndjson": "jsonl", ".txt": "text", ".md": "text", ".tab": "tsv"}
DELIMITERS = {"csv": ",", "tsv": "\t"}
# what else stands between values, in files that are called so
OTHER_DELIMITERS = ",;\t|"
# characters to look at first
BLOCK = 1024
# the only column of a text file
TEXT = "text"


class Rows:
    """Rows of a file as dictionaries, in order; a row is in memory when it is read, not before and not after.

    Values of CSV and TSV files are strings. A text file has a row for each line, with the column `text`. A JSON file
    holds an array of objects or one object on each line; rows of JSON have all `columns`, None where they lack one,
    and columns of their own. Text may be compressed (`.gz`).

    Args:
        path: the file.
        file_format: "csv", "tsv", "json", "jsonl", "parquet" or "text"; None: by the name's end.
        encoding: of text; of Parquet it is not used.
        on_error: "raise", or "skip" to leave out broken rows and keep them in `skipped`.

    Attributes:
        columns: names of the columns, from the header or the first row.
        skipped: line or row number and reason of each broken row that was left out by the last iteration.
        unit: "line" or "row", what numbers count, from 1.

    Raises:
        ValueError: there is no such file, it has no rows or is not of its format, or columns without names of their
            own; when iterated, a broken row, with its number.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        file_format: str | None = None,
        encoding: str = "utf-8",
        on_error: str = "raise",
    ):
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is {on_error!r}: expected 'raise' or 'skip'")
        self.path = existing_file(path)
        self.file_format = format_of(self.path) if file_format is None else file_format
        if self.file_format not in FORMATS:
            raise ValueError(f"file_format is {file_format!r}: expected one of {', '.join(FORMATS)}")
        self.encoding, self.on_error = encoding, on_error
        self.is_array = False
        if self.file_format == "json":
            with open_lines(self.path, encoding) as lines:
                while (text := lines.read(BLOCK)) and not text.strip():
                    pass
                self.is_array = text.lstrip().startswith("[")
        self.unit = "row" if self.is_array or self.file_format == "parquet" else "line"
        self.skipped: list[tuple[int, str]] = []
        self.columns: list[str] = []
        self.columns = self._read_columns()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _, row in self.numbered():
            yield row

    def numbered(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
        """Rows with the numbers of the lines that they begin in, or of the rows in a Parquet file or JSON array.

        `columns`: of a Parquet file, read these alone.
        """
        self.skipped.clear()
        if self.file_format == "parquet":
            number = 0
            try:
                for number, row in enumerate(parquet_rows(str(self.path), columns), start=1):
                    yield number, row
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self.path}: a text after row {number} is not UTF-8 ({error}): write the file again"
                ) from error
            return
        with open_lines(self.path, self.encoding) as lines:
            yield from self._text_rows(lines)

    def reject(self, number: int, reason: str) -> None:
        """Note a broken row, or raise a ValueError with its place, as `on_error` says."""
        if self.on_error == "raise":
            raise ValueError(
                f"{self.path}, {self.unit} {number}: {reason} (--on-error skip, in Python on_error='skip', leaves out "
                "what is broken)"
            )
        self.skipped.append((number, reason))

    def _read_columns(self) -> list[str]:
        if self.file_format == "parquet":
            return unique_names(parquet_columns(str(self.path)), str(self.path))
        with open_lines(self.path, self.encoding) as lines:
            if self.file_format in DELIMITERS:
                return read_header(csv_records(lines, DELIMITERS[self.file_format]), self.path)
            _, first = next(self._text_rows(lines), (0, None))
        if first is None:
            broken = f" but {len(self.skipped)} broken ones, first {self.skipped[0]}" if self.skipped else ""
            raise ValueError(f"{self.path} holds no rows{broken}: expected {self.file_format}")
        return list(first)

    def _text_rows(self, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.file_format in DELIMITERS:
            records = csv_records(lines, DELIMITERS[self.file_format])
            columns = read_header(records, self.path)
            for number, values, reason in records:
                if values is None:
                    self.reject(number, reason)
                elif len(values) != len(columns):
                    self.reject(number, f"it has {len(values)} values, and the header {len(columns)} columns")
                else:
                    yield number, dict(zip(columns, values, strict=True))
            return
        if self.is_array:
            for number, row in enumerate(read_items(lines, str(self.path)), start=1):
                yield from self._objects(number, row)
            return
        expected = "one object on each line" + (", or one array of objects" if self.file_format == "json" else "")
        for line in lines:
            number, problem, text = lines.number, lines.problem, line.rstrip("\r\n")
            lines.end_record()
            if problem is not None:
                self.reject(*problem)
            elif self.file_format == "text":
                yield number, {TEXT: text}
            elif text.strip():
                try:
                    row = parse_json(text, "it")
                except ValueError as error:
                    self.reject(number, f"{error}; expected {expected}")
                    continue
                yield from self._objects(number, row)

    def _objects(self, number: int, row: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        """A row of JSON, if it is one."""
        if not isinstance(row, dict):
            self.reject(number, f'it is {json.dumps(row)[:40]}: expected an object such as {{"text": ...}}')
            return
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            self.reject(number, "it holds half of a surrogate pair (\\ud800 to \\udfff), which is no text")
            return
        yield number, {**dict.fromkeys(self.columns), **row}


def existing_file(path: str | os.PathLike) -> Path:
    """A path, if there is a file. Raises ValueError otherwise, with what is there instead."""
    path = Path(path)
    if path.is_dir():
        inside = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        named = f"; it holds {', '.join(inside[:5])}" if inside else ""
        raise ValueError(f"{path} is a folder: name one file{named}")
    if not path.is_file():
        # a pipe could be read only once
        raise ValueError(f"{path} {'is no file' if path.exists() else 'does not exist'}{near_names(path)}")
    return path


def format_of(path: Path) -> str:
    """The format of a file by the end of its name. Raises ValueError for an unknown one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = suffixes[-1:] == [GZIP]
    last = (suffixes[:-1] if compressed else suffixes)[-1:]
    found = SUFFIXES.get(last[0]) if last else None
    if found is None or (compressed and found == "parquet"):
        raise ValueError(
            f"{path} has no known format: its name should end in one of {', '.join(SUFFIXES)} (text also with {GZIP}), "
            "or pass file_format (--file-format of `hf-recurrent predict`)"
        )
    return found


def read_header(records: Iterator[tuple[int, list[str] | None, str]], path: Path) -> list[str]:
    """The names in the first record. Raises ValueError for none, or what cannot name columns."""
    number, names, reason = next(records, (0, None, "the file is empty: expected a header line with column names"))
    if names is None:
        raise ValueError(f"{path}{f', line {number}' if number else ''}: {reason}")
    other = next((mark for mark in OTHER_DELIMITERS if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        named = next((name for name, mark in DELIMITERS.items() if mark == other), None)
        remedy = "put commas between the values, as a spreadsheet does where you choose them for CSV"
        raise ValueError(
            f"{path}, line {number}: the only column is {names[0]!r:.60}, with {other!r} within: "
            f"{remedy if named is None else f'let the name of such a file end in .{named}'}; or, if it is one name, "
            "rename it"
        )
    return unique_names(names, f"{path}, line {number}")


def unique_names(names: list[str], place: str) -> list[str]:
    """Names of columns, if they can tell columns apart; the first may be empty, as pandas leaves that of its index.

    Raises:
        ValueError: one is empty or there twice.
    """
    twice = [name for name, times in Counter(names).items() if times > 1 and name]
    if twice:
        raise ValueError(f"{place}: the columns {', '.join(twice)} are there more than once: name each column once")
    empty = [str(index) for index, name in enumerate(names, start=1) if not name and index > 1]
    if empty:
        raise ValueError(f"{place}: column {', '.join(empty)} has no name: give it one, or remove the column")
    return list(names)
