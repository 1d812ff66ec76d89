"""What `Trainer`'s evaluations keep of a model's outputs, as functions of tensors.

Shapes: B examples of a batch, S tokens of a sequence, T of a target, V token ids, C classes.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from ..models.ops.losses import NO_TARGET
from .functional import HALTING_COLUMNS, Row, mean_per_example


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
    tokens, nats, right = masked_statistics(output["logits"], labels).unbind(1)
    columns = [tokens, nats, right, right == tokens]
    for name in HALTING_COLUMNS:
        value = output.get(name)
        columns.append(torch.full_like(nats, math.nan) if value is None else mean_per_example(value))
    return torch.stack([column.double() for column in columns], 1)
