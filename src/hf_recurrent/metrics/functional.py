"""Accuracy, exact match, likelihood and ponder-step summaries as pure numpy functions.

Shapes: N examples, S tokens of a sequence, U halting units (examples, sentences or tokens), L the maximum of depth
steps, T predicted tokens, P bins of positions. Bad input raises a ValueError that names the argument.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np

# a rank correlation of two points is always +1 or -1
MIN_POINTS_FOR_CORRELATION = 3


def accuracy(predictions: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Fraction of equal entries of two `(N,)` sequences of class ids, or of strings (exact match)."""
    predictions, labels = _pair(predictions, labels)
    return float(np.mean(predictions == labels))


def majority_accuracy(labels: Sequence[int] | np.ndarray) -> float:
    """Accuracy of always answering the most frequent of `labels`, `(N,)`: the best constant guess."""
    labels = np.asarray(labels)
    if labels.size == 0:
        raise ValueError("majority_accuracy needs at least one label")
    return float(np.unique(labels, return_counts=True)[1].max() / labels.size)


def hardly_better(accuracy: float, constant: float, number: int) -> bool:
    """Whether an accuracy is within two standard errors of, or below, that of the best constant guess of N labels."""
    return accuracy <= constant + 2 * math.sqrt(constant * (1 - constant) / number)


def r_squared(predictions: Sequence[float] | np.ndarray, labels: Sequence[float] | np.ndarray) -> float:
    """Share of the variance of `(N,)` numbers that predictions explain: 1 if exact, 0 for the mean, below 0 if worse.

    Of labels that are all alike it is 1 if they are predicted exactly, and else 0.
    """
    predictions, labels = (np.asarray(values, dtype=np.float64) for values in (predictions, labels))
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(f"r_squared needs equally long sequences, got shapes {predictions.shape} and {labels.shape}")
    left, whole = np.square(labels - predictions).sum(), np.square(labels - labels.mean()).sum()
    return float(left == 0) if whole == 0 else float(1 - left / whole)


def last_read_accuracy(predictions: Sequence, labels: Sequence) -> float:
    """Fraction of N sequences of token ids, aligned with labels, whose last labelled token is right.

    A token with the label -100 has no label.
    """
    (found, lengths), (wanted, sizes) = _concatenate("predictions", predictions), _concatenate("labels", labels)
    labelled = np.flatnonzero(wanted != -100)
    labels_so_far = np.searchsorted(labelled, np.cumsum(sizes))
    if not (np.array_equal(lengths, sizes) and np.diff(labels_so_far, prepend=0).all()):
        raise ValueError(
            "predictions and labels must have sequences of the same lengths, each with a label other than -100"
        )
    last = labelled[labels_so_far - 1]
    return accuracy(found[last], wanted[last])


def exact_match(predictions: Sequence, references: Sequence) -> float:
    """Fraction of N predictions, texts or sequences of token ids of any length, that are equal to their reference."""
    return accuracy(*_sequence_ids(predictions, references))


def _sequence_ids(predictions: Sequence, references: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """A number `(N,)` for each prediction and each reference, equal where the sequences are equal."""
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            "predictions and references must be equally long and not empty, got "
            f"{len(predictions)} and {len(references)} sequences"
        )
    keys = {
        name: [item if isinstance(item, str) else _token_ids(name, item) for item in sequences]
        for name, sequences in (("predictions", predictions), ("references", references))
    }
    empty = next((place for place, key in enumerate(keys["references"]) if not key), None)
    if empty is not None:
        raise ValueError(f"references[{empty}] is empty: there is nothing to match; leave that example out")
    numbers: dict[Hashable, int] = {}
    found, wanted = ([numbers.setdefault(key, len(numbers)) for key in own] for own in keys.values())
    found, wanted = np.array(found), np.array(wanted)
    if len({isinstance(key, str) for key in numbers}) > 1:
        raise ValueError("predictions and references must all be texts, or all be sequences of token ids")
    return found, wanted


def _token_ids(name: str, sequence: Sequence[int]) -> tuple[float, ...]:
    values = np.asarray(sequence)
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold texts or sequences of token ids, got {sequence!r:.80}")
    return tuple(values.tolist())


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
    """Spearman rank correlation of two `(N,)` sequences; None for fewer than three points or a constant sequence."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape != y.shape:
        raise ValueError(f"spearman needs equally long sequences, got shapes {x.shape} and {y.shape}")
    if x.size < MIN_POINTS_FOR_CORRELATION or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    from scipy import stats  # importing scipy.stats takes longer than everything else here together

    return float(stats.spearmanr(x, y).statistic)


def balanced_spearman(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float | None:
    """Spearman rank correlation of `(N,)` sequences in which every value of `y` counts alike, however often it occurs.

    That of as many examples of each value, in the limit of many: ranks are weighted, and so is their correlation.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if spearman(x, y) is None:
        return None
    _, value, counts = np.unique(y, return_inverse=True, return_counts=True)
    weights = (1.0 / counts)[value]
    weights = weights / weights.sum()
    deviations = []
    for each in (x, y):
        _, place = np.unique(each, return_inverse=True)
        mass = np.bincount(place, weights)
        # the mean rank of equal numbers
        ranks = (mass.cumsum() - mass / 2)[place]
        deviations.append(ranks - weights @ ranks)
    a, b = deviations
    return float(weights @ (a * b) / np.sqrt((weights @ a**2) * (weights @ b**2)))


