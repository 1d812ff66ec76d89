"""Accuracy and ponder-step summaries as pure numpy functions.

Shapes: N examples, U halting units (examples, sentences or tokens), L the most depth steps.
"""

from collections.abc import Hashable, Sequence

import numpy as np

# a rank correlation of two points is always +1 or -1 and says nothing
MIN_POINTS_FOR_CORRELATION = 3


def accuracy(predictions: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Fraction of equal entries of two `(N,)` sequences."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            f"accuracy needs two equally long, non-empty sequences, got shapes {predictions.shape} and {labels.shape}"
        )
    return float(np.mean(predictions == labels))


def majority_accuracy(labels: Sequence[int] | np.ndarray) -> float:
    """Accuracy of always answering the most frequent of `labels`, `(N,)`: the best constant guess."""
    labels = np.asarray(labels)
    if labels.size == 0:
        raise ValueError("majority_accuracy needs at least one label")
    return float(np.unique(labels, return_counts=True)[1].max() / labels.size)


def accuracy_by_slice(
    predictions: Sequence[int] | np.ndarray,
    labels: Sequence[int] | np.ndarray,
    values: Sequence[Hashable] | np.ndarray,
) -> dict[Hashable, dict[str, float | int]]:
    """For each distinct entry of `values` `(N,)`, in sorted order: `n`, `accuracy`, `majority_baseline`.

    The baseline is the best constant guess *within* the slice, the strictest one.
    """
    predictions, labels, values = np.asarray(predictions), np.asarray(labels), np.asarray(values)
    if values.shape != labels.shape:
        raise ValueError(f"slice values have shape {values.shape}, labels have {labels.shape}")
    rows = {}
    for value in np.unique(values):
        members = values == value
        rows[value.item()] = {
            "n": int(members.sum()),
            "accuracy": accuracy(predictions[members], labels[members]),
            "majority_baseline": majority_accuracy(labels[members]),
        }
    return rows


def step_summary(
    steps: Sequence[float] | np.ndarray, deepest: Sequence[float] | np.ndarray | None = None
) -> dict[str, float]:
    """`mean`, `median`, `p95` and `max` of `steps` `(N,)`, in depth steps.

    `deepest` `(N,)` gives each example's deepest unit where `steps` holds means over units; the maximum is
    then taken over `deepest`, since a mean hides how deep the model really went.
    """
    steps = np.asarray(steps, dtype=np.float64)
    if steps.size == 0:
        raise ValueError("step_summary needs at least one example")
    top = steps if deepest is None else np.asarray(deepest, dtype=np.float64)
    return {
        "mean": float(steps.mean()),
        "median": float(np.median(steps)),
        "p95": float(np.quantile(steps, 0.95)),
        "max": float(top.max()),
    }


def spearman(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float | None:
    """Spearman rank correlation of two `(N,)` sequences; None where it is undefined.

    Undefined means: fewer than three points, or either sequence constant.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"spearman needs equally long sequences, got shapes {x.shape} and {y.shape}")
    if x.size < MIN_POINTS_FOR_CORRELATION or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    from scipy import stats  # importing scipy.stats takes longer than everything else here together

    return float(stats.spearmanr(x, y).statistic)


def step_histogram(steps: Sequence[int] | np.ndarray, max_steps: int) -> np.ndarray:
    """Counts `(L + 1,)` of units `(U,)` that stopped after 0, 1, ..., L = `max_steps` steps."""
    steps = np.asarray(steps)
    if steps.size and (steps.min() < 0 or steps.max() > max_steps):
        raise ValueError(f"ponder steps must lie in 0..{max_steps}, got {steps.min()}..{steps.max()}")
    return np.bincount(steps.astype(np.int64), minlength=max_steps + 1)
