"""Accuracy, exact match, scores of labels, likelihood and ponder-step summaries as pure functions of arrays.

Shapes: B examples of a batch, N of all, S tokens of a sequence, C classes. `tensors` has what needs torch.
"""

import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

OUTSIDE = "O"
# a rank correlation of two points is always +1 or -1
MIN_POINTS_FOR_CORRELATION = 3


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Fraction of equal entries of two `(N,)` sequences of class ids, or of strings (exact match)."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or labels.size == 0:
        raise ValueError(
            "accuracy needs equally long, non-empty predictions and labels, "
            f"got shapes {predictions.shape} and {labels.shape}"
        )
    return float(np.mean(predictions == labels))


def majority_accuracy(labels: ArrayLike) -> float:
    """Accuracy of always answering the most frequent of `labels`, `(N,)`: the best constant guess."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def hardly_better(accuracy: float, constant: float, number: int) -> bool:
    """Whether an accuracy is within two standard errors of, or below, that of the best constant guess of N labels."""
    return accuracy <= constant + 2 * math.sqrt(constant * (1 - constant) / number)


def r_squared(predictions: ArrayLike, labels: ArrayLike) -> float:
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


def step_summary(steps: ArrayLike, deepest: ArrayLike | None = None) -> dict[str, float]:
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


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Spearman rank correlation of two `(N,)` sequences; None for fewer than three points or a constant sequence."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.size < MIN_POINTS_FOR_CORRELATION or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    from scipy import stats  # importing scipy.stats takes longer than everything else here together

    return float(stats.spearmanr(x, y).statistic)


def balanced_spearman(x: ArrayLike, y: ArrayLike) -> float | None:
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
    nats = np.concatenate(values)
    if not len(nats):
        raise ValueError("negative_log_likelihoods holds no token that counts: there is nothing to take the mean of")
    # NaN fails the comparison too
    wrong = nats[~(nats >= 0)]
    if len(wrong):
        raise ValueError(
            f"negative_log_likelihoods must be at least 0, got {wrong[0]}: change the sign of log-likelihoods, and "
            "mask what is padding"
        )
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


def class_scores(predictions: np.ndarray, labels: np.ndarray, num_classes: int) -> dict[str, float]:
    """`accuracy`, `macro_f1` and `matthews_correlation` of class ids `(N,)`; of two classes `f1`, that of class 1.

    F1 of a class is 2 TP / (2 TP + FP + FN), and 0 if it occurs nowhere. The correlation is that of Gorodkin (2004), 0
    where labels or predictions are constant.
    """
    predicted, labelled, both = (
        np.bincount(ids, minlength=num_classes).astype(np.float64)
        for ids in (predictions, labels, labels[predictions == labels])
    )
    f1 = 2 * both / np.maximum(predicted + labelled, 1)
    scores = {"accuracy": accuracy(predictions, labels), "macro_f1": float(f1.mean())}
    if num_classes == 2:
        scores["f1"] = float(f1[1])
    total = len(labels)
    covariance = both.sum() * total - labelled @ predicted
    spread = (total**2 - labelled @ labelled) * (total**2 - predicted @ predicted)
    return scores | {"matthews_correlation": float(covariance / np.sqrt(spread)) if spread > 0 else 0.0}


def set_scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy` (all classes right), and `f1` over all decisions and `macro_f1`, of sets of classes (N, C) bool."""
    both, either = (predictions & labels).sum(0), predictions.sum(0) + labels.sum(0)
    return {
        "accuracy": float((predictions == labels).all(1).mean()),
        "f1": float(2 * both.sum() / max(either.sum(), 1)),
        "macro_f1": float((2 * both / np.maximum(either, 1)).mean()),
    }


