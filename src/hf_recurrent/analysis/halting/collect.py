"""One evaluation pass over labelled batches -> `HaltingRecord`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...metrics.functional import step_histogram
from .inference import Units, answers, as_numpy, halting_of, inference_mode, read_units, split_labels, to_device
from .record import HaltingRecord, fit_depth, halting_mass
from .tokens import TokenCounts, TokenKinds, TokenRecord


def collect(
    model: torch.nn.Module,
    batches: Iterable[Mapping[str, Any]],
    *,
    slices: Mapping[str, Sequence] | None = None,
    max_steps: int | None = None,
    halting_threshold: float | None = None,
    kinds: TokenKinds | None = None,
    progress: bool = False,
) -> HaltingRecord:
    """Run a model over `batches` and keep, per example, what it answered and when it stopped.

    The answer of a causal language model is what it predicts as the row's last labelled token.

    Args:
        model: a sequence classifier or causal language model with `config`; its training mode is restored afterwards.
        batches: a data loader or any iterable of batches with `labels`: `(B,)` classes, or `(B, S)` token ids aligned
            with `input_ids`, -100 where there is none.
        slices: column name -> one value per example, in the order of the batches.
        max_steps: depth limit of this run, in steps; None keeps the configured depth.
        halting_threshold: threshold of this run; None keeps the configured one.
        kinds: kinds of tokens to tell apart in the halting statistics of a language model.
        progress: show a progress bar.
    """
    overrides = {"max_steps": max_steps, "halting_threshold": halting_threshold}
    options = {name: value for name, value in overrides.items() if value is not None}
    halting = halting_of(model.config)
    depth = model.config.num_hidden_layers if max_steps is None else max_steps
    threshold = options.get("halting_threshold", getattr(model.config, "halting_threshold", None))
    kind, columns, counts = None, [], TokenCounts(depth, kinds)
    with inference_mode(model):
        for batch in with_progress(batches, progress, "halting statistics", "batch"):
            inputs, labels = split_labels(to_device(batch, model))
            output = model(**inputs, output_halting=True, **options)
            column = answers(output, labels)
            if halting != "none":
                units = read_units(output, model.config)
                kind = units.kind
                column |= halting_columns(units, depth, halting)
                column["ponder_cost"] = as_numpy(output.ponder_cost)
                if "answer_at" in column:
                    column["answer_steps"] = np.take_along_axis(units.steps, column["answer_at"][:, None], 1)[:, 0]
                    counts.add(inputs["input_ids"].cpu().numpy(), units.steps)
            columns.append(column)
    if not columns:
        raise ValueError("no batches to collect halting statistics from")
    joined = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
    return HaltingRecord(
        halting=halting,
        unit=kind,
        max_steps=depth,
        threshold=None if halting == "none" else threshold,
        slices=_slice_columns(slices or {}, len(joined["labels"])),
        tokens=_token_record(joined, counts),
        **joined,
    )


def _token_record(joined: dict[str, np.ndarray], counts: TokenCounts) -> TokenRecord | None:
    """What a language model's columns and counts say; takes its columns out of `joined`."""
    if joined.pop("answer_at", None) is None:
        return None
    labelled, right, steps = joined.pop("labelled"), joined.pop("right"), joined.pop("answer_steps", None)
    if steps is None:
        return TokenRecord(labelled, right)
    names = () if counts.kinds is None else counts.kinds.names
    return TokenRecord(labelled, right, steps, counts.positions, counts.by_kind, names)


def halting_columns(units: Units, depth: int, halting: str) -> dict[str, np.ndarray]:
    """Per-example arrays `(B,)` and `(B, L + 1)` from one batch of units."""
    rows = []
    for steps, probabilities in zip(units.steps, units.probabilities, strict=True):
        live = steps >= 0
        if not live.any():
            raise ValueError("an example has no halting unit: all its positions are padding")
        steps = steps[live]
        probabilities = fit_depth(probabilities[live], depth)
        mass = halting_mass(probabilities, steps, halting).mean(axis=0)
        forced = (steps == depth).mean()
        rows.append((steps.mean(), steps.max(), forced, mass, step_histogram(steps, depth)))
    names = ("steps", "deepest", "forced", "mass", "step_counts")
    return {name: np.stack(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _slice_columns(slices: Mapping[str, Sequence], examples: int) -> dict[str, np.ndarray]:
    """Slice columns as arrays `(N,)`, each as long as the data."""
    columns = {name: np.asarray(values) for name, values in slices.items()}
    for name, values in columns.items():
        if values.shape != (examples,):
            raise ValueError(f"slice column '{name}' has shape {values.shape}, but there are {examples} examples")
    return columns


def with_progress(items: Iterable, progress: bool, what: str, unit: str) -> Iterable:
    """The items, with a progress bar if there shall be one."""
    if not progress:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=what, unit=unit)
