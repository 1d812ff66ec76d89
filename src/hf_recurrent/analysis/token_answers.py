"""Answers of a model, one for each example or for each labelled token of a sequence, and whether they are right.

Shapes: B sequences of a batch, N of all, S tokens, C classes or token ids, T labelled tokens of all sequences.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch

from ..models.common.token_targets import NO_TARGET
from .inference import Batch, as_numpy, confidences, predictions, predicts_tokens, token_predictions


def judged(output: Any, batch: Batch, config: Any) -> dict[str, np.ndarray]:
    """The answer to each example of a batch, as columns (B,): `answer`, `label`, `confidence`, and if it is `right`.

    A class, or the names of several; of a text the last labelled token; of a target, which is given up to each token,
    the tuple of its tokens, whose confidence is the mean. Of tokens also `labelled` and `right_tokens`, the numbers of
    those that have a label and that were predicted, and `nats`, the sum of their cross-entropies. Where each token is
    answered for, the columns are those of `token_answers`.
    """
    labels = batch.labels
    if batch.by_token:
        return token_answers(output, labels)
    if not predicts_tokens(output):
        found, columns = predictions(output, labels, config), {}
    else:
        has_target = config.capabilities.two_stacks
        logits, wanted = (output.logits, labels) if has_target else (output.logits[:, :-1], labels[:, 1:])
        labelled, predicted = wanted != NO_TARGET, logits.argmax(-1).cpu().numpy()
        targets = torch.as_tensor(wanted, device=logits.device)
        nats = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=NO_TARGET
        )
        columns = {
            "labelled": labelled.sum(1),
            "right_tokens": ((predicted == wanted) & labelled).sum(1),
            "nats": as_numpy(nats.view(targets.shape)).sum(1),
        }
        if has_target:
            sure = np.where(labelled, confidences(logits), 0.0).sum(1) / labelled.sum(1)
            found = {"prediction": tuples(predicted, labelled), "label": tuples(wanted, labelled), "confidence": sure}
        else:
            found = token_predictions(output.logits, labels)
    kept = {"answer": found["prediction"], "label": found["label"], "confidence": found["confidence"]}
    return {**kept, "right": kept["answer"] == kept["label"], **columns}


def tuples(ids: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """(B,) tuples of those token ids (B, T) that are `kept` (B, T)."""
    found = np.empty(len(ids), dtype=object)
    found[:] = [tuple(row[mask].tolist()) for row, mask in zip(ids, kept, strict=True)]
    return found


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
