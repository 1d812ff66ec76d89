"""Files of predictions: Parquet, CSV and JSON Lines, written a table at a time."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..files import plain


def column_of(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values as a column of a type, or of one that fits them (None), which for a mixture is JSON text."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json_text(value) for value in values], pa.string())


def json_text(value: Any) -> str:
    """A value as text that JSON has for it, a text itself as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; float32 with as many digits as it has, not as the float64 that Python makes of it."""
    columns = []
    for column in table.columns:
        as_text, as_double = (with_floats_as(column.type, kind) for kind in (pa.string(), pa.float64()))
        columns.append(column if as_text == column.type else column.cast(as_text).cast(as_double))
    return pa.table(columns, names=table.column_names).to_pylist()


def with_floats_as(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type with another one in the place of float32, in lists too."""
    if pa.types.is_list(kind):
        return pa.list_(with_floats_as(kind.value_type, other))
    return other if kind == pa.float32() else kind


def as_data(value: Any) -> Any:
    """A value of a table as JSON has it; dates and bytes as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    return [as_data(item) for item in value] if isinstance(value, list) else value


def write_parquet(path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def write_csv(path: Path, tables: Iterator[pa.Table]) -> None:
    def cell(value: Any) -> Any:
        value = as_data(value)
        return json_text(value) if isinstance(value, list | dict | bool) else value

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, table in enumerate(tables):
            if number == 0:
                writer.writerow(table.column_names)
            writer.writerows([map(cell, row.values()) for row in records(table)])


def write_json_lines(path: Path, tables: Iterator[pa.Table]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for table in tables:
            file.writelines(json.dumps(plain(as_data(row)), ensure_ascii=False) + "\n" for row in records(table))


WRITERS: dict[str, Callable[[Path, Iterator[pa.Table]], None]] = {
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".jsonl": write_json_lines,
}
