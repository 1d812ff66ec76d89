"""Running a model over batches without changing it.

Shapes: B batch, S tokens, T tokens of a target, V vocabulary, C classes.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

from ..inference.processes import from_first, is_first
from ..models.common.classification import predicts_number
from ..models.common.seq2seq import read_mask
from ..models.common.token_targets import NO_TARGET
from .model_facts import DECODER, ENCODER, answers_tokens

# labels of a causal language model, each at the token before it, as in transformers
SHIFTED = "shift_labels"
LABELS = ("labels", "label", SHIFTED, "start_positions", "end_positions")


@contextmanager
def attention_implementation(model: Any, implementation: str) -> Iterator[None]:
    """Another attention implementation, such as "eager", which returns maps; the model gets its own back afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def config_fields(model: torch.nn.Module, **fields: Any) -> Iterator[None]:
    """Other values of config fields, in every config that a part of the model reads; each gets its own back."""
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}.values()
    before = [(config, {name: getattr(config, name) for name in fields}) for config in configs]
    try:
        for config in configs:
            for name, value in fields.items():
                setattr(config, name, value)
        yield
    finally:
        for config, values in before:
            for name, value in values.items():
                setattr(config, name, value)


def progress_bar(items: Iterable, enabled: bool, description: str, unit: str) -> Iterable:
    """The items, with a progress bar if `enabled`, of several processes that of the first."""
    if not (enabled and is_first()):
        return items
    # tqdm looks for a notebook when it is imported
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit=unit)


def to_device(batch: Mapping[str, Any], model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The batch as tensors on the model's device."""
    device = next(model.parameters()).device
    return {name: torch.as_tensor(value).to(device) for name, value in batch.items()}


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Float tensors of any precision as float64; numpy has no bfloat16."""
    return tensor.detach().double().cpu().numpy()


def mean_steps(steps: torch.Tensor | None, batch: int) -> np.ndarray:
    """Executed depth steps (B,), each the mean over an example's units (B, ...); NaN for a fixed depth.

    Units with -1, of padding, do not count.
    """
    if steps is None:
        return np.full(batch, np.nan)
    steps = steps.reshape(batch, -1).double()
    counted = steps >= 0
    return as_numpy((steps * counted).sum(-1) / counted.sum(-1))


class Batch(NamedTuple):
    """Inputs on the model's device, and labels: (B,) classes or numbers, (B, C) shares of classes, (B, 2) first and
    last tokens of spans, or token ids (B, S) or (B, T), -100 where there is none.

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
    of_tokens = len(given) == 1 and targets.shape == inputs["input_ids"].shape and not targets.is_floating_point()
    labels = targets.cpu().numpy()
    labels = labels if targets.is_floating_point() else labels.astype(np.int64)
    if SHIFTED in batch or answers_tokens(model):
        return Batch(inputs, labels, by_token=True)
    if model.config.capabilities.two_stacks:
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(targets.long())
        inputs["decoder_attention_mask"] = read_mask(targets, None, None)
    elif of_tokens and "attention_mask" in inputs:
        # as in the model's own loss
        after_padding = np.pad(inputs["attention_mask"].cpu().numpy()[:, :-1] == 0, ((0, 0), (1, 0)))
        labels = np.where(after_padding, NO_TARGET, labels)
    return Batch(inputs, labels)


def token_mask(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B, S) bool, True at tokens; all are without a mask."""
    mask = inputs.get("attention_mask")
    return torch.ones_like(inputs["input_ids"], dtype=torch.bool) if mask is None else mask.bool()


def encoder_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs that are not of the target."""
    return {name: value for name, value in inputs.items() if not name.startswith("decoder_")}


def stack_input_ids(inputs: Mapping[str, torch.Tensor], stack: str) -> torch.Tensor:
    """The token ids that a stack takes."""
    return inputs["decoder_input_ids" if stack == DECODER else "input_ids"]


def stack_output(output: Any, stack: str, name: str) -> Any:
    """An output field of a stack, such as its `ponder_steps`; None where the output has none."""
    return output.get(f"{ENCODER}_{name}" if stack == ENCODER else name)


def example_inputs(tokenizer: Any, example: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """An encoded example as a batch of one, of the inputs of the tokenizer's model alone."""
    names = [name for name in tokenizer.model_input_names if name in example]
    return {name: torch.as_tensor(example[name]).reshape(1, -1) for name in names}


def predicts_tokens(output: Any) -> bool:
    """Whether an output is of a language model: logits (B, S, V) rather than (B, C)."""
    logits = getattr(output, "logits", None)
    return logits is not None and logits.dim() == 3


def require_right_answers(model: Any) -> None:
    """Raise a ValueError if a model predicts a number, which is neither right nor wrong."""
    if predicts_number(model.config):
        raise ValueError(
            "the model predicts a number, which is neither right nor wrong: evaluate it, with a lower "
            "halting_threshold or max_depth"
        )


class Way(NamedTuple):
    """A way to run a model.

    Attributes:
        fields: values of config fields.
        run: function of a batch, which is timed.
        read: function of the batch and what `run` gives, called once for each batch; its time does not count.
    """

    fields: Mapping[str, Any]
    run: Callable[[Any], Any]
    read: Callable[[Any, Any], Any] | None = None


class Timed(NamedTuple):
    """`seconds` of each batch in each repeat, (batches, repeats), and what was `read` of each batch."""

    seconds: np.ndarray
    read: list[Any]


def timed_in_turn(
    model: Any, ways: Mapping[Hashable, Way], batches: Iterable[Any], repeats: int, progress: bool = False
) -> dict[Hashable, Timed]:
    """Time each of the `ways` to run a model.

    They take turns at every batch, so that a slow spell of the machine falls on all of them alike. Of several processes
    the first one measures.

    Raises:
        ValueError: `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    batches, device = list(batches), next(model.parameters()).device

    def measured() -> dict[Hashable, Timed]:
        found = {name: Timed(np.zeros((len(batches), repeats)), []) for name in ways}
        turns = list(product(range(repeats), range(len(batches))))
        for turn, place in progress_bar(turns, progress, "timing", "batch"):
            for name, way in ways.items():
                with config_fields(model, **way.fields):
                    start = time.perf_counter()
                    result = way.run(batches[place])
                    # CUDA calls return before the work is done
                    if device.type == "cuda":
                        torch.cuda.synchronize(device)
                    found[name].seconds[place, turn] = time.perf_counter() - start
                    if way.read is not None and turn == 0:
                        found[name].read.append(way.read(batches[place], result))
        return found

    return from_first(measured)


def median_seconds(seconds: np.ndarray) -> float:
    """Seconds of a pass over all batches, of each of which the median repeat counts: (batches, repeats)."""
    return float(np.median(seconds, axis=1).sum())
