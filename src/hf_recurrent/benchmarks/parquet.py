"""Parquet files as rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet


@contextmanager
def _opened(path: str) -> "Iterator[pyarrow.parquet.ParquetFile]":
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error}): is it whole?") from error


def parquet_columns(path: str) -> list[str]:
    """The columns of a Parquet file. Raises ValueError if it is damaged."""
    with _opened(path) as file:
        return file.schema_arrow.names


def parquet_rows(path: str, columns: Sequence[str], rows_at_a_time: int = 1000) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file with these columns, a few in memory at a time.

    Raises:
        ValueError: the file is damaged, or lacks a column.
    """
    found = parquet_columns(path)
    for column in columns:
        if column not in found:
            raise ValueError(f"{path}: expected a column {column}, found {', '.join(found) or 'none'}")
    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=rows_at_a_time, columns=list(columns)):
            yield from batch.to_pylist()
