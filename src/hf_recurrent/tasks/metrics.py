"""Metrics of `Trainer`'s evaluations, from the models' outputs.

Shapes: B examples of a batch, S tokens, N examples, V vocabulary, C classes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

from ..metrics.classification import class_scores
from ..metrics.entities import entity_scores, scores_entities
from ..models.common.token_targets import NO_TARGET

# the terms that training adds to the task's loss, and their sum
AUXILIARY_LOSSES = ("aux_loss", "ponder_loss", "router_loss")
LARGEST_EXPONENT = 700


def with_ponder_metrics(prediction: EvalPrediction, scores: Callable[..., dict[str, float]]) -> dict[str, float]:
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
    nats = torch.nn.functional.cross_entropy(scores.transpose(1, 2), labels, reduction="none").double()
    right = (scores.argmax(-1) == labels) & known
    return torch.stack([known.sum(1).double(), nats.sum(1), right.sum(1).double()], dim=1)


@of_logits
def next_token_statistics(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As `masked_statistics`, of tokens that are predicted from the one before.

    Nothing predicts the first token, which may stand after padding.
    """
    targets = labels[:, 1:].masked_fill(labels[:, :-1] == NO_TARGET, NO_TARGET)
    return masked_statistics(logits[:, :-1], targets)


def text_metrics(statistics: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`nll` in nats a token, its exponential `perplexity`, and `token_accuracy`, of `masked_statistics`."""
    tokens, nats, right = statistics.sum(0)
    nll = float(nats / tokens)
    return {"nll": nll, "perplexity": perplexity(nll), "token_accuracy": float(right / tokens)}


def perplexity(nll: float) -> float:
    """The exponential of nats a token, or of as many as a float can hold."""
    return math.exp(min(nll, LARGEST_EXPONENT))


def tag_scores(
    predictions: np.ndarray, labels: np.ndarray, counts: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """`class_scores` of the labelled tokens (T,) of all texts and, of labels in IOB form, those of entities.

    Args:
        counts: labelled tokens of each text (N,).
        names: of the labels, in the order of their ids.
    """
    scores = class_scores(predictions, labels, len(names))
    if not scores_entities(names):
        return scores
    ends = counts.cumsum()[:-1]
    tags = ([[names[i] for i in text] for text in np.split(ids, ends)] for ids in (predictions, labels))
    return scores | entity_scores(*tags)


def mean_per_example(values: torch.Tensor) -> torch.Tensor:
    """(B,) as they are, or the means of (B, S) steps over each example's tokens, -1 being padding."""
    if values.dim() == 1:
        return values
    live = values >= 0
    return (values * live).sum(1) / live.sum(1).clamp_min(1)
