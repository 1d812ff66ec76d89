"""Rows to Parquet files whose bytes depend on the rows alone.

The number of rows of a file and of a row group is fixed, and every row group is written from contiguous memory:
how `datasets` had stored the rows, and with how many processes, leaves no trace.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets
    import pyarrow

ROWS_PER_FILE = 25_000
# statistics are per row group: a reader who filters by difficulty skips the groups that have no such row
ROWS_PER_GROUP = 1000

# all that pyarrow could choose differently from one version to the next
_SETTINGS: dict[str, Any] = {
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "data_page_version": "1.0",
    "data_page_size": 1 << 20,
    "write_batch_size": 1024,
    "dictionary_pagesize_limit": 1 << 20,
    "write_page_index": True,
    "store_schema": True,
}


def shard_name(split: str, number: int, count: int) -> str:
    """The file name of one of `count` shards, numbered from 0, as the Hub writes it."""
    return f"{split}-{number:05d}-of-{count:05d}.parquet"


def write_split(dataset: "datasets.Dataset", folder: Path, split: str) -> int:
    """Writes the shards of a split into `folder` and returns the bytes that its rows take in memory.

    The Arrow schema of each file holds the features, so that `load_dataset` knows the names of the labels.
    """
    import pyarrow.parquet

    schema = dataset.features.arrow_schema
    numbers = [field.name for field in schema if not _is_text(field.type)]
    starts = range(0, dataset.num_rows, ROWS_PER_FILE)
    folder.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    for number, start in enumerate(starts):
        path = folder / shard_name(split, number, len(starts))
        # texts hardly ever repeat: neither dictionaries nor extremes of them help anyone
        with pyarrow.parquet.ParquetWriter(
            path, schema, use_dictionary=numbers, write_statistics=numbers, **_SETTINGS
        ) as writer:
            for group in row_groups(dataset, start, min(start + ROWS_PER_FILE, dataset.num_rows)):
                writer.write_table(group, row_group_size=ROWS_PER_GROUP)
                num_bytes += group.nbytes
    return num_bytes


def _is_text(kind: "pyarrow.DataType") -> bool:
    import pyarrow

    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def row_groups(dataset: "datasets.Dataset", start: int, stop: int) -> Iterator["pyarrow.Table"]:
    """Rows `start` to `stop` as tables of contiguous columns with the schema of the features."""
    import pyarrow

    schema = dataset.features.arrow_schema
    arrow = dataset.with_format("arrow")
    for first in range(start, stop, ROWS_PER_GROUP):
        table = arrow[first : min(first + ROWS_PER_GROUP, stop)]
        yield pyarrow.Table.from_arrays([table[name].combine_chunks() for name in schema.names], schema=schema)
