"""The answers of a model to the examples of a batch, by the kind of its head, and which of them are right.

Shapes: B examples of a batch, S tokens, C classes or token ids, T labelled tokens of an example.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional

from ..data.labels import JOINED, MULTI, NO_LABEL
from ..models.common.classification import predicts_number
from ..models.common.token_targets import NO_TARGET
from .inference import Batch, as_numpy, predicts_tokens

# of a question's answer, if nothing says else
LONGEST_SPAN = 30
# columns of `token_answers` with an array of values of labelled tokens for each example
OF_TOKENS = ("answer", "label", "right", "confidences", "losses")


def answers(output: Any, batch: Batch, config: Any) -> dict[str, np.ndarray]:
    """The answer to each example of a batch, as columns (B,).

    `answer` and `label` are class ids; with several labels the names of all that apply, joined; numbers of a
    regression; the first and last token of a span; of a text the last labelled token; of a target, which is given up to
    each token, the tuple of its tokens. Also whether the answer is `right`; its `confidence`, the probability of the
    answer, of several labels their product, of a target the mean over tokens, and not of a number; and its `loss`: the
    cross-entropy in nats, the squared error of a number, or the mean of these over labels or labelled tokens.

    Of texts and targets also the numbers of tokens that are `labelled` and that were predicted, `right_tokens`. Where
    each token is answered for, columns are those of `token_answers`.
    """
    labels = batch.labels
    if "start_logits" in output:
        return span_answers(output, batch)
    if batch.by_token:
        return token_answers(output.logits, labels)
    if predicts_tokens(output):
        return text_answers(output.logits, labels, has_target=config.capabilities.two_stacks)
    logits = output.logits.float()
    if predicts_number(config):
        found, wanted = as_numpy(logits).reshape(-1), labels.reshape(-1)
        return {"answer": found, "label": wanted, "right": found == wanted, "loss": np.square(found - wanted)}
    if config.problem_type == MULTI:
        answer, confidence = several_labels(logits, config)
        shares = torch.as_tensor(labels, device=logits.device).float()
        loss = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none").mean(-1)
        labels = joined_labels(labels, config)
        return judged(answer, labels, confidence, as_numpy(loss))
    labels = labels.reshape(-1)
    return judged(logits.argmax(-1).cpu().numpy(), labels, confidences(logits), cross_entropies(logits, labels))


def judged(answer: Any, label: Any, confidence: np.ndarray, loss: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of answers that are right where they equal their label."""
    return {"answer": answer, "label": label, "right": answer == label, "confidence": confidence, "loss": loss}


def confidences(logits: torch.Tensor) -> np.ndarray:
    """Probability of the predicted class (...) of logits (..., C)."""
    return as_numpy(logits.float().softmax(-1).amax(-1))


def cross_entropies(logits: torch.Tensor, labels: np.ndarray) -> np.ndarray:
    """Nats (...) of logits (..., C) and labels (...), 0 without a label."""
    targets = torch.as_tensor(labels, device=logits.device).flatten()
    nats = functional.cross_entropy(logits.float().flatten(0, -2), targets, ignore_index=NO_TARGET, reduction="none")
    return as_numpy(nats).reshape(labels.shape)


def joined_labels(shares: Any, config: Any) -> np.ndarray:
    """The names (B,) of the classes with more than one half of shares (B, C), joined; `NO_LABEL` without any."""
    chosen = [[str(config.id2label[label]) for label in row.nonzero()[0]] for row in np.asarray(shares) > 0.5]
    return np.array([JOINED.join(names) or NO_LABEL for names in chosen], dtype=object)


def several_labels(logits: torch.Tensor, config: Any) -> tuple[np.ndarray, np.ndarray]:
    """The joined names (B,) of the predicted classes from logits (B, C), and the probability of just these."""
    shares = as_numpy(logits.float().sigmoid())
    return joined_labels(shares, config), np.maximum(shares, 1 - shares).prod(-1)


def answer_name(label: Any, config: Any) -> str:
    """The right answer of one example for readers: the name of a class, of all that apply, or a number."""
    if config.problem_type == MULTI:
        return joined_labels([label], config)[0]
    return f"{float(label):.4g}" if predicts_number(config) else str(config.id2label[int(label)])


