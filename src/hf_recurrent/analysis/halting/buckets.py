"""Difficulty columns -> a few readable buckets, in order."""

from typing import NamedTuple

import numpy as np

MAX_VALUES = 12
MAX_BUCKETS = 8
OTHER = "other"
EN_DASH = "\u2013"


class Buckets(NamedTuple):
    """Bucket `index` (N,) of each example, one distinct label per bucket, whether values are numbers."""

    index: np.ndarray
    labels: list[str]
    numeric: bool


def is_numeric(values: np.ndarray) -> bool:
    """Whether a column can be ordered and correlated: integers and floats, not truth values or strings."""
    return values.dtype.kind in "iuf"


def bucketize(values: np.ndarray) -> Buckets:
    """Group a column `(N,)`: one bucket per value while there are at most 12.

    Beyond that, numbers go into at most 8 buckets of about equal size, labelled with the smallest and largest
    value inside, and other values into the 11 most frequent ones plus "other".
    """
    values = np.asarray(values)
    if is_numeric(values):
        if not np.isfinite(values).all():
            raise ValueError("a difficulty column must hold finite numbers")
        return _numeric_buckets(values)
    return _named_buckets(values.astype(str))


def _numeric_buckets(values: np.ndarray) -> Buckets:
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= MAX_VALUES:
        group = np.arange(len(distinct))
    else:
        # a value goes where the middle of its own rank interval lies: ties never straddle two buckets
        middle = (np.cumsum(counts) - counts / 2) / values.size
        group = np.unique((middle * MAX_BUCKETS).astype(int), return_inverse=True)[1]
    bounds = [(distinct[group == i].min(), distinct[group == i].max()) for i in range(group.max() + 1)]
    return Buckets(group[inverse], _range_labels(bounds), True)


def _range_labels(bounds: list[tuple[float, float]]) -> list[str]:
    """Labels such as "11–20"; floats get as many digits as it takes to tell the buckets apart."""
    for digits in range(3, 18):
        edges = [(_number(low, digits), _number(high, digits)) for low, high in bounds]
        labels = [low if low == high else f"{low}{EN_DASH}{high}" for low, high in edges]
        if len(set(labels)) == len(labels):
            break
    return labels


def _number(value: float, digits: int) -> str:
    if float(value).is_integer():
        return str(int(value))
    # never fewer digits than the whole part has: 1235, not 1.23e+03
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _named_buckets(values: np.ndarray) -> Buckets:
    distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= MAX_VALUES:
        return Buckets(inverse, distinct.tolist(), False)
    kept = np.sort(np.argsort(-counts, kind="stable")[: MAX_VALUES - 1])
    group = np.full(len(distinct), len(kept))
    group[kept] = np.arange(len(kept))
    return Buckets(group[inverse], [*distinct[kept].tolist(), OTHER], False)
