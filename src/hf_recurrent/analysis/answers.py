"""Batches, the answers of a model to their examples by the kind of its head, and which of them are right.

Shapes: B examples of a batch, S tokens, T labelled tokens of an example, C classes or token ids.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch.nn import functional

from ..data.labels import JOINED, MULTI, NO_LABEL
from ..models.heads.classification import ForSequenceClassification, predicts_number
from ..models.heads.masked import ForMaskedLM
from ..models.heads.seq2seq import read_mask
from ..models.heads.tokens import ForTokenClassification
from ..models.ops.losses import NO_TARGET

# the stack of a model that has one, and those of a model that has two
MODEL, ENCODER, DECODER = "model", "encoder", "decoder"
# ends of the names of classes -> tags of tasks on the Hub
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "translation",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}

# labels of a causal language model, each at the token before it, as in transformers
SHIFTED = "shift_labels"
LABELS = ("labels", "label", SHIFTED, "start_positions", "end_positions")
# of a question's answer, if nothing says else
LONGEST_SPAN = 30


def to_device(batch: Mapping[str, Any], model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The batch as tensors on the model's device."""
    device = next(model.parameters()).device
    return {name: torch.as_tensor(value).to(device) for name, value in batch.items()}


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Float tensors of any precision as float64; numpy has no bfloat16."""
    return tensor.detach().double().cpu().numpy()


def example_inputs(tokenizer: Any, example: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """An encoded example as a batch of one, of the inputs of the tokenizer's model alone."""
    names = [name for name in tokenizer.model_input_names if name in example]
    return {name: torch.as_tensor(example[name]).reshape(1, -1) for name in names}


def token_mask(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B, S) bool, True at tokens; all are without a mask."""
    mask = inputs.get("attention_mask")
    return torch.ones_like(inputs["input_ids"], dtype=torch.bool) if mask is None else mask.bool()


def stack_input_ids(inputs: Mapping[str, torch.Tensor], stack: str) -> torch.Tensor:
    """The token ids that a stack takes."""
    return inputs["decoder_input_ids" if stack == DECODER else "input_ids"]


def stack_output(output: Any, stack: str, name: str) -> Any:
    """An output field of a stack, such as its `ponder_steps`; None where the output has none."""
    return output.get(f"{ENCODER}_{name}" if stack == ENCODER else name)


def mean_steps(steps: torch.Tensor | None, batch: int) -> np.ndarray:
    """Executed depth steps (B,), each the mean over an example's units (B, ...); NaN for a fixed depth.

    Units with -1, of padding, do not count.
    """
    if steps is None:
        return np.full(batch, np.nan)
    steps = steps.reshape(batch, -1).double()
    counted = steps >= 0
    return as_numpy((steps * counted).sum(-1) / counted.sum(-1))


def join_batches(batches: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Columns of batches, each `(B, ...)`, as columns of all examples, `(N, ...)`."""
    batches = list(batches)
    return {name: np.concatenate([columns[name] for columns in batches]) for name in batches[0]}


class Batch(NamedTuple):
    """Inputs on the model's device, and labels: (B,) classes or numbers, (B, C) shares of classes, (B, 2) first and
    last tokens of spans, or token ids (B, S), of a target (B, T), -100 where there is none.

    The inputs of an encoder and decoder include the target, shifted by one token. `by_token` is whether each label
    (B, S) is of the answer at its own place, and counts by itself.
    """

    inputs: dict[str, torch.Tensor]
    labels: np.ndarray
    by_token: bool = False


def has_labels(batch: Mapping[str, Any]) -> bool:
    """Whether a batch of a data loader has labels."""
    return not batch.keys().isdisjoint(LABELS)


def prepare_batch(model: Any, batch: Mapping[str, Any]) -> Batch:
    """A batch of a data loader as inputs and labels: no loss is wanted.

    Labels of a causal language model that are named `shift_labels` stand at the tokens that predict them; others have
    none at tokens that padding on the left predicts. A decoder gets its inputs.

    Raises:
        ValueError: it has no labels.
    """
    if not has_labels(batch):
        raise ValueError(f"batches need 'labels' to measure accuracy, got only {sorted(batch)}")
    inputs = to_device(batch, model)
    given = [inputs.pop(name) for name in LABELS if name in inputs]
    targets = torch.stack(given, -1) if len(given) > 1 else given[0]
    targets = targets if targets.is_floating_point() else targets.long()
    labels = targets.cpu().numpy()
    if SHIFTED in batch or answers_tokens(model):
        return Batch(inputs, labels, by_token=True)
    if model.config.capabilities.two_stacks:
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(targets)
        inputs["decoder_attention_mask"] = read_mask(targets, None, None)
    elif len(given) == 1 and targets.shape == inputs["input_ids"].shape and not targets.is_floating_point():
        # as in the model's own loss
        after_padding = functional.pad(~token_mask(inputs), (1, -1)).cpu().numpy()
        labels = np.where(after_padding, NO_TARGET, labels)
    return Batch(inputs, labels)


def require_right_answers(model: Any) -> None:
    """Raise a ValueError if a model predicts a number, which is neither right nor wrong."""
    if predicts_number(model.config):
        raise ValueError(
            "the model predicts a number, which is neither right nor wrong: evaluate it, with a lower "
            "halting_threshold or max_depth"
        )


