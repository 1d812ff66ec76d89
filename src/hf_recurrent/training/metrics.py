"""Metrics of `Trainer`'s evaluations, from the models' outputs.

Shapes: B examples of a batch, S tokens, T target tokens, N examples, V vocabulary.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

from ..metrics.classification import class_scores, number_scores, set_scores
from ..metrics.entities import entity_scores, scores_entities
from ..metrics.functional import accuracy, last_read_accuracy
from ..models.common.token_targets import NO_TARGET
from ..text_data.labels import MULTI, REGRESSION, Labels

# the terms that training adds to the task's loss, and their sum
AUXILIARY_LOSSES = ("aux_loss", "ponder_loss", "router_loss")
LARGEST_EXPONENT = 700
# columns of `target_statistics`; the last ones are there for stacks that halt alone
TARGET_COLUMNS = ("tokens", "nll", "right_tokens", "right")
HALTING_COLUMNS = ("ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost")


def mean_steps(ponder_steps: torch.Tensor) -> torch.Tensor:
    """Mean over the batch's halting units of (B,) or (B, S) executed steps, -1 being padding."""
    return mean_per_example(ponder_steps.reshape(1, -1))[0]


def with_ponder_metrics(scores: Callable[..., dict[str, float]]) -> Callable[..., dict[str, float]]:
    """A `compute_metrics` of `Trainer`: scores of a model's first output and the labels, and `ponder_metrics`."""

    def compute(prediction: EvalPrediction, **options: Any) -> dict[str, float]:
        outputs = prediction.predictions
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        return scores(first, prediction.label_ids, **options) | ponder_metrics(rest)

    return compute


@with_ponder_metrics
def compute_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy` of a classifier."""
    return {"accuracy": accuracy(logits.argmax(-1), labels)}


def metrics_of(labels: Labels) -> Callable[[EvalPrediction], dict[str, float]]:
    """The metrics of a classifier of a user's own data, by the kind of its labels, and ponder statistics."""
    return with_ponder_metrics(partial(text_scores, labels=labels))


def text_scores(logits: np.ndarray, label_ids: np.ndarray, labels: Labels) -> dict[str, float]:
    """Scores of logits (N, C), or numbers (N, 1), with labels as a model takes them."""
    if labels.problem_type == REGRESSION:
        return number_scores(logits.reshape(-1), label_ids.reshape(-1))
    if labels.problem_type == MULTI:
        return set_scores(logits > 0, label_ids > 0)
    return class_scores(logits.argmax(-1), label_ids, len(labels.names))


def scores_of(labels: Labels) -> list[str]:
    """The names of `text_scores`."""
    logits = np.zeros((2, max(len(labels.names), 1)))
    return list(text_scores(logits, logits if labels.problem_type == MULTI else np.zeros(2, np.int64), labels))


def of_logits(statistics: Callable[[torch.Tensor, Any], torch.Tensor]) -> Callable:
    """A `preprocess_logits_for_metrics` of `Trainer` that keeps statistics of the first output instead of it."""

    def kept(outputs: torch.Tensor | tuple[torch.Tensor, ...], labels: Any) -> Any:
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        found = statistics(first, labels)
        return (found, *rest) if rest else found

    return kept


@of_logits
def next_token_ids(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, V) -> the token ids (B, S) they predict, aligned with the labels; nothing predicts the first."""
    return torch.nn.functional.pad(logits.argmax(-1)[:, :-1], (1, 0), value=NO_TARGET)


@with_ponder_metrics
def compute_language_metrics(ids: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy` of each example's last labelled token, and `token_accuracy` of all of them, of `next_token_ids`."""
    # `Trainer` pads labels and predictions alike to join batches of different lengths
    labelled = labels != NO_TARGET
    return {
        "accuracy": last_read_accuracy(ids, labels),
        "token_accuracy": accuracy(ids[labelled], labels[labelled]),
    }


@of_logits
def token_statistics(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, V) -> (B, 3) in double precision: tokens of each example that were predicted, their negative
    log-likelihood in nats (sum), and how many of them are the likeliest ones.

    Nothing predicts the first token, which may stand after padding.
    """
    targets = labels[:, 1:].masked_fill(labels[:, :-1] == NO_TARGET, NO_TARGET)
    return masked_statistics_of(logits[:, :-1], targets)


def masked_statistics_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As `token_statistics`, of tokens that are predicted at their own place, those with a label."""
    known, scores = labels != NO_TARGET, logits.float()
    nats = torch.nn.functional.cross_entropy(scores.transpose(1, 2), labels, reduction="none").double()
    right = (scores.argmax(-1) == labels) & known
    return torch.stack([known.sum(1).double(), nats.sum(1), right.sum(1).double()], dim=1)


masked_statistics = of_logits(masked_statistics_of)


