"""The trade-off between accuracy, depth and time when the halting threshold changes after training."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...metrics.functional import accuracy
from ...metrics.serialize import plain
from .collect import collect
from .inference import halting_of, inference_mode, split_labels, to_device
from .timing import interleaved_seconds

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)


def threshold_curve(
    model: torch.nn.Module,
    batches: Iterable[Mapping[str, Any]],
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    repeats: int = 3,
) -> list[dict[str, float]]:
    """Evaluate and time the model at each halting threshold, one row per threshold.

    A row holds `threshold`, `accuracy`, `mean_steps`, `mean_ponder_cost`, `seconds` and `relative_time`.
    `seconds` is the median of `repeats` passes over all batches, already on the device; the thresholds take turns
    at each batch, so that a slow spell of the machine does not fall on one of them alone.
    `relative_time` is `seconds` over those of the highest threshold. A model of fixed depth has no threshold
    and gives an empty list.
    """
    if not thresholds or not all(0 < threshold <= 1 for threshold in thresholds):
        raise ValueError(f"halting thresholds must lie in (0, 1], got {thresholds}")
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    if halting_of(model.config) == "none":
        return []
    batches = [to_device(batch, model) for batch in batches]
    records = {value: collect(model, batches, halting_threshold=value) for value in thresholds}
    seconds = _timed_passes(model, [split_labels(batch)[0] for batch in batches], thresholds, repeats)
    full = seconds[max(thresholds)]
    return [
        plain(
            {
                "threshold": value,
                "accuracy": accuracy(records[value].predictions, records[value].labels),
                "mean_steps": records[value].steps.mean(),
                "mean_ponder_cost": records[value].ponder_cost.mean(),
                "seconds": seconds[value],
                "relative_time": seconds[value] / full,
            }
        )
        for value in thresholds
    ]


def _timed_passes(
    model: torch.nn.Module, inputs: list[dict[str, torch.Tensor]], thresholds: Sequence[float], repeats: int
) -> dict[float, float]:
    """Median seconds of a pass over all inputs, per threshold."""
    ways = {value: lambda batch, value=value: model(**batch, halting_threshold=value) for value in thresholds}
    with inference_mode(model):
        return interleaved_seconds(ways, inputs, repeats, next(model.parameters()).device)
