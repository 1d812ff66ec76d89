"""Shared by all statistics: buckets of difficulty columns, counts, and the files that tables are kept in."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..files import write_json
from ..metrics.functional import spearman

EXPERT_FILE = "expert_stats.json"
SWEEP_FILE = "halting_sweep.json"
CALIBRATION_FILE = "calibration.json"
INSIDE_FILE = "inside.json"
MAX_VALUES = 12
MAX_BUCKETS = 8
OTHER = "other"
EN_DASH = "\u2013"


def write_tables(folder: str | os.PathLike, file_name: str, tables: Mapping[str, Any], **more: Any) -> Path:
    """Write `{"splits": tables, **more}`, tables by split name, to a JSON file in `folder` in one step."""
    return write_json(Path(folder) / file_name, {"splits": tables, **more})


def slice_frame(slices: Mapping[str, Sequence] | None, num_examples: int) -> pd.DataFrame:
    """Slice columns as a frame with a row for each example.

    Raises:
        ValueError: a column has not one value for each example.
    """
    columns = {name: np.asarray(values) for name, values in (slices or {}).items()}
    for name, values in columns.items():
        if values.shape != (num_examples,):
            raise ValueError(f"slice column '{name}' has shape {values.shape}, but there are {num_examples} examples")
    # frames would take None in a column of strings for NaN
    kinds = {name: values.dtype if values.dtype.kind in "biuf" else object for name, values in columns.items()}
    return pd.DataFrame({name: pd.Series(values, dtype=kinds[name]) for name, values in columns.items()})


def slice_table(
    values: pd.Series, row: Callable[[pd.Index], Mapping[str, Any] | None], steps: pd.Series | None
) -> dict[str, Any]:
    """Statistics by the value of a column.

    `numeric`; `spearman`, the rank correlation of the examples' steps with the column (None where undefined or not
    numeric); and `rows`, in order of the values: each with its bucket's label as `value`, the numeric bounds `low` and
    `high` (None of names), and what `row` says of the examples of the bucket.

    Args:
        values: one for each example, in any index.
        row: function of the examples' index; a bucket of which it says nothing has no row.
        steps: of each example; None for a fixed depth.
    """
    numeric, rows = is_numeric(values), []
    for label, members in values.groupby(bucketize(values), observed=True):
        bounds = {name: getattr(members, how)() if numeric else None for name, how in (("low", "min"), ("high", "max"))}
        if found := row(members.index):
            rows.append({"value": label, **bounds, **found})
    return {
        "numeric": numeric,
        "spearman": spearman(steps, values) if numeric and steps is not None else None,
        "rows": rows,
    }


def is_numeric(values: pd.Series | np.ndarray) -> bool:
    """Whether a column can be ordered and correlated: integers and floats, not truth values or strings."""
    return values.dtype.kind in "iuf"


def bucketize(values: pd.Series | np.ndarray) -> pd.Categorical:
    """A column `(N,)` as readable buckets in order: one bucket per value while there are at most 12.

    Beyond that, numbers go into at most 8 buckets of about equal size, labelled with the smallest and largest
    value inside, and other values into the 11 most frequent ones plus "other".

    Raises:
        ValueError: a numeric column holds NaN or infinity.
    """
    values = np.asarray(values)
    if not is_numeric(values):
        return _named_buckets(pd.Series(values.astype(str)))
    values = pd.Series(values)
    if not np.isfinite(values).all():
        raise ValueError("a difficulty column must hold finite numbers")
    ranks = values.rank(method="dense")
    if ranks.max() > MAX_VALUES:
        # a value goes where the middle of its own rank interval lies: ties never straddle two buckets
        ranks = ((values.rank() - 0.5) / len(values) * MAX_BUCKETS).astype(int)
    bounds = values.groupby(ranks).agg(["min", "max"])
    return pd.Categorical.from_codes(pd.factorize(ranks, sort=True)[0], _range_labels(bounds.to_numpy().tolist()))


def _range_labels(bounds: list[tuple[float, float]]) -> list[str]:
    """Labels such as "11–20"; floats get as many digits as it takes to tell the buckets apart."""
    for digits in range(3, 18):
        edges = [(_format_number(low, digits), _format_number(high, digits)) for low, high in bounds]
        labels = [low if low == high else f"{low}{EN_DASH}{high}" for low, high in edges]
        if len(set(labels)) == len(labels):
            break
    return labels


def is_ordered(labels: Iterable[str]) -> bool:
    """Whether labels of buckets are those of numbers."""
    return not any(math.isnan(lower_end(label)) for label in labels)


def lower_end(label: str) -> float:
    """The number that a bucket's label begins with, as in "11–20"; NaN of a name."""
    try:
        return float(label.split(EN_DASH)[0])
    except ValueError:
        return math.nan


def _format_number(value: float, digits: int) -> str:
    if float(value).is_integer():
        return str(int(value))
    # never fewer digits than the whole part has: 1235, not 1.23e+03
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _named_buckets(values: pd.Series) -> pd.Categorical:
    counts = values.value_counts().sort_index()
    if len(counts) <= MAX_VALUES:
        return pd.Categorical(values, counts.index)
    frequent = counts.sort_values(ascending=False, kind="stable").index[: MAX_VALUES - 1]
    return pd.Categorical(values.where(values.isin(frequent), OTHER), [*sorted(set(frequent) - {OTHER}), OTHER])


def file_name(*words: str | None) -> str:
    """A name for every file system, of the `words` that are not empty."""
    return "_".join(re.sub(r"[^\w-]+", "_", word) for word in words if word)


def joint_counts(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Number of times that each (row, column) of a table of `shape` occurs in two arrays of indices `(n,)`."""
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


def join_batches(batches: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns of batches, each `(B, ...)`, as columns of all examples, `(N, ...)`."""
    batches = list(batches)
    return {name: np.concatenate([columns[name] for columns in batches]) for name in batches[0]}
