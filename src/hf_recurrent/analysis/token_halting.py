"""Predictions of labelled tokens, and when each of them stopped: of token classifiers and masked language models.

Shapes: B batch, S tokens of a sequence, C classes or token ids, N labelled tokens, L maximum depth steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..inference.modes import inference_mode
from ..inference.processes import collected, dealt
from ..models.common.token_targets import NO_TARGET
from .halting import HaltingRecord, halting_mass, unit_kind
from .inference import Batch, as_numpy, progress_bar, split_labels, token_mask
from .model_facts import stopping_rule
from .tables import join_batches


def collect_tokens(
    model: torch.nn.Module,
    batches: Iterable[Mapping[str, Any]],
    *,
    slices: Mapping[str, Sequence] | None = None,
    max_depth: int | None = None,
    halting_threshold: float | None = None,
    progress: bool = False,
) -> HaltingRecord:
    """A `HaltingRecord` whose examples are the labelled tokens, with their `nll` (negative log-likelihood in nats).

    A token has the steps of the unit that it is in.

    Args:
        model: a token classifier or masked language model of this package.
        batches: padded model inputs with `labels` (B, S), -100 where there is none.
        slices: column -> a value for each labelled token (N,), in the order of the batches.
        max_depth: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        progress: show a progress bar.

    Raises:
        ValueError: no token has a label.
    """
    config, columns, unit = model.config, [], None
    options = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    depth = config.num_hidden_layers if max_depth is None else max_depth
    halts = config.capabilities.halts
    with inference_mode(model):
        for batch in progress_bar(dealt(batches), progress, "reading tokens", "batch"):
            inputs, labels, _ = split_labels(batch, model)
            chosen = torch.as_tensor(labels != NO_TARGET, device=model.device)
            output = model(**inputs, output_halting=halts, **options)
            found = answers(output.logits[chosen], labels[labels != NO_TARGET])
            if halts:
                unit = unit_kind(output, config)
                found |= token_steps(model, output, inputs, chosen, depth)
            columns.append(found)
    columns = collected(columns)
    if not any(len(found["label"]) for found in columns):
        raise ValueError("no token has a label: there is nothing to predict")
    return HaltingRecord.of_run(config, join_batches(columns), slices, unit, **options)


def answers(logits: torch.Tensor, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Columns (N,) of logits (N, C) and labels (N,)."""
    scores = logits.float().log_softmax(-1)
    best, predicted = scores.max(-1)
    right = scores.gather(1, torch.as_tensor(labels, device=logits.device)[:, None])[:, 0]
    return {
        "label": labels,
        "prediction": predicted.cpu().numpy(),
        "confidence": as_numpy(best.exp()),
        "nll": -as_numpy(right),
    }


def token_steps(
    model: Any, output: Any, inputs: Mapping[str, torch.Tensor], chosen: torch.Tensor, depth: int
) -> dict[str, np.ndarray]:
    """Columns (N,) and (N, L + 1) of a `HaltingRecord`: the halting of the `chosen` tokens (B, S), of L = `depth`."""
    mask = token_mask(inputs)
    steps, probabilities = (of_tokens(model, output, name, mask) for name in ("ponder_steps", "halting_probabilities"))
    steps, probabilities = steps[chosen].cpu().numpy(), as_numpy(probabilities[chosen])
    mass = halting_mass(probabilities, steps, stopping_rule(model.config)[0], depth)
    return {
        "steps": steps.astype(np.float64),
        "deepest": steps,
        "forced": (steps == depth).astype(np.float64),
        "mass": mass,
        "step_counts": np.eye(depth + 1, dtype=np.int64)[steps],
        "ponder_cost": as_numpy(output.ponder_cost)[chosen.nonzero()[:, 0].cpu().numpy()],
    }


def answer_steps(model: Any, output: Any, batch: Batch) -> np.ndarray:
    """Mean depth steps (B,) of the labelled tokens of each sequence: others, such as those around it, answer nothing.

    Args:
        output: of a model that halts, for the inputs of `batch`.
    """
    chosen = batch.labels != NO_TARGET
    if not model.config.capabilities.stops_when_halted:
        return np.full(len(chosen), float(model.config.num_hidden_layers))
    steps = of_tokens(model, output, "ponder_steps", token_mask(batch.inputs)).cpu().numpy()
    return (steps * chosen).sum(1) / chosen.sum(1)


def of_tokens(model: Any, output: Any, name: str, mask: torch.Tensor) -> torch.Tensor:
    """A field of an output, such as `ponder_steps`, for each token instead of each halting unit: (B, S, ...).

    Args:
        mask: (B, S) bool, of the inputs.
    """
    by_token = output["ponder_steps"].shape == mask.shape
    return output[name] if by_token else model.base_model.spread_over_tokens(output[name], mask)