def predicts_tokens(output: Any) -> bool:
    """Whether an output is of a language model: logits (B, S, V) rather than (B, C)."""
    logits = getattr(output, "logits", None)
    return logits is not None and logits.dim() == 3


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
        shares = torch.as_tensor(labels, device=logits.device).float()
        loss = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none").mean(-1)
        answer, confidence = several_labels(logits, config)
        return judged(answer, joined_labels(labels, config), confidence, as_numpy(loss))
    labels = labels.reshape(-1)
    if (labels == NO_TARGET).any():
        raise ValueError(
            f"labels hold {NO_TARGET}, which marks an example without a right answer: leave such examples out"
        )
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
    return objects(JOINED.join(names) or NO_LABEL for names in chosen)


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
    counts, rows = labelled.sum(1), np.arange(len(labels))
    if not counts.all():
        raise ValueError(f"row {int(counts.argmin())} of a batch has no label after its first token")
    loss = cross_entropies(logits, labels).sum(1) / counts
    counted = {"labelled": counts, "right_tokens": ((predicted == labels) & labelled).sum(1)}
    if has_target:
        found, wanted = (tuples(map(np.extract, labelled, ids)) for ids in (predicted, labels))
        return {**judged(found, wanted, np.where(labelled, sure, 0.0).sum(1) / counts, loss), **counted}
    last = labelled.shape[1] - 1 - labelled[:, ::-1].argmax(1)
    return {**judged(predicted[rows, last], labels[rows, last], sure[rows, last], loss), **counted, "answer_at": last}


def objects(values: Iterable[Any]) -> np.ndarray:
    """(B,) of any values, which may be arrays or tuples."""
    return np.fromiter(values, dtype=object)


def tuples(rows: Iterable[np.ndarray]) -> np.ndarray:
    """(B,) tuples of the numbers of each row."""
    return objects(tuple(row.tolist()) for row in rows)


def token_answers(logits: torch.Tensor, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Answers for the labelled tokens of each sequence, from logits (B, S, C) and labels (B, S), -100 without one.

    Columns (B,): `answer`, `label`, `right`, `confidences` and `losses` are arrays (T,) of tokens, `confidence` and
    `loss` their means, 0 without a labelled token, and `labelled` is T.
    """
    chosen = labels != NO_TARGET
    counts = chosen.sum(1)
    kept, wanted = logits[torch.as_tensor(chosen, device=logits.device)], labels[chosen]
    answer, sure, losses = kept.argmax(-1).cpu().numpy(), confidences(kept), cross_entropies(kept, wanted)
    found = {"answer": answer, "label": wanted, "right": answer == wanted, "confidences": sure, "losses": losses}
    return {
        **{name: objects(np.split(values, counts.cumsum()[:-1])) for name, values in found.items()},
        "confidence": mean_of_sequences(sure, counts),
        "loss": mean_of_sequences(losses, counts),
        "labelled": counts,
    }


def mean_of_sequences(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means (B,) of values of tokens, which are those of sequences of so many (B,) one after another; 0 of none."""
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), values, len(counts))
    return sums / np.maximum(counts, 1)


def span_answers(output: Any, batch: Batch) -> dict[str, np.ndarray]:
    """Answers by spans of tokens, with labels (B, 2): `answer` and `label` are pairs of the first and last token."""
    ends = [logits.float() for logits in (output.start_logits, output.end_logits)]
    score, *places = best_spans(*(logits.log_softmax(-1) for logits in ends), token_mask(batch.inputs), LONGEST_SPAN)
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
    possible = near & allowed[:, :, None] & allowed[:, None, :]
    sums = (start[:, :, None] + end[:, None, :]).masked_fill(~possible, -torch.inf)
    best, place = sums.flatten(1).max(1)
    return best, place // length, place % length


def answers_are_of_tokens(examples: pd.DataFrame) -> bool:
    """Whether each labelled token of an example has an answer."""
    return isinstance(examples["answer"].iloc[0], np.ndarray)


def each_right(right: pd.Series) -> np.ndarray:
    """Whether each answer is right: (N,) of examples, or (T,) of the tokens of all of them."""
    return np.concatenate([*right]) if right.dtype == object else right.to_numpy()


def task_of(model: Any) -> str | None:
    """The tag of a model's task on the Hub, by the name of its class; None without a head."""
    name = type(model).__name__
    return next((task for head, task in TASKS.items() if name.endswith(head)), None)


def is_classifier(model: Any) -> bool:
    return isinstance(model, ForSequenceClassification)


def answers_tokens(model: Any) -> bool:
    """Whether a model answers for each token at its own place: a token classifier or masked language model."""
    return isinstance(model, ForTokenClassification)


def labels_tokens(model: Any) -> bool:
    return answers_tokens(model) and not isinstance(model, ForMaskedLM)


def require_early_answers(model: Any) -> None:
    """Raise a ValueError unless a model can answer after fewer depth steps than its maximum."""
    if not model.config.capabilities.shared_block:
        raise ValueError(
            f"the model does not iterate one block (architecture {model.config.model_type!r}), so it cannot stop "
            "early: choose another one"
        )
    if model.base_model is model:
        raise ValueError(
            f"{type(model).__name__} has no head, so it answers nothing: load it with the head of its task"
        )