def text_answers(logits: torch.Tensor, labels: np.ndarray, has_target: bool = False) -> dict[str, np.ndarray]:
    """Answers of a language model, or with `has_target` of a decoder that is given the target up to each token.

    A text is judged by its last labelled token, which is predicted from the place `answer_at`; a target as a whole.

    Args:
        logits: (B, S, C); those of a language model predict the next token.
        labels: (B, S) token ids, -100 where there is none.

    Raises:
        ValueError: a text has no label to predict.
    """
    if not has_target:
        logits, labels = logits[:, :-1], labels[:, 1:]
    labelled, predicted, sure = labels != NO_TARGET, logits.argmax(-1).cpu().numpy(), confidences(logits)
    counts = labelled.sum(1)
    if not counts.all():
        raise ValueError(f"row {int(counts.argmin())} of a batch has no label after its first token")
    loss, rows = cross_entropies(logits, labels).sum(1) / counts, np.arange(len(counts))
    counted = {"labelled": counts, "right_tokens": ((predicted == labels) & labelled).sum(1)}
    if has_target:
        found, wanted = (
            tuples([own[kept] for own, kept in zip(ids, labelled, strict=True)]) for ids in (predicted, labels)
        )
        return {**judged(found, wanted, np.where(labelled, sure, 0.0).sum(1) / counts, loss), **counted}
    last = labelled.shape[1] - 1 - labelled[:, ::-1].argmax(1)
    return {**judged(predicted[rows, last], labels[rows, last], sure[rows, last], loss), **counted, "answer_at": last}


def tuples(rows: Sequence[np.ndarray]) -> np.ndarray:
    """(B,) tuples of the numbers of each row."""
    found = np.empty(len(rows), dtype=object)
    found[:] = [tuple(row.tolist()) for row in rows]
    return found


def token_answers(logits: torch.Tensor, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Answers for the labelled tokens of each sequence, from logits (B, S, C) and labels (B, S), -100 without one.

    Columns (B,): `answer`, `label`, `right`, `confidences` and `losses` are arrays (T,) of tokens, `confidence` and
    `loss` their means, 0 without a labelled token, and `labelled` is T.
    """
    chosen = labels != NO_TARGET
    counts = chosen.sum(1)
    kept, wanted = logits[torch.as_tensor(chosen, device=logits.device)], labels[chosen]
    answer, sure, losses = kept.argmax(-1).cpu().numpy(), confidences(kept), cross_entropies(kept, wanted)
    values = dict(zip(OF_TOKENS, (answer, wanted, answer == wanted, sure, losses), strict=True))
    means = {"confidence": mean_of_sequences(sure, counts), "loss": mean_of_sequences(losses, counts)}
    return {**{name: by_sequence(each, counts) for name, each in values.items()}, **means, "labelled": counts}


def mean_of_sequences(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means (B,) of values of tokens, which are those of sequences of so many (B,) one after another; 0 of none."""
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), values, len(counts))
    return sums / np.maximum(counts, 1)


def by_sequence(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Values of tokens as arrays (B,) of those of each sequence, which has so many (B,)."""
    found = np.empty(len(counts), dtype=object)
    for place, own in enumerate(np.split(values, counts.cumsum()[:-1])):
        found[place] = own
    return found


def span_answers(output: Any, batch: Batch) -> dict[str, np.ndarray]:
    """Answers by spans of tokens, with labels (B, 2): `answer` and `label` are pairs of the first and last token."""
    ends = [logits.float() for logits in (output.start_logits, output.end_logits)]
    mask = batch.inputs.get("attention_mask", torch.ones_like(batch.inputs["input_ids"])).bool()
    score, *places = best_spans(*(logits.log_softmax(-1) for logits in ends), mask, LONGEST_SPAN)
    found, wanted = tuples(torch.stack(places, -1).cpu().numpy()), tuples(batch.labels)
    losses = [cross_entropies(logits, batch.labels[:, side]) for side, logits in enumerate(ends)]
    return judged(found, wanted, as_numpy(score.exp()), np.mean(losses, 0))


def best_spans(
    start: torch.Tensor, end: torch.Tensor, allowed: torch.Tensor, longest: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The greatest sums of scores (B, S) of both ends of spans, and their columns: three tensors (B,).

    Args:
        allowed: (B, S) bool, tokens that a span may begin or end with.
        longest: the most tokens of a span.
    """
    length = start.shape[1]
    near = torch.ones(length, length, dtype=torch.bool, device=start.device).triu().tril(longest - 1)
    sums = start.masked_fill(~allowed, -torch.inf)[:, :, None] + end.masked_fill(~allowed, -torch.inf)[:, None, :]
    best, place = sums.masked_fill(~near, -torch.inf).flatten(1).max(1)
    return best, place // length, place % length


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
