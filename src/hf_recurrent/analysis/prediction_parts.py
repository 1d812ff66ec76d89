"""Predictions of one file, kept in parts until all are there: a run that was stopped goes on where it was.

The parts are Parquet files in a folder beside the output, each of them written in one step, with the numbers of what it
stands for. `identity.json` there says what predicts from what, so that parts of different runs are never mixed.
"""

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..changes import alone
from ..files import new_parents, plain, read_json, write_json

FOLDER, IDENTITY, JOINED = ".parts", "identity.json", "joined.partial"
# key of a part's numbers in its metadata
COUNTS = b"hf_recurrent"


class Parts:
    """Tables of predictions in the order of their rows.

    Attributes:
        counts: numbers that the parts stand for, summed.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.paths = sorted(folder.glob("part-*.parquet"))
        self.counts: Counter[str] = Counter()
        for path in self.paths:
            self.counts.update(json.loads(pq.read_schema(path).metadata[COUNTS]))

    def add(self, table: pa.Table, counts: Mapping[str, int]) -> None:
        """Add a part, in one step."""
        path = self.folder / f"part-{len(self.paths):06d}.parquet"
        partial = path.with_suffix(".partial")
        pq.write_table(table.replace_schema_metadata({COUNTS: json.dumps(dict(counts))}), partial)
        os.replace(partial, path)
        self.paths.append(path)
        self.counts.update(counts)

    def join(self, output: Path) -> None:
        """Write all rows to `output`, in one step, in the format that its name ends in."""
        schema = common_schema([pq.read_schema(path) for path in self.paths])
        tables = (fitted(pq.read_table(path), schema) for path in self.paths)
        joined = self.folder / JOINED
        WRITERS[output.suffix.lower()](joined, schema, tables)
        os.replace(joined, output)


class CountedParts:
    """Parts that another process writes, which this one counts as well."""

    def __init__(self, counts: Mapping[str, int], paths: list[Path]):
        self.counts, self.paths = Counter(counts), paths

    def add(self, table: pa.Table, counts: Mapping[str, int]) -> None:
        self.counts.update(counts)

    def join(self, output: Path) -> None:
        """The other process writes the file."""


@contextmanager
def open_parts(output: Path, identity: Mapping[str, str], overwrite: bool) -> Iterator[Parts]:
    """The parts of the predictions for `output`, which are removed when the block has ended and `output` is there.

    Args:
        identity: what predictions follow from, each by a name that a message can use.
        overwrite: whether `output` may be there, and parts of another run be removed.

    Raises:
        ValueError: `output` is there, or parts of another run, or another process writes there.
    """
    if output.suffix.lower() not in WRITERS:
        raise ValueError(f"output is {str(output)!r}: its name should end in one of {', '.join(WRITERS)}")
    if output.is_dir():
        raise ValueError(f"output is {str(output)!r}, which is a folder: name a file")
    if output.exists() and not overwrite:
        raise ValueError(f"{output} exists: pass overwrite to replace it (--overwrite), or name another file")
    folder = output.with_name(output.name + FOLDER)
    with new_parents(folder), alone(folder):
        check_identity(folder, identity, overwrite)
        parts = Parts(folder)
        try:
            yield parts
        except BaseException:
            if not parts.paths:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)


def check_identity(folder: Path, identity: Mapping[str, str], overwrite: bool) -> None:
    """Let parts in a folder be those of `identity`, or none.

    Raises:
        ValueError: they are of another, and may not be removed.
    """
    path = folder / IDENTITY
    before = read_json(path) if path.is_file() else {}
    changed = [name for name in {**identity, **before} if before.get(name) != identity.get(name)]
    if changed and before and not overwrite:
        raise ValueError(
            f"{folder} holds predictions of a run that was stopped, but with another {', '.join(changed)}: they are "
            "not mixed; repeat that run's command to finish it, or pass overwrite (--overwrite) to begin anew"
        )
    if changed:
        for entry in folder.iterdir():
            entry.unlink()
        write_json(path, dict(identity))


def column_of(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values as a column of a type, or of one that fits them (None), which for a mixture is JSON text."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json_text(value) for value in values], pa.string())


def json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def common_schema(schemas: list[pa.Schema]) -> pa.Schema:
    """One schema for the columns of all parts; columns of different types become double, or text."""
    fields = []
    for name in schemas[0].names:
        kinds = {kind for schema in schemas if not pa.types.is_null(kind := schema.field(name).type)}
        if len(kinds) > 1:
            numbers = kinds == {pa.int64(), pa.float64()}
            kinds = {pa.float64() if numbers else pa.string()}
        fields.append((name, kinds.pop() if kinds else pa.string()))
    return pa.schema(fields)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table in a common schema."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            if field.type == pa.string() and not pa.types.is_null(column.type):
                column = pa.chunked_array([column_texts(column)])
            column = column.cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=schema)


def column_texts(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else json_text(value) for value in column.to_pylist()], pa.string())


def records(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; float32 with as many digits as it has, not as the float64 that Python makes of it."""
    columns = [short_floats(column) for column in table.columns]
    return pa.table(columns, names=table.column_names).to_pylist()


def short_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    written, read = (with_floats_as(column.type, kind) for kind in (pa.string(), pa.float64()))
    return column if written == column.type else column.cast(written).cast(read)


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


def write_parquet(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        for table in tables:
            writer.write_table(table)


def write_csv(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    def cell(value: Any) -> Any:
        value = as_data(value)
        return json_text(value) if isinstance(value, list | dict | bool) else value

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(schema.names)
        for table in tables:
            writer.writerows([map(cell, row.values()) for row in records(table)])


def write_json_lines(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for table in tables:
            file.writelines(json.dumps(plain(as_data(row)), ensure_ascii=False) + "\n" for row in records(table))


WRITERS: dict[str, Callable[[Path, pa.Schema, Iterator[pa.Table]], None]] = {
    ".parquet": write_parquet,
    ".csv": write_csv,
    ".jsonl": write_json_lines,
}
