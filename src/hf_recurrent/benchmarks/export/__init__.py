"""Benchmarks as dataset repositories: Parquet shards, a dataset card and `eval.yaml`."""

from .api import export_benchmark
from .check import DatasetFacts, check_dataset_folder
from .parquet import rows_digest

__all__ = ["DatasetFacts", "check_dataset_folder", "export_benchmark", "rows_digest"]
