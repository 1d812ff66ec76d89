"""Accuracy, exact match, likelihood and ponder-step summaries as pure numpy functions.

Shapes: N examples, S tokens of a sequence, U halting units (examples, sentences or tokens), L the maximum of depth
steps, T predicted tokens, P bins of positions.
"""

import math
from collections.abc import Sequence

import numpy as np

# a rank correlation of two points is always +1 or -1
MIN_POINTS_FOR_CORRELATION = 3


def accuracy(predictions: Sequence[int] | np.ndarray, labels: Sequence[int] | np.ndarray) -> float:
    """Fraction of equal entries of two `(N,)` sequences of class ids, or of strings (exact match)."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            "accuracy needs equally long, non-empty predictions and labels, "
            f"got shapes {predictions.shape} and {labels.shape}"
        )
    return float(np.mean(predictions == labels))


def majority_accuracy(labels: Sequence[int] | np.ndarray) -> float:
    """Accuracy of always answering the most frequent of `labels`, `(N,)`: the best constant guess."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


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
    right = []
    for found, wanted in zip(map(np.asarray, predictions), map(np.asarray, labels), strict=True):
        labelled = np.flatnonzero(wanted != -100)
        if found.shape != wanted.shape or not len(labelled):
            raise ValueError(
                f"sequence {len(right)} has {found.size} predictions and {wanted.size} labels: pass a label for each "
                "prediction, and one other than -100"
            )
        right.append(found[labelled[-1]] == wanted[labelled[-1]])
    return float(np.mean(right))


def exact_match(predictions: Sequence, references: Sequence) -> float:
    """Fraction of N predictions, texts or sequences of token ids of any length, that are equal to their reference."""
    return float(np.mean([list(found) == list(wanted) for found, wanted in zip(predictions, references, strict=True)]))


def step_summary(
    steps: Sequence[float] | np.ndarray, deepest: Sequence[float] | np.ndarray | None = None
) -> dict[str, float]:
    """`mean`, `median`, `p95` and `max` of `steps` `(N,)`, in depth steps.

    `deepest` `(N,)` gives each example's deepest unit where `steps` holds means over units; the maximum is
    then taken over `deepest`, since a mean hides how deep the model really went.
    """
    steps = np.asarray(steps, dtype=np.float64)
    return {
        "mean": float(steps.mean()),
        "median": float(np.median(steps)),
        "p95": float(np.quantile(steps, 0.95)),
        "max": float(np.max(steps if deepest is None else deepest)),
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


def bits_per_token(negative_log_likelihoods: Sequence, mask: Sequence | None = None) -> float:
    """Mean negative log-likelihood of a token, in bits: all nats over all tokens over ln 2.

    The mean is over tokens, so long sequences weigh more. Perplexity is 2 to this power.

    Args:
        negative_log_likelihoods: N sequences of one value per token, in nats (natural logarithm, the unit of
            cross-entropy losses), as lists of any lengths or as an array `(N, S)`.
        mask: 1 (or True) where a token counts, 0 where it does not, such as at padding, shaped as the values; None: all
            count. Masked values may be anything, NaN included.
    """
    values = [np.asarray(sequence, dtype=np.float64) for sequence in negative_log_likelihoods]
    if mask is not None:
        values = [sequence[np.asarray(kept, dtype=bool)] for sequence, kept in zip(values, mask, strict=True)]
    nats = _likelihoods(np.concatenate(values))
    if not len(nats):
        raise ValueError("negative_log_likelihoods holds no token that counts: there is nothing to take the mean of")
    return float(nats.mean() / math.log(2))


def word_perplexity(bits_per_token: float, num_tokens: int, num_words: int) -> float:
    """Perplexity per word of a text of `num_words` words in `num_tokens` tokens: 2^(bits_per_token * tokens / words).

    The unit in which Rae et al. (Compressive Transformers, 2019) and Hutchins et al. (Block-Recurrent Transformers,
    section 4.6) compare models with different vocabularies on PG19, whose test split has 6,966,499 words: in
    10,523,460 tokens, 3.39 bits per token are a perplexity of 34.80 per word. All tokens count, also those that are
    not predicted, such as the first of each segment.
    """
    with np.errstate(over="ignore"):
        return float(np.exp2(np.float64(bits_per_token) * (num_tokens / num_words)))


def _likelihoods(values: np.ndarray) -> np.ndarray:
    # NaN fails the comparison too
    if not (values >= 0).all():
        raise ValueError(
            f"negative_log_likelihoods must be at least 0, got {values[~(values >= 0)][0]}: change the sign of "
            "log-likelihoods, and mask what is padding"
        )
    return values
