"""Examples in Parquet files whose bytes depend on the examples alone, and a digest of them.

The number of rows of a file and of a row group is fixed, and every row group is written from contiguous memory, so
that neither the storage in the cache of `datasets` nor the number of processes changes a byte. `Dataset.to_parquet`
does not give that: it writes the chunks of the cache as they are.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets

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


def write_split(dataset: "datasets.Dataset", folder: Path, split: str) -> tuple[list[Path], int]:
    """The files of a split, written into `folder`, and the bytes that the examples take in memory.

    The Arrow schema of each file holds the features, so that `load_dataset` knows the names of the labels.
    """
    import pyarrow.parquet

    schema, arrow = dataset.features.arrow_schema, dataset.with_format("arrow")
    # texts hardly ever repeat: neither dictionaries nor extremes of them help anyone
    numbers = [field.name for field in schema if field.type not in (pyarrow.string(), pyarrow.large_string())]
    starts = range(0, dataset.num_rows, ROWS_PER_FILE)
    paths = [folder / f"{split}-{number:05d}-of-{len(starts):05d}.parquet" for number in range(len(starts))]
    folder.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    for path, start in zip(paths, starts, strict=True):
        with pyarrow.parquet.ParquetWriter(
            path, schema, use_dictionary=numbers, write_statistics=numbers, **_SETTINGS
        ) as writer:
            stop = min(start + ROWS_PER_FILE, dataset.num_rows)
            for first in range(start, stop, ROWS_PER_GROUP):
                table = arrow[first : min(first + ROWS_PER_GROUP, stop)]
                columns = [table[name].combine_chunks() for name in schema.names]
                group = pyarrow.Table.from_arrays(columns, schema=schema)
                writer.write_table(group, row_group_size=ROWS_PER_GROUP)
                num_bytes += group.nbytes
    return paths, num_bytes


def rows_digest(splits: Mapping[str, Iterable[Mapping[str, Any]]], label_names: Sequence[str]) -> str:
    """The sha256, in hexadecimal, of the examples of one config, independent of their storage.

    The hashed text is lines of JSON without spaces, non-ASCII characters escaped, each ended by a newline:
    `{"labels":[...]}` once, then for each split in alphabetical order `{"split":"..."}` and its examples in order.
    An example is an object with its columns in order.

    Args:
        splits: examples by split, such as a `DatasetDict` or the result of `load_dataset(..., streaming=True)`.
        label_names: the names of the labels 0, 1, ... (`features["label"].names`); none where there is no label.
    """
    content = hashlib.sha256(_line({"labels": list(label_names)}))
    for split in sorted(splits):
        content.update(_line({"split": split}))
        for row in splits[split]:
            content.update(_line(row))
    return content.hexdigest()


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
