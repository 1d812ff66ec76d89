"""What linear layers of eight bits change: answers and steps of a model at each halting threshold.

Halting heads and the exit probe stay in float32 (`ReproducibleLinear`); what they read is rounded, so that steps may
change all the same.

A comparison is plain data: a row for each setting, `threshold` (None at full depth), `accuracy` and `mean_depth`, those
of the model as it is in `accuracy_before` and `mean_depth_before`, `lost` and `gained` examples, and `moved`, the share
of examples that take other steps.
"""

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..files import plain
from ..inference.modes import inference_mode
from ..models.common.fields import shown
from .inference import prepare_batch, progress_bar
from .model_facts import stack_depths
from .sweep import evaluate, example_depths, threshold_fields
from .token_answers import each_right, judged

KINDS = ("int8",)


def check_kind(model: Any, kind: str) -> None:
    """Raise a ValueError for an unknown kind, or a model that is on an accelerator or not in float32."""
    if kind not in KINDS:
        raise ValueError(f"quantize is {shown(kind)}: expected {' or '.join(KINDS)}")
    if model.device.type != "cpu":
        raise ValueError(
            f"quantize is {kind!r}, which is for the processor, but the model is on {model.device}: use cpu"
        )
    if model.dtype is not torch.float32:
        raise ValueError(
            f"quantize is {kind!r}, which is for linear layers of float32, but the model is of "
            f"{str(model.dtype).removeprefix('torch.')}: load it in float32 (--dtype float32)"
        )


def quantized(model: Any, kind: str = "int8") -> Any:
    """A copy whose linear layers have eight bits, by torch's dynamic quantisation, except those that decide on halting.

    Raises:
        ValueError: as `check_kind`.
    """
    check_kind(model, kind)
    with warnings.catch_warnings():
        # of torch, about its own functions
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {torch.nn.Linear}, dtype=torch.qint8)


def compare_quantized(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    thresholds: Sequence[float | None],
    kind: str = "int8",
    progress: bool = False,
) -> list[dict[str, Any]]:
    """A row for each threshold, as described at the top of this module.

    Args:
        model: as of `sweep_thresholds`, on the processor, in float32.
        batches: likewise.
        thresholds: halting masses; None for full depth.
    """
    other, stacks = quantized(model, kind), stack_depths(model.config)
    prepared = [prepare_batch(model, batch) for batch in batches]
    rows = []
    for threshold in progress_bar(thresholds, progress, kind, "threshold"):
        fields = threshold_fields(threshold)
        found = []
        for each in (model, other):
            with inference_mode(each):
                found.append(evaluate(each, prepared, fields, partial(judged, config=model.config)))
        right_before, right = (each_right(frame) for frame in found)
        depth_before, depth = (example_depths(frame, stacks) for frame in found)
        rows.append(
            {
                "threshold": threshold,
                "accuracy_before": right_before.mean(),
                "accuracy": right.mean(),
                "lost": (right_before & ~right).sum(),
                "gained": (right & ~right_before).sum(),
                "mean_depth_before": depth_before.mean(),
                "mean_depth": depth.mean(),
                "moved": (depth != depth_before).mean(),
            }
        )
    return plain(rows)