@with_ponder_metrics
def compute_text_metrics(statistics: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`nll` in nats a token, its exponential `perplexity`, and `token_accuracy`.

    Statistics are those of `token_statistics` or `masked_statistics`.
    """
    tokens, nats, right = statistics.sum(0)
    nll = float(nats / tokens)
    return {"nll": nll, "perplexity": perplexity(nll), "token_accuracy": float(right / tokens)}


def perplexity(nll: float) -> float:
    """The exponential of nats a token, or of as many as a float can hold."""
    return math.exp(min(nll, LARGEST_EXPONENT))


@of_logits
def token_classes(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, C) -> the classes (B, S) that they predict."""
    return logits.argmax(-1)


@with_ponder_metrics
def compute_token_metrics(classes: np.ndarray, labels: np.ndarray, names: Sequence[str] = ()) -> dict[str, float]:
    """Scores of labelled tokens, and those of entities where `names` of the labels tell of such, of `token_classes`."""
    labelled = labels != NO_TARGET
    return tag_scores(classes[labelled], labels[labelled], labelled.sum(1), names)


def span_ends(logits: tuple[torch.Tensor, ...], labels: tuple[torch.Tensor, ...]):
    """Logits (B, S) of both ends of a span, the first two -> the likeliest columns and the first token's (B, 3).

    Other outputs stay.
    """
    first, last, *rest = logits
    # that of padding is the least number of a type that may have been half precision
    is_read = first > torch.finfo(torch.float16).min
    ends = torch.stack([first.argmax(-1), last.argmax(-1), is_read.int().argmax(-1)], dim=1)
    return (ends, *rest) if rest else ends


@with_ponder_metrics
def compute_span_metrics(columns: np.ndarray, labels: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """`span_accuracy` and `no_answer_accuracy` of windows, of which a question may have several.

    The first is the share of the windows with the whole answer in which both its ends are predicted, the second that of
    the others in which no answer is predicted: those of questions without one, and the windows of long contexts that
    the answer is not in. Either is missing where there are no such windows. What is answered to a question, by the best
    span of all its windows, is scored by `evaluate_spans`.

    Columns are those of `span_ends`.
    """
    true = np.stack(labels, axis=1)
    right = (columns[:, :2] == true).all(1)
    has_answer = true[:, 0] != columns[:, 2]
    shares = {"span_accuracy": right[has_answer], "no_answer_accuracy": right[~has_answer]}
    return {name: float(each.mean()) for name, each in shares.items() if len(each)}


def tag_scores(
    predictions: np.ndarray, labels: np.ndarray, counts: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """`class_scores` of the labelled tokens (T,) of all texts and, of labels in IOB form, those of entities.

    Args:
        counts: labelled tokens of each text (N,).
        names: of the labels, in the order of their ids; none given: their number is that of the ids.
    """
    highest = int(max(predictions.max(initial=0), labels.max(initial=0)))
    scores = class_scores(predictions, labels, len(names) or highest + 1)
    if not scores_entities(names):
        return scores
    ends = counts.cumsum()[:-1]
    tags = ([[names[i] for i in text] for text in np.split(ids, ends)] for ids in (predictions, labels))
    return scores | entity_scores(*tags)


def ponder_metrics(outputs: list[np.ndarray]) -> dict[str, float]:
    """`ponder_steps` and `ponder_cost` of a model that halts, in depth steps, means over examples.

    `Trainer` pads ragged (B, S) steps with -100 and the models mark padding with -1: negative steps do not count.
    """
    metrics = {}
    for values in outputs:
        if np.issubdtype(values.dtype, np.integer):
            steps = values.reshape(len(values), -1)
            live = steps >= 0
            metrics["ponder_steps"] = float(((steps * live).sum(1) / live.sum(1).clip(1)).mean())
        else:
            metrics["ponder_cost"] = float(values.mean())
    return metrics


def target_statistics(output: Mapping[str, Any], labels: torch.Tensor) -> torch.Tensor:
    """Numbers of each example, (B, 8) in double precision: `TARGET_COLUMNS` and `HALTING_COLUMNS`, NaN where unknown.

    These are the labelled tokens, their negative log-likelihood in nats (sum), how many of them are predicted, whether
    all are, and of decoder and encoder the executed and the expected depth, in steps, means over the example's tokens.

    An example is right if every token of its target is the likeliest one after the true tokens before it. Greedy
    decoding gets just these right: as long as it has made no mistake, it has the true tokens before it. So no token
    need be generated to know it.

    Args:
        output: a model's output with `logits` (B, T, V), aligned with `labels`.
        labels: (B, T) token ids, -100 where there is none.
    """
    logits = output["logits"]
    labelled = labels != NO_TARGET
    losses = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), ignore_index=NO_TARGET, reduction="none"
    ).view_as(labels)
    hits = (logits.argmax(-1) == labels) & labelled
    tokens = labelled.sum(1)
    columns = [tokens, losses.double().sum(1), hits.sum(1), hits.sum(1) == tokens]
    for name in HALTING_COLUMNS:
        value = output.get(name)
        if value is None:
            columns.append(torch.full_like(tokens, float("nan"), dtype=torch.float64))
        else:
            columns.append(mean_per_example(value))
    return torch.stack([column.double() for column in columns], 1)


def mean_per_example(values: torch.Tensor) -> torch.Tensor:
    """(B,) as they are, or the means of (B, S) steps over each example's tokens, -1 being padding."""
    if values.dim() == 1:
        return values
    live = values >= 0
    return (values * live).sum(1) / live.sum(1).clamp_min(1)


def summarize(statistics: np.ndarray) -> dict[str, float]:
    """Metrics from the `target_statistics` of examples, (N, 8).

    `nll` is the mean over tokens in nats, `accuracy` the fraction of examples that greedy decoding gets
    right, and `token_accuracy` that of tokens; ponder statistics are means over examples.
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


def compute_seq2seq_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """`summarize` of the statistics that the trainer kept of each example."""
    return summarize(prediction.predictions)
