"""Running a model without changing it, and reading the halting fields of its output.

Shapes: B batch, U halting units per example (1, 2 for a siamese pair, S for token halting), L depth steps.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from .record import ADDITIVE
from .tokens import is_language_model, token_answers

# strategies by which tokens halt one by one in any model
TOKEN_HALTING = ("token", *ADDITIVE)


class Units(NamedTuple):
    """Halting units of one batch: `steps` (B, U) with -1 for padding, `probabilities` (B, U, L)."""

    kind: str
    steps: np.ndarray
    probabilities: np.ndarray


@contextmanager
def inference_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every submodule gets its own mode back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def attention_by(model: Any, implementation: str) -> Iterator[None]:
    """Another attention implementation; the model gets its own back afterwards."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def eager_attention(model: Any) -> AbstractContextManager[None]:
    """The attention implementation that returns attention maps."""
    return attention_by(model, "eager")


def halting_of(config: Any) -> str:
    """The halting strategy of a model's configuration; "none" where the depth is fixed."""
    return getattr(config, "halting", None) or "none"


def to_device(batch: Mapping[str, Any], model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The batch as tensors on the model's device."""
    device = next(model.parameters()).device
    return {name: torch.as_tensor(value).to(device) for name, value in batch.items()}


def split_labels(batch: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    """Model inputs without labels (no loss is wanted) and labels `(B,)`, or `(B, S)` of a language model."""
    if "labels" not in batch:
        raise ValueError(f"batches need 'labels' to measure accuracy, got only {sorted(batch)}")
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    return inputs, batch["labels"].cpu().numpy().astype(np.int64)


def answers(output: Any, labels: np.ndarray) -> dict[str, np.ndarray]:
    """`labels` and `predictions` `(B,)` of an output; for a language model all columns of `token_answers`."""
    if is_language_model(output):
        return token_answers(output.logits, labels)
    return {"labels": labels.reshape(-1), "predictions": predicted_classes(output.logits)}


def predicted_classes(logits: torch.Tensor) -> np.ndarray:
    """Class ids `(B,)` of logits `(B, C)`; a single logit is a binary decision at 0."""
    if logits.shape[-1] == 1:
        return (logits[:, 0] > 0).long().cpu().numpy()
    return logits.argmax(-1).cpu().numpy()


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Float tensors of any precision as float64; numpy has no bfloat16."""
    return tensor.detach().double().cpu().numpy()


def read_units(output: Any, config: Any) -> Units:
    """The halting units of the output that a model of `config` gave with `output_halting=True`.

    What halts are the tokens of a language model, whatever they are judged by; else `config` says it.
    """
    halting = halting_of(config)
    if output.ponder_steps is None or output.halting_probabilities is None:
        raise ValueError(f"a model with halting='{halting}' returned no ponder_steps or no halting_probabilities")
    steps = output.ponder_steps.cpu().numpy()
    probabilities = as_numpy(output.halting_probabilities)
    if probabilities.shape[:-1] != steps.shape:
        raise ValueError(
            f"halting_probabilities {probabilities.shape} do not match ponder_steps {steps.shape} "
            "plus one axis of depth"
        )
    if steps.ndim == 1:
        kind = "example"
    elif halting in TOKEN_HALTING or is_language_model(output):
        kind = "token"
    else:
        kind = "chunk" if hasattr(config, "chunking") else "sentence"
    batch = steps.shape[0]
    return Units(kind, steps.reshape(batch, -1), probabilities.reshape(batch, -1, probabilities.shape[-1]))
