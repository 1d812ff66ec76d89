"""A trained model at several halting thresholds: accuracy, computed block calls and time at each.

Source: "Sparse Universal Transformer" (arXiv 2310.07096), section 4.4, which lowers the threshold after training and
counts the skipped block calls of ground-truth pairs.

A sweep is plain data: `halting`, `own_threshold` (the checkpoint's), `measured` (name of its accuracies), `n` examples,
`most_steps` of each stack, `repeats` of the timing, `thresholds`, a row for each, and `full_depth`, the row of a run
that takes every step. A row has

* `threshold` (None at full depth), `accuracy`, and of tokens `token_accuracy` and `loss` in nats per labelled token; of
  a model that answers for each token, `accuracy` is that of all labelled tokens;
* `lost` and `gained`: answers that are right at the checkpoint's own threshold and not here, and the other way round;
* `stacks`: of the `model`, or of `encoder`, `decoder` and `both`: `calls` of the block, their `share` of the maximum,
  and the `mean_depth` of an example, itself the mean over its units;
* `seconds` of a pass and `relative_time`, these over those at full depth.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..utils import plain
from .answers import Batch, answers, each_right, prepare_batch, require_right_answers
from .evaluate import median_seconds, timed_in_turn
from .exit_settings import FULL_DEPTH, threshold_fields
from .halting import BOTH, stack_depths
from .trials import executed_work, mean_depths

# those of the paper and three beyond them
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)


def checked_thresholds(thresholds: Sequence[float]) -> tuple[float, ...]:
    """Thresholds in order, each once.

    Raises:
        ValueError: there is none, or one is no halting mass.
    """
    wrong = [value for value in thresholds if not (math.isfinite(value) and 0 < value <= 1)]
    if wrong or not thresholds:
        raise ValueError(f"thresholds are {list(thresholds)}: pass halting masses above 0 and up to 1")
    return tuple(sorted({float(value) for value in thresholds}))


def require_halting(model: Any, name: str = "the model") -> None:
    """Raise a ValueError unless a threshold decides when `model` stops."""
    if model.config.capabilities.halting == "none":
        raise ValueError(
            f"{name} never halts (architecture {model.config.model_type!r}, halting='none'), so there is no threshold "
            "to lower: limit its depth with max_depth, or sweep a model that halts"
        )


def sweep_thresholds(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    repeats: int = 3,
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluate and time a model at each threshold -> plain data, as described at the top of this module.

    The model is also run at full depth: at threshold 1, with every unit taking every step even if it has halted
    (`hard_stop=False`), as a model of the same size without halting does. Times are relative to that.

    Args:
        model: a classifier of sequences or tokens, language model or sequence-to-sequence model that halts.
        batches: as of `evaluate_batches`.
        thresholds: halting masses in (0, 1]; the model's own is added.
        repeats: number of passes over all batches that are timed.
        progress: show a progress bar.

    Raises:
        ValueError: the model does not halt, there are no batches, or a threshold is no halting mass.
    """
    require_halting(model)
    require_right_answers(model)
    config, prepared = model.config, [prepare_batch(model, batch) for batch in batches]
    own, most_steps = float(config.halting_threshold), stack_depths(config)
    if not prepared:
        raise ValueError("there are no batches to sweep over")

    def read(batch: Batch, output: Any) -> dict[str, np.ndarray]:
        return {**answers(output, batch, config), **executed_work(output, batch.inputs, config)}

    settings = {value: threshold_fields(value) for value in (FULL_DEPTH, *checked_thresholds((*thresholds, own)))}
    timed = timed_in_turn(model, settings, prepared, repeats, read, progress)
    times = {value: median_seconds(seconds) for value, (seconds, _) in timed.items()}
    right = {value: each_right(examples["right"]) for value, (_, examples) in timed.items()}
    full, *rows = (
        {
            "threshold": value,
            **results(timed[value][1], most_steps),
            "lost": (right[own] & ~right[value]).sum(),
            "gained": (right[value] & ~right[own]).sum(),
            "seconds": times[value],
            "relative_time": times[value] / times[FULL_DEPTH],
        }
        for value in settings
    )
    measured = "last-token accuracy" if "token_accuracy" in full else "accuracy"
    return plain(
        {
            "halting": config.capabilities.halting,
            "own_threshold": own,
            "measured": "exact match" if config.capabilities.two_stacks else measured,
            "n": len(timed[own][1]),
            "most_steps": most_steps,
            "repeats": repeats,
            "full_depth": full,
            "thresholds": rows,
        }
    )


def results(examples: pd.DataFrame, most_steps: Mapping[str, int]) -> dict[str, Any]:
    """Accuracies and `stacks` of a row."""
    row = {"accuracy": each_right(examples["right"]).mean()}
    if "right_tokens" in examples:
        row["token_accuracy"] = examples["right_tokens"].sum() / examples["labelled"].sum()
    if "labelled" in examples:
        row["loss"] = np.average(examples["loss"], weights=examples["labelled"])
    groups = {stack: [stack] for stack in most_steps}
    if len(groups) > 1:
        groups[BOTH] = list(most_steps)
    row["stacks"] = {}
    for name, stacks in groups.items():
        calls = sum(examples[f"{stack}_calls"].sum() for stack in stacks)
        possible = sum(examples[f"{stack}_units"].sum() * most_steps[stack] for stack in stacks)
        depth = mean_depths(examples, stacks).mean()
        row["stacks"][name] = {"calls": calls, "share": calls / possible, "mean_depth": depth}
    return row
