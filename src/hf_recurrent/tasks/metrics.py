"""Metrics of `Trainer`'s evaluations, from the models' outputs.

Shapes: B examples of a batch, S tokens, T target tokens, N examples, V vocabulary, C classes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import EvalPrediction

from ..metrics.functional import class_scores, entity_scores, scores_entities
from ..models.common.token_targets import NO_TARGET

# values by their names, such as the fields of an example
Row = dict[str, Any]
Scores = dict[str, float]
# the terms that training adds to the task's loss, and their sum
AUXILIARY_LOSSES = ("aux_loss", "ponder_loss", "router_loss")
# columns of `target_statistics`; the last ones are there for stacks that halt alone
TARGET_COLUMNS = ("tokens", "nll", "right_tokens", "right")
HALTING_COLUMNS = ("ponder_steps", "ponder_cost", "encoder_ponder_steps", "encoder_ponder_cost")


def with_ponder_metrics(prediction: EvalPrediction, scores: Callable[..., Scores]) -> Scores:
    """Scores of a model's first output and the labels, with `ponder_steps` and `ponder_cost` of a model that halts.

    Steps are means over examples. `Trainer` pads ragged (B, S) steps with -100 and the models mark padding with -1:
    negative steps do not count.
    """
    outputs = prediction.predictions
    first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
    found = scores(first, prediction.label_ids)
    for values in rest:
        if np.issubdtype(values.dtype, np.integer):
            steps = values.reshape(len(values), -1)
            live = steps >= 0
            found["ponder_steps"] = float(((steps * live).sum(1) / live.sum(1).clip(1)).mean())
        else:
            found["ponder_cost"] = float(values.mean())
    return found


def of_logits(statistics: Callable[[torch.Tensor, Any], torch.Tensor]) -> Callable:
    """A `preprocess_logits_for_metrics` of `Trainer` that keeps statistics of the first output instead of it."""

    def kept(outputs: torch.Tensor | tuple[torch.Tensor, ...], labels: Any) -> Any:
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        found = statistics(first, labels)
        return (found, *rest) if rest else found

    return kept


@of_logits
def token_classes(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, C) -> the classes (B, S) that they predict."""
    return logits.argmax(-1)


def masked_statistics(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Logits (B, S, V) -> (B, 3) in double precision: labelled tokens of each example, their negative log-likelihood in
    nats (sum), and how many of them are the likeliest ones."""
    known, scores = labels != NO_TARGET, logits.float()
    nats = cross_entropy(scores.transpose(1, 2), labels, reduction="none").double()
    right = (scores.argmax(-1) == labels) & known
    return torch.stack([known.sum(1).double(), nats.sum(1), right.sum(1).double()], dim=1)


@of_logits
def next_token_statistics(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As `masked_statistics`, of tokens that are predicted from the one before.

    Nothing predicts the first token, which may stand after padding.
    """
    targets = labels[:, 1:].masked_fill(labels[:, :-1] == NO_TARGET, NO_TARGET)
    return masked_statistics(logits[:, :-1], targets)


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


def target_statistics(output: Row, labels: torch.Tensor) -> torch.Tensor:
    """Numbers of each example, (B, 8) in double precision: `TARGET_COLUMNS` and `HALTING_COLUMNS`, NaN where unknown.

    These are the labelled tokens, their negative log-likelihood in nats (sum), how many of them are predicted, whether
    all are, and of decoder and encoder the executed and the expected depth, in steps, means over the example's tokens.

    An example is right if every token of its target is the likeliest one after the true tokens before it. Greedy
    decoding gets just these right: as long as it has made no mistake, it has the true tokens before it.

    Args:
        output: a model's output with `logits` (B, T, V), aligned with `labels`.
        labels: (B, T) token ids, -100 where there is none.
    """
    logits, known = output["logits"], labels != NO_TARGET
    nats = cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    tokens, right = known.sum(1), ((logits.argmax(-1) == labels) & known).sum(1)
    columns = [tokens, nats.double().sum(1), right, right == tokens]
    for name in HALTING_COLUMNS:
        value = output.get(name)
        columns.append(torch.full_like(columns[1], math.nan) if value is None else mean_per_example(value))
    return torch.stack([column.double() for column in columns], 1)


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


def mean_per_example(values: torch.Tensor) -> torch.Tensor:
    """(B,) as they are, or the means of (B, S) steps over each example's tokens, -1 being padding."""
    if values.dim() == 1:
        return values
    live = values >= 0
    return (values * live).sum(1) / live.sum(1).clamp_min(1)
