"""Answers of a model for each labelled token of a sequence, beside those of models with one answer for each example.

Shapes: B sequences of a batch, N of all, S tokens, C classes or token ids, T labelled tokens of all sequences.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch

from ..models.common.token_targets import NO_TARGET
from .inference import confidences


def token_answers(output: Any, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Columns (B,): `answer`, `label` and `right`, arrays of the labelled tokens of each sequence.

    Also their mean `confidence`, their number, `labelled`, and the sum of their cross-entropies, `nats`.

    Args:
        output: with logits (B, S, C).
        labels: (B, S), -100 where there is none.

    Raises:
        ValueError: a sequence has no label.
    """
    chosen = labels != NO_TARGET
    counts = chosen.sum(1)
    if not counts.all():
        raise ValueError(f"row {int(counts.argmin())} of a batch has no label, so there is nothing to compare")
    places = torch.as_tensor(chosen, device=output.logits.device)
    logits, wanted = output.logits[places].float(), labels[chosen]
    targets = torch.as_tensor(wanted, device=logits.device)
    nats = torch.nn.functional.cross_entropy(logits, targets, reduction="none").double().cpu().numpy()
    predicted = logits.argmax(-1).cpu().numpy()
    starts = counts.cumsum() - counts
    return {
        "answer": by_sequence(predicted, starts),
        "label": by_sequence(wanted, starts),
        "right": by_sequence(predicted == wanted, starts),
        "confidence": np.add.reduceat(confidences(logits), starts) / counts,
        "labelled": counts,
        "nats": np.add.reduceat(nats, starts),
    }


def by_sequence(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Values of all labelled tokens as arrays (B,) of those of each sequence, which begin at `starts` (B,)."""
    found = np.empty(len(starts), dtype=object)
    for place, own in enumerate(np.split(values, starts[1:])):
        found[place] = own
    return found


def each_right(examples: pd.DataFrame) -> np.ndarray:
    """Whether each answer is right: (N,) of examples, or (T,) of the tokens of all of them."""
    right = examples["right"].to_numpy()
    return right if right.dtype == bool else np.concatenate(right)


def each_error(examples: pd.DataFrame, full: pd.DataFrame, labelled: bool) -> list[np.ndarray]:
    """Which answers to each of N examples are errors: right at full depth and "lost", or else other ones than there.

    An example has one answer, or one for each of its labelled tokens.
    """
    name = "right" if labelled else "answer"
    if answers_are_of_tokens(full):
        pairs = zip(full[name], examples[name], strict=True)
        return [whole & ~early if labelled else whole != early for whole, early in pairs]
    whole, early = full[name].to_numpy(), examples[name].to_numpy()
    return list((whole & ~early if labelled else whole != early)[:, None])


def answers_are_of_tokens(examples: pd.DataFrame) -> bool:
    return isinstance(examples["answer"].iloc[0], np.ndarray)
