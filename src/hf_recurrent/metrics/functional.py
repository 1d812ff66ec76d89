"""Accuracy, likelihood and ponder-step summaries as pure numpy functions.

Shapes: N examples, U halting units (examples, sentences or tokens), S tokens of a row, L the most depth steps.
Bad input raises a ValueError that names the argument.
"""

import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

# a rank correlation of two points is always +1 or -1 and says nothing
MIN_POINTS_FOR_CORRELATION = 3


def accuracy(predictions: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Fraction of equal entries of two `(N,)` sequences of class ids, or of strings (exact match)."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            f"accuracy needs two equally long, non-empty sequences, got shapes {predictions.shape} and {labels.shape}"
        )
    return float(np.mean(predictions == labels))


def last_read_accuracy(predictions: Sequence, labels: Sequence) -> float:
    """Fraction of N rows of token ids, aligned with labels, whose last labelled token is right; label -100: none."""
    (found, lengths), (wanted, sizes) = _join_rows("predictions", predictions), _join_rows("labels", labels)
    labelled = np.flatnonzero(wanted != -100)
    seen = np.searchsorted(labelled, np.cumsum(sizes))
    if not (np.array_equal(lengths, sizes) and np.diff(seen, prepend=0).all()):
        raise ValueError("predictions and labels must have rows of the same lengths, each with a label other than -100")
    return accuracy(found[labelled[seen - 1]], wanted[labelled[seen - 1]])


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
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            "accuracy_by_slice needs equally long, non-empty predictions and labels, "
            f"got shapes {predictions.shape} and {labels.shape}"
        )
    return {
        value: {
            "n": int(members.sum()),
            "accuracy": accuracy(predictions[members], labels[members]),
            "majority_baseline": majority_accuracy(labels[members]),
        }
        for value, members in _slices(values, len(labels))
    }


def _slices(values: Sequence[Hashable] | np.ndarray, examples: int) -> Iterator[tuple[Hashable, np.ndarray]]:
    """Each distinct entry of a column `(N,)`, in sorted order, with a bool mask `(N,)` of its members."""
    values = np.asarray(values)
    if values.shape != (examples,):
        raise ValueError(f"slices have shape {values.shape}, but there are {examples} examples: give one value each")
    if values.dtype.kind == "O":
        raise ValueError("slices must be all numbers or all strings: name what is missing, for example 'unknown'")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError("slices must not hold NaN: leave those examples out, or group them under a number")
    for value in np.unique(values):
        yield value.item(), values == value


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
        raise ValueError(
            f"ponder steps must lie in 0..{max_steps} (max_steps, the depth limit of the run), "
            f"got {steps.min()}..{steps.max()}"
        )
    return np.bincount(steps.astype(np.int64), minlength=max_steps + 1)


def halting_statistics(
    steps: Sequence,
    max_steps: int | None = None,
    *,
    difficulty: Sequence[float] | np.ndarray | None = None,
    ponder_cost: Sequence[float] | np.ndarray | None = None,
    slices: Sequence[Hashable] | np.ndarray | None = None,
) -> dict:
    """How deep a model went, from its raw ponder steps; the numbers are those of `halting_stats.json`.

    Args:
        steps: executed steps of each example's units: `(N,)` for one unit each, or N rows of any length, as
            lists or as an array `(N, S)`. In rows, -1 is padding and does not count.
        max_steps: L, the depth limit of the run, in steps; None: unknown.
        difficulty: `(N,)` numbers that steps are correlated with.
        ponder_cost: `(N,)` expected depth of each example, in steps.
        slices: `(N,)` values to group the examples by.

    Returns:
        `n`; `steps` as `step_summary` of each example's mean over its units, with the maximum over units;
        `ponder_cost`, its mean, or None; `forced_halt_rate`, the mean over examples of the fraction of units that
        ran all L steps, or None where L is unknown; `steps_histogram`, L + 1 counts of units (up to the deepest
        unit where L is unknown); `spearman` of the examples' steps with `difficulty`, or None; `slices`, for each
        distinct value its `n`, `steps` and `forced_halt_rate`.
    """
    units, lengths = _halting_units(steps)
    if max_steps is not None:
        max_steps = int(_whole_numbers("max_steps", [max_steps], 1)[0])
    histogram = step_histogram(units, int(units.max()) if max_steps is None else max_steps)
    starts = np.cumsum(lengths) - lengths
    means = np.add.reduceat(units, starts) / lengths
    deepest = np.maximum.reduceat(units, starts)
    forced = None if max_steps is None else np.add.reduceat((units == max_steps).astype(float), starts) / lengths
    return {
        "n": len(means),
        "steps": step_summary(means, deepest),
        "ponder_cost": None if ponder_cost is None else float(_numbers("ponder_cost", ponder_cost, means.shape).mean()),
        "forced_halt_rate": None if forced is None else float(forced.mean()),
        "steps_histogram": histogram.tolist(),
        "spearman": None if difficulty is None else spearman(means, _numbers("difficulty", difficulty, means.shape)),
        "slices": {
            value: {
                "n": int(members.sum()),
                "steps": step_summary(means[members], deepest[members]),
                "forced_halt_rate": None if forced is None else float(forced[members].mean()),
            }
            for value, members in (() if slices is None else _slices(slices, len(means)))
        },
    }