def token_sums(
    negative_log_likelihoods: Sequence,
    num_tokens: Sequence[int] | np.ndarray | None = None,
    mask: Sequence | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Summed negative log-likelihood `(N,)` in nats, and number of tokens `(N,)`, of each of N sequences.

    Args:
        negative_log_likelihoods: in nats (natural logarithm, the unit of cross-entropy losses): either `(N,)` sums
            over the sequences' tokens, with `num_tokens`, or N sequences of one value per token, as lists of any
            lengths or as an array `(N, S)`.
        num_tokens: `(N,)` numbers of tokens that the sums are over; only for sums.
        mask: 1 (or True) where a token counts, 0 where it does not, such as at padding, shaped as the values per
            token; None: all count. Masked values may be anything, NaN included.
    """
    name = "negative_log_likelihoods"
    if _is_flat(negative_log_likelihoods):
        if num_tokens is None or mask is not None:
            raise ValueError(f"{name} is flat, so it is read as one sum per sequence: give num_tokens, and no mask")
        counts = _whole_numbers("num_tokens", num_tokens, 0)
        return _likelihoods(_numbers(name, negative_log_likelihoods, counts.shape, finite=False)), counts
    if num_tokens is not None:
        raise ValueError(f"{name} has one value per token, so num_tokens is known: leave it out (a mask picks tokens)")
    values, lengths = _concatenate(name, negative_log_likelihoods)
    counted = np.ones(values.shape, dtype=bool)
    if mask is not None:
        marks, mask_lengths = _concatenate("mask", mask)
        if not np.array_equal(lengths, mask_lengths):
            raise ValueError(f"mask must have sequences of the same lengths as {name}: one entry per token")
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
    """Bits per token, byte or character of sequences with `(N,)` `sums` in nats; `name`: of `counts`, for messages."""
    counts = _whole_numbers(name, counts, 0)
    sums = _numbers("sums", sums, counts.shape, finite=False)
    if ((counts == 0) & (sums > 0)).any():
        raise ValueError(f"{name}[{int(((counts == 0) & (sums > 0)).argmax())}] is 0, but that sequence has a loss")
    if counts.sum() == 0:
        raise ValueError(f"{name} adds up to 0: there is nothing to take the mean of")
    return float(sums.sum() / counts.sum() / math.log(2))


def word_perplexity(bits_per_token: float, num_tokens: int, num_words: int) -> float:
    """Perplexity per word of a text of `num_words` words in `num_tokens` tokens: 2^(bits_per_token * tokens / words).

    The unit in which Rae et al. (Compressive Transformers, 2019) and Hutchins et al. (Block-Recurrent Transformers,
    section 4.6) compare models with different vocabularies on PG19, whose test split has 6,966,499 words: in
    10,523,460 tokens, 3.39 bits per token are a perplexity of 34.80 per word. All tokens count, also those that are
    not predicted, such as the first of each segment.
    """
    arguments = {"bits_per_token": bits_per_token, "num_tokens": num_tokens, "num_words": num_words}
    for name, value in arguments.items():
        minimum = 0 if name == "bits_per_token" else 1
        # NaN fails the comparison too
        if isinstance(value, (bool, str)) or not value >= minimum:
            raise ValueError(f"{name}={value!r}: expected a number of at least {minimum}")
    with np.errstate(over="ignore"):
        return float(np.exp2(np.float64(bits_per_token) * (num_tokens / num_words)))


def position_edges(longest: int, first: int = 1) -> np.ndarray:
    """Edges `(P + 1,)` of bins of positions up to `longest`: 0, first, 2 first, 4 first, ...; bins are [edge, next).

    Few documents reach late positions, and the gain from context grows with its logarithm: bins of equal width would
    hide the beginning and be noise at the end.
    """
    for name, value, minimum in (("longest", longest, 0), ("first", first, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
            raise ValueError(f"{name}={value!r}: expected an integer >= {minimum}")
    doublings = int(longest // first).bit_length()
    return np.array([0, *(first * 2**i for i in range(doublings + 1))], dtype=np.int64)


def position_sums(
    negative_log_likelihoods: Sequence[float] | np.ndarray,
    positions: Sequence[int] | np.ndarray,
    edges: Sequence[int] | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Nats `(P,)` and tokens `(P,)` in each bin of positions; those of several calls with the same edges add up.

    Args:
        negative_log_likelihoods: `(T,)` in nats.
        positions: `(T,)` numbers of tokens of its document before each token.
        edges: `(P + 1,)` rising whole numbers that all positions lie between, such as `position_edges`.
    """
    nats, positions = np.asarray(negative_log_likelihoods, dtype=np.float64), np.asarray(positions)
    if nats.ndim != 1 or positions.shape != nats.shape:
        raise ValueError(
            f"positions has shape {positions.shape}, negative_log_likelihoods {nats.shape}: give one number for each "
            "token"
        )
    _likelihoods(nats)
    edges = _edges(edges)
    outside = (positions < edges[0]) | (positions >= edges[-1])
    if outside.any():
        raise ValueError(f"positions holds {positions[outside][0]}, but edges go from {edges[0]} to below {edges[-1]}")
    bins = np.searchsorted(edges, positions, side="right") - 1
    size = len(edges) - 1
    return np.bincount(bins, weights=nats, minlength=size), np.bincount(bins, minlength=size)


def position_rows(sums: np.ndarray, counts: np.ndarray, edges: np.ndarray) -> list[dict[str, float | int]]:
    """A table row for each bin that has tokens: `first` and `last` position, number `n` of tokens, `bits_per_token`.

    Args:
        sums: `(P,)` in nats.
        counts: `(P,)` tokens.
        edges: `(P + 1,)` as for `position_sums`.
    """
    edges, sums, counts = _edges(edges), np.asarray(sums, dtype=np.float64), np.asarray(counts)
    if sums.shape != (len(edges) - 1,) or counts.shape != sums.shape:
        raise ValueError(
            f"sums and counts have shapes {sums.shape} and {counts.shape}: expected one number for each of the "
            f"{len(edges) - 1} bins"
        )
    return [
        {
            "first": int(edges[place]),
            "last": int(edges[place + 1]) - 1,
            "n": int(counts[place]),
            "bits_per_token": float(sums[place] / counts[place] / math.log(2)),
        }
        for place in np.flatnonzero(counts)
    ]


def _edges(edges: Sequence[int] | np.ndarray) -> np.ndarray:
    edges = np.asarray(edges)
    if edges.ndim != 1 or len(edges) < 2 or edges.dtype.kind not in "iu" or not (np.diff(edges) > 0).all():
        raise ValueError(f"edges={edges.tolist()}: expected two or more rising whole numbers")
    return edges


def _likelihoods(values: np.ndarray) -> np.ndarray:
    # NaN fails the comparison too
    if not (values >= 0).all():
        raise ValueError(
            f"negative_log_likelihoods must be at least 0, got {values[~(values >= 0)][0]}: change the sign of "
            "log-likelihoods, and mask what is padding"
        )
    return values


def _pair(predictions: Sequence | np.ndarray, labels: Sequence | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            "accuracy needs equally long, non-empty predictions and labels, "
            f"got shapes {predictions.shape} and {labels.shape}"
        )
    return predictions, labels


def _is_flat(column: Sequence) -> bool:
    """Whether a column holds one number per example, rather than a sequence of them."""
    return all(np.ndim(item) == 0 for item in column)


def _concatenate(name: str, sequences: Sequence) -> tuple[np.ndarray, np.ndarray]:
    """Entries of N sequences, one sequence after the other, and the sequences' lengths `(N,)`."""
    arrays = [np.asarray(sequence, dtype=np.float64) for sequence in sequences]
    if not arrays or any(array.ndim != 1 for array in arrays):
        raise ValueError(f"{name} must be N sequences of numbers (N at least 1), or N numbers; a mixture is neither")
    return np.concatenate(arrays), np.array([len(array) for array in arrays])


def _numbers(name: str, values: Sequence[float] | np.ndarray, shape: tuple, finite: bool = True) -> np.ndarray:
    """A column as floats `(N,)`."""
    column = np.asarray(values, dtype=np.float64)
    if column.shape != shape:
        raise ValueError(f"{name} has shape {column.shape}, expected {shape}: one number per example")
    if finite and not np.isfinite(column).all():
        raise ValueError(f"{name} must be finite numbers, got {column[~np.isfinite(column)][0]}")
    return column


def _whole_numbers(name: str, values: Sequence[int] | np.ndarray, minimum: int) -> np.ndarray:
    """A column as integers of at least `minimum`; 2.0 is one, 2.5 is not."""
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} has shape {column.shape}, expected one number per example")
    wrong = ~((column >= minimum) & (column == np.floor(column)) & np.isfinite(column))
    if wrong.any():
        raise ValueError(f"{name} must be whole numbers of at least {minimum}, got {column[wrong][0]:g}")
    return column.astype(np.int64)
