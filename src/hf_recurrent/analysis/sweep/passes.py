"""One pass of a model over a batch, and what it says of each row.

Shapes: B rows, S tokens, V words, U halting units of a row.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..halting.inference import predicted_classes
from ..halting.stacks import ENCODER, stacks_of
from ..halting.tokens import IGNORED, is_language_model, token_answers
from .calls import executed_calls, never_spares


@contextmanager
def with_config(model: torch.nn.Module, **fields: Any) -> Iterator[None]:
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


def answered(output: Any, labels: np.ndarray, writes: bool) -> dict[str, np.ndarray]:
    """How rows were answered, as columns (B,).

    `right` is whether a class, the last labelled token of a text, or every token of a target was predicted, the target
    being given up to each. Of tokens also `labelled` and `right_tokens`, how many have a label and were predicted, and
    `nats`, the sum of their cross-entropies.

    Args:
        writes: whether the model writes a target, rather than going on with a text.
    """
    if not is_language_model(output):
        return {"right": predicted_classes(output.logits) == labels.reshape(-1)}
    logits = output.logits if writes else output.logits[:, :-1]
    wanted = labels if writes else labels[:, 1:]
    labelled = wanted != IGNORED
    found = {"labelled": labelled.sum(1), "nats": nats(logits, wanted)}
    if writes:
        hits = (logits.argmax(-1).cpu().numpy() == wanted) & labelled
        return {"right": (hits == labelled).all(1), "right_tokens": hits.sum(1), **found}
    answers = token_answers(output.logits, labels)
    return {"right": answers["predictions"] == answers["labels"], "right_tokens": answers["right"], **found}


def nats(logits: torch.Tensor, wanted: np.ndarray) -> np.ndarray:
    """Sum over a row's labelled tokens of their cross-entropy: (B, S, V), (B, S) -> (B,)."""
    targets = torch.as_tensor(wanted, device=logits.device)
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), reduction="none", ignore_index=IGNORED
    )
    return losses.view(targets.shape).double().sum(1).cpu().numpy()


def depths(output: Any, inputs: Mapping[str, torch.Tensor], config: Any) -> dict[str, np.ndarray]:
    """Of each stack, as columns (B,): `calls` of the block, `units` that halt, and the mean `depth` of these."""
    columns = {}
    for stack, most in stacks_of(config).items():
        taken = output.encoder_ponder_steps if stack == ENCODER else output.ponder_steps
        steps = taken.cpu().numpy().reshape(len(taken), -1)
        calls, units = executed_calls(steps, config, most, _sentences(inputs, steps, config))
        # at full depth a unit goes on after it has halted
        spared = config.hard_stop and not never_spares(config)
        depth = np.where(steps >= 0, steps if spared else most, 0).sum(1) / np.maximum(units, 1)
        columns |= {f"{stack}_calls": calls, f"{stack}_units": units, f"{stack}_depth": depth}
    return columns


def _sentences(inputs: Mapping[str, torch.Tensor], steps: np.ndarray, config: Any) -> np.ndarray | None:
    types = inputs.get("token_type_ids")
    if types is None or getattr(config, "pair_encoding", None) != "siamese" or types.shape != steps.shape:
        return None
    return types.cpu().numpy()