def _halting_units(steps: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Steps `(U,)` of all units, example after example, and how many units `(N,)` each example has."""
    if _is_flat(steps):
        units = _whole_numbers("steps", steps, 0)
        lengths = np.ones(len(units), dtype=np.int64)
    else:
        values, sizes = _join_rows("steps", steps)
        units = _whole_numbers("steps", values, -1)
        example = np.repeat(np.arange(len(sizes)), sizes)[units >= 0]
        units, lengths = units[units >= 0], np.bincount(example, minlength=len(sizes))
    if len(lengths) == 0:
        raise ValueError("steps must hold at least one example")
    if not lengths.all():
        raise ValueError(f"steps[{int(lengths.argmin())}] has no halting unit: it is empty or all padding (-1)")
    return units, lengths


def token_sums(
    negative_log_likelihoods: Sequence,
    num_tokens: Sequence[int] | np.ndarray | None = None,
    mask: Sequence | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Summed negative log-likelihood `(N,)` in nats, and number of tokens `(N,)`, of each of N sequences.

    Args:
        negative_log_likelihoods: in nats (natural logarithm, what cross-entropy losses are in): either `(N,)` sums
            over the sequences' tokens, with `num_tokens`, or N rows of one value per token, as lists of any
            lengths or as an array `(N, S)`.
        num_tokens: `(N,)` how many tokens each sum is over; only for sums.
        mask: rows as of the values per token: 1 (or True) where a token counts, 0 where it does not, such as
            at padding; None: all count. What is masked may be anything, NaN included.
    """
    name = "negative_log_likelihoods"
    if _is_flat(negative_log_likelihoods):
        if num_tokens is None or mask is not None:
            raise ValueError(f"{name} is flat, so it is read as one sum per sequence: give num_tokens, and no mask")
        counts = _whole_numbers("num_tokens", num_tokens, 0)
        return _likelihoods(_numbers(name, negative_log_likelihoods, counts.shape, finite=False)), counts
    if num_tokens is not None:
        raise ValueError(f"{name} has one value per token, so num_tokens is known: leave it out (a mask picks tokens)")
    values, lengths = _join_rows(name, negative_log_likelihoods)
    counted = np.ones(values.shape, dtype=bool)
    if mask is not None:
        marks, mask_lengths = _join_rows("mask", mask)
        if not np.array_equal(lengths, mask_lengths):
            raise ValueError(f"mask must have rows of the same lengths as {name}: one entry per token")
        if not np.isin(marks, (0, 1)).all():
            raise ValueError("mask must hold only 0 and 1: 1 where a token counts")
        counted = marks == 1
    sequence = np.repeat(np.arange(len(lengths)), lengths)[counted]
    sums = np.bincount(sequence, weights=_likelihoods(values[counted]), minlength=len(lengths))
    return sums, np.bincount(sequence, minlength=len(lengths))


def bits_per_token(
    negative_log_likelihoods: Sequence,
    num_tokens: Sequence[int] | np.ndarray | None = None,
    mask: Sequence | None = None,
) -> float:
    """Mean negative log-likelihood of a token, in bits: all nats over all tokens over ln 2; arguments: `token_sums`.

    The mean is over tokens, so long sequences weigh more. Perplexity is 2 to this power.
    """
    sums, counts = token_sums(negative_log_likelihoods, num_tokens, mask)
    return bits_per_unit(sums, counts, "num_tokens")


def bits_per_unit(sums: Sequence[float] | np.ndarray, counts: Sequence[int] | np.ndarray, name: str) -> float:
    """Bits per token, byte or character of sequences with `(N,)` `sums` in nats; `name` says what `counts` are."""
    counts = _whole_numbers(name, counts, 0)
    sums = _numbers("sums", sums, counts.shape, finite=False)
    if ((counts == 0) & (sums > 0)).any():
        raise ValueError(f"{name}[{int(((counts == 0) & (sums > 0)).argmax())}] is 0, but that sequence has a loss")
    if counts.sum() == 0:
        raise ValueError(f"{name} adds up to 0: there is nothing to take the mean of")
    return float(sums.sum() / counts.sum() / math.log(2))


def _likelihoods(values: np.ndarray) -> np.ndarray:
    # NaN fails the comparison too
    if not (values >= 0).all():
        raise ValueError(
            f"negative_log_likelihoods must be at least 0, got {values[~(values >= 0)][0]}: change the sign of "
            "log-likelihoods, and mask what is padding"
        )
    return values


def _is_flat(rows: Sequence) -> bool:
    """Whether a column holds one number per example, rather than a row of them."""
    return all(np.ndim(row) == 0 for row in rows)


def _join_rows(name: str, rows: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Entries of N rows, one row after the other, and the rows' lengths `(N,)`."""
    arrays = [np.asarray(row, dtype=np.float64) for row in rows]
    if not arrays or any(array.ndim != 1 for array in arrays):
        raise ValueError(f"{name} must be N rows of numbers (N at least 1), or N numbers; a mixture is neither")
    return np.concatenate(arrays), np.array([len(array) for array in arrays])


def _numbers(name: str, values: Sequence[float] | np.ndarray, shape: tuple, finite: bool = True) -> np.ndarray:
    """A column as floats `(N,)`."""
    column = np.asarray(values, dtype=np.float64)
    if column.shape != shape:
        raise ValueError(f"{name} has shape {column.shape}, expected {shape}: one number per example")
    if finite and not np.isfinite(column).all():
        raise ValueError(f"{name} must be finite numbers, got {column[~np.isfinite(column)][0]}")
    return column


def _whole_numbers(name: str, values: Sequence[int] | np.ndarray, least: int) -> np.ndarray:
    """A column as integers of at least `least`; 2.0 is one, 2.5 is not."""
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} has shape {column.shape}, expected one number per example")
    wrong = ~((column >= least) & (column == np.floor(column)) & np.isfinite(column))
    if wrong.any():
        raise ValueError(f"{name} must be whole numbers of at least {least}, got {column[wrong][0]:g}")
    return column.astype(np.int64)
