"""A trained model at several halting thresholds: what it answers, what it computes, and how long that takes.

Source: "Sparse Universal Transformer" (arXiv 2310.07096), section 4.4, which lowers the threshold after training and
counts the skipped block calls of ground-truth pairs.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...metrics.serialize import plain
from ..halting.collect import with_progress
from ..halting.inference import halting_of, inference_mode
from ..halting.stacks import DECODER, ENCODER, MODEL, Batch, has_two_stacks, prepare, stacks_of
from ..halting.timing import interleaved_seconds
from .generation import written_right
from .passes import answered, depths, with_config
from .table import add_slices, add_times, compare, summary

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
# in the place of a threshold: every unit takes every step
FULL_DEPTH = None


def default_thresholds(config: Any) -> tuple[float, ...]:
    """Those of the paper and three beyond them, with the model's own."""
    return checked_thresholds((*THRESHOLDS, config.halting_threshold))


def checked_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """In order, each once.

    Raises:
        ValueError: there is none, or one is no halting mass.
    """
    wrong = [value for value in thresholds if not (math.isfinite(value) and 0 < value <= 1)]
    if wrong or not thresholds:
        raise ValueError(f"thresholds are {list(thresholds)}: pass halting masses above 0 and up to 1")
    return tuple(sorted({float(value) for value in thresholds}))


def require_halting(model: Any, name: str = "the model") -> None:
    """Raise a ValueError unless a threshold decides when `model` stops."""
    if halting_of(model.config) == "none":
        raise ValueError(
            f"{name} never halts (family {model.config.model_type!r}, halting='none'), so there is no threshold to "
            "lower: limit its depth with max_steps, or sweep a model that halts"
        )


def sweep(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    thresholds: Sequence[float] | None = None,
    *,
    slices: Mapping[str, Sequence] | None = None,
    repeats: int = 3,
    generate: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluate and time a model at each threshold -> plain data, as `table` describes it.

    Every row is also run at full depth: at threshold 1, with every unit taking every step even if it has halted
    (`hard_stop=False`), as a model of the same size without halting does. Times are relative to that.

    Args:
        model: a classifier, causal language model or sequence-to-sequence model that halts.
        batches: as of `halting.collect`; of a sequence-to-sequence model with token ids of the target as labels.
        thresholds: halting masses in (0, 1]; the model's own is added. None: `default_thresholds`.
        slices: column name -> a value for each row, to tell results apart by.
        repeats: how many passes over all batches are timed.
        generate: also let a sequence-to-sequence model write by itself, greedily.
        progress: show a progress bar.

    Raises:
        ValueError: the model does not halt, there are no batches, or an argument does not fit.
    """
    require_halting(model)
    config, own = model.config, float(model.config.halting_threshold)
    chosen = default_thresholds(config) if thresholds is None else checked_thresholds((*thresholds, own))
    if generate and not has_two_stacks(config):
        raise ValueError("generate is for sequence-to-sequence models: this one writes no target")
    prepared = [prepare(model, batch) for batch in batches]
    if not prepared:
        raise ValueError("there are no batches to sweep over")
    settings = (FULL_DEPTH, *chosen)
    ways = {way: call for value in settings for way, call in timed(model, value).items()}
    with inference_mode(model):
        columns = {
            value: evaluate(model, prepared, value, generate)
            for value in with_progress(settings, progress, "evaluating", "threshold")
        }
        seconds = interleaved_seconds(ways, prepared, repeats, next(model.parameters()).device, progress)
    stacks, rows = stacks_of(config), {}
    for value in settings:
        rows[value] = {"threshold": value, **summary(columns[value], stacks), **compare(columns[value], columns[own])}
        add_times(rows[value], {stack: (seconds[value, stack], seconds[FULL_DEPTH, stack]) for stack in stacks})
        add_slices(rows[value], columns[value], stacks, slices or {})
    return plain(
        {
            "halting": halting_of(config),
            "own_threshold": own,
            "measured": measured(config, columns[own]),
            "n": len(columns[own]["right"]),
            "most_steps": stacks,
            "repeats": repeats,
            "full_depth": rows[FULL_DEPTH],
            "thresholds": [rows[value] for value in chosen],
        }
    )


def timed(model: Any, threshold: float | None) -> dict[tuple[float | None, str], Callable[[Batch], None]]:
    """What is timed of each stack at a threshold, or at full depth: one after the other they are a forward pass."""
    fields = {"hard_stop": False} if threshold is FULL_DEPTH else {}
    option = {"halting_threshold": 1.0 if threshold is FULL_DEPTH else threshold}
    encoded = {}

    def whole(batch: Batch) -> None:
        with with_config(model, **fields):
            model(**batch.inputs, **option)

    def encode(batch: Batch) -> None:
        with with_config(model, **fields):
            source = {name: value for name, value in batch.inputs.items() if not name.startswith("decoder_")}
            encoded["encoder_outputs"] = model.get_encoder()(**source, **option, pooling=False)

    def decode(batch: Batch) -> None:
        with with_config(model, **fields):
            rest = {name: value for name, value in batch.inputs.items() if name != "input_ids"}
            model(**rest, **encoded, **option)

    if has_two_stacks(model.config):
        return {(threshold, ENCODER): encode, (threshold, DECODER): decode}
    return {(threshold, MODEL): whole}


def evaluate(model: Any, batches: Sequence[Batch], threshold: float | None, generate: bool) -> dict[str, np.ndarray]:
    """Columns (N,) of `answered` and `depths` over all rows, and of what was `written`."""
    fields = {"hard_stop": False} if threshold is FULL_DEPTH else {}
    found = []
    with with_config(model, halting_threshold=threshold or 1.0, **fields):
        for batch in batches:
            output = model(**batch.inputs)
            writes = has_two_stacks(model.config)
            columns = answered(output, batch.labels, writes) | depths(output, batch.inputs, model.config)
            if generate:
                columns["written"] = written_right(model, batch)
            found.append(columns)
    return {name: np.concatenate([columns[name] for columns in found]) for name in found[0]}


def measured(config: Any, columns: Mapping[str, np.ndarray]) -> str:
    """What `right` is, in words."""
    if has_two_stacks(config):
        return "exact match"
    return "last-token accuracy" if "labelled" in columns else "accuracy"