def number_scores(predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`r_squared`, `mse`, and correlations `pearson` and `spearman` of numbers `(N,)`; 0 where one is constant."""
    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    constant = np.ptp(predictions) == 0 or np.ptp(labels) == 0
    return {
        "r_squared": r_squared(predictions, labels),
        "mse": float(np.square(predictions - labels).mean()),
        "pearson": 0.0 if constant else float(np.corrcoef(predictions, labels)[0, 1]),
        "spearman": spearman(predictions, labels) or 0.0,
    }


# ---- entities: spans of words whose labels are in IOB form, B-PER begins a person, I-PER goes on, O is none


def is_iob(names: Sequence[str]) -> bool:
    """Whether labels tell where entities begin and go on."""
    return any(name.startswith("B-") for name in names) and all(
        name == OUTSIDE or name.startswith(("B-", "I-")) for name in names
    )


def scores_entities(names: Sequence[str]) -> bool:
    """Whether labels are of entities, and the package that scores these is installed."""
    return is_iob(names) and importlib.util.find_spec("seqeval") is not None


def entity_scores(predicted: Sequence[Sequence[str]], labelled: Sequence[Sequence[str]]) -> dict[str, float]:
    """`entity_precision`, `entity_recall` and `entity_f1` of the labels of N texts, as the CoNLL evaluation has them.

    An entity is right if it has the words and the kind of a labelled one; a score without entities is 0.

    Raises:
        ImportError: the package seqeval is not installed.
    """
    from seqeval.metrics import f1_score, precision_score, recall_score

    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    return {
        f"entity_{name}": float(score(list(labelled), list(predicted), zero_division=0))
        for name, score in scores.items()
    }


# values by their names, such as the fields of an example
Row = dict[str, Any]
Scores = dict[str, float]
# the terms that training adds to the task's loss, and their sum
AUXILIARY_LOSSES = ("aux_loss", "ponder_loss", "router_loss")
# columns of `target_statistics`; the last ones are there for stacks that halt alone
TARGET_COLUMNS = ("tokens", "nll", "right_tokens", "right")
HALTING_COLUMNS = ("ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost")


def with_ponder_metrics(prediction: Any, scores: Callable[..., Scores]) -> Scores:
    """Scores of a model's first output and the labels, with `ponder_steps` and `ponder_cost` of a model that halts.

    Steps are means over examples. `Trainer` pads ragged (B, S) steps with -100 and the models mark padding with -1:
    negative steps do not count.
    """
    outputs = prediction.predictions
    first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
    found = scores(first, prediction.label_ids)
    for values in rest:
        if np.issubdtype(values.dtype, np.integer):
            found["ponder_steps"] = float(mean_per_example(values).mean())
        else:
            found["ponder_cost"] = float(values.mean())
    return found


def mean_per_example(values: Any) -> Any:
    """The means of an array or tensor (B, S) over each example's tokens, less than 0 being padding; of (B,) itself."""
    if values.ndim == 1:
        return values
    live = values >= 0
    return (values * live).sum(1) / live.sum(1).clip(1)


def text_metrics(statistics: np.ndarray, labels: np.ndarray) -> Scores:
    """`nll` in nats a token, its exponential `perplexity`, and `token_accuracy`, of `masked_statistics`."""
    tokens, nats, right = statistics.sum(0)
    nll = float(nats / tokens)
    return {"nll": nll, "perplexity": perplexity(nll), "token_accuracy": float(right / tokens)}


def perplexity(nll: float) -> float:
    """The exponential of nats a token, or of as many as a float can hold."""
    return math.exp(min(nll, 700))


def tag_scores(predictions: np.ndarray, labels: np.ndarray, counts: np.ndarray, names: Sequence[str]) -> Scores:
    """`class_scores` of the labelled tokens (T,) of all texts and, of labels in IOB form, those of entities.

    Args:
        counts: labelled tokens of each text (N,).
        names: of the labels, in the order of their ids.
    """
    scores = class_scores(predictions, labels, len(names))
    if not scores_entities(names):
        return scores
    texts = (np.split(np.array(names)[ids], counts.cumsum()[:-1]) for ids in (predictions, labels))
    return scores | entity_scores(*([tags.tolist() for tags in each] for each in texts))


def summarize(statistics: np.ndarray) -> Scores:
    """Metrics from the `target_statistics` of examples, (N, 8).

    `nll` is the mean over tokens in nats, `accuracy` the fraction of examples that greedy decoding gets right, and
    `token_accuracy` that of tokens; ponder statistics are means over examples.
    """
    columns = dict(zip((*TARGET_COLUMNS, *HALTING_COLUMNS), statistics.T, strict=True))
    tokens = columns["tokens"].sum()
    metrics = {
        "nll": columns["nll"].sum() / tokens,
        "accuracy": columns["right"].mean(),
        "token_accuracy": columns["right_tokens"].sum() / tokens,
    }
    metrics |= {name: columns[name].mean() for name in HALTING_COLUMNS if not np.isnan(columns[name]).any()}
    return {name: float(value) for name, value in metrics.items()}
