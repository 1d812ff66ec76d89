"""The rows of modules that read or make data sets, without the cache of `datasets`."""

from long_document_files import write_files
from sequence_files import write_rows

from hf_recurrent.benchmarks.byte_text import encode_text


def planned_rows(benchmark, params, *data_dir):
    """The rows of every split."""
    plan = (benchmark.plan_files if data_dir else benchmark.plan)("a config", params, *data_dir)
    return {split: [row for shard in shards for row in shard.examples()] for split, shards in plan.items()}


def contents(rows, column="text"):
    """The bytes of each text."""
    return [encode_text(row[column]) for row in rows]


def write_tables(folder, **splits):
    """`plain_text/<split>-<number>-of-<count>.parquet`; a list of rows for each table."""
    for split, tables in splits.items():
        for number, rows in enumerate(tables):
            write_rows(folder / f"plain_text/{split}-{number:05d}-of-{len(tables):05d}.parquet", rows)
    return folder


def cached_rows(cache):
    """The files with rows in a cache of `datasets`."""
    return list(cache.rglob("*.arrow"))


__all__ = ["cached_rows", "contents", "planned_rows", "write_files", "write_tables"]
