"""Times of several ways of doing the same work, measured side by side."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from statistics import median
from typing import Any

import torch

from .collect import with_progress


def interleaved_seconds(
    ways: Mapping[Hashable, Callable[[Any], Any]],
    batches: Iterable[Any],
    repeats: int,
    device: torch.device,
    progress: bool = False,
) -> dict[Hashable, float]:
    """Median seconds over `repeats` passes over all batches, for each of the `ways` to run a batch.

    The ways take turns at every batch, so that a slow spell of the machine falls on all of them alike.

    Raises:
        ValueError: `repeats` is below 1.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    batches = list(batches)
    passes = {name: [0.0] * repeats for name in ways}
    for turn in with_progress(range(repeats), progress, "timing", "pass"):
        for batch in batches:
            for name, way in ways.items():
                start = time.perf_counter()
                way(batch)
                # CUDA calls return before the work is done
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                passes[name][turn] += time.perf_counter() - start
    return {name: median(measured) for name, measured in passes.items()}
