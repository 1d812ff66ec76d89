"""What a card says about the rows of a split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..info import BenchmarkInfo

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True)
class ColumnRange:
    """The extremes and the mean of a slice column."""

    min: int
    mean: float
    max: int


@dataclass(frozen=True)
class SplitFacts:
    """A split in numbers: its rows, the bytes of its Parquet files, its slice columns, and how often each label is
    there (`labels`, by name; empty where there are none)."""

    name: str
    rows: int
    file_bytes: int
    columns: dict[str, ColumnRange]
    labels: dict[str, int]

    @property
    def label_shares(self) -> dict[str, float]:
        return {name: count / self.rows for name, count in self.labels.items()}


def split_facts(info: BenchmarkInfo, split: str, dataset: "datasets.Dataset", paths: Sequence[Path]) -> SplitFacts:
    """The facts about the split that was written to `paths`."""
    import numpy as np

    columns = {}
    arrow = dataset.with_format("numpy")
    for name in info.slice_columns:
        values = np.asarray(arrow[name][:])
        columns[name] = ColumnRange(int(values.min()), float(values.mean(dtype=np.float64)), int(values.max()))
    counts = np.zeros(0, dtype=np.int64)
    if info.label_names:
        counts = np.bincount(np.asarray(arrow["label"][:]), minlength=len(info.label_names))
    return SplitFacts(
        name=split,
        rows=dataset.num_rows,
        file_bytes=sum(path.stat().st_size for path in paths),
        columns=columns,
        labels=dict(zip(info.label_names, counts.tolist(), strict=True)),
    )


def typical_row(info: BenchmarkInfo, dataset: "datasets.Dataset", first: int = 200) -> dict[str, Any]:
    """An easy but not trivial row: of the `first` ones, that with a quarter of the texts shorter than its own."""
    rows = [dataset[i] for i in range(min(first, dataset.num_rows))]
    rows.sort(key=lambda row: sum(len(row[column]) for column in info.text_columns))
    return rows[len(rows) // 4]
