"""Columns of a sweep -> rows of a table, and the file they are kept in.

A sweep is plain data: `halting`, `own_threshold` (the checkpoint's), `measured` (what its accuracies are), `n` rows,
`most_steps` of each stack, `repeats` of the timing, `thresholds`, a row for each, and `full_depth`, the row of a run
that takes every step. A row has

* `threshold` (None at full depth), `accuracy`, and of tokens `token_accuracy` and `loss` in nats per labelled token;
  `written_accuracy` where the model wrote by itself;
* `lost` and `gained`: rows that are right at the checkpoint's own threshold and not here, and the other way round;
* `stacks`: of the `model`, or of `encoder`, `decoder` and `both`: `calls` of the block, their `share` of the most that
  is possible, and the `mean_depth` of a row, itself the mean over its units; but of both `seconds` and `relative_time`;
* `seconds` of a pass and `relative_time`, these over those at full depth;
* `slices`: column -> `n`, `accuracy`, `share` and `mean_depth` of each of its buckets.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...metrics.serialize import write_json
from ..halting.buckets import bucketize

SWEEP_FILE = "halting_sweep.json"
BOTH = "both"


def summary(columns: Mapping[str, np.ndarray], most_steps: Mapping[str, int]) -> dict[str, Any]:
    """What a row says of all examples together."""
    row = {"accuracy": columns["right"].mean()}
    if "labelled" in columns:
        labelled = columns["labelled"].sum()
        row["token_accuracy"] = columns["right_tokens"].sum() / labelled
        row["loss"] = columns["nats"].sum() / labelled
    if "written" in columns:
        row["written_accuracy"] = columns["written"].mean()
    row["stacks"] = work(columns, most_steps, np.full(len(columns["right"]), True))
    return row


def work(
    columns: Mapping[str, np.ndarray], most_steps: Mapping[str, int], members: np.ndarray
) -> dict[str, dict[str, float]]:
    """What the rows `members` (N,) compute in each stack, and in both."""
    found, possible = {}, {}
    for stack, most in most_steps.items():
        units = columns[f"{stack}_units"][members]
        calls, possible[stack] = columns[f"{stack}_calls"][members].sum(), units.sum() * most
        found[stack] = {
            "calls": calls,
            "share": calls / possible[stack],
            "mean_depth": columns[f"{stack}_depth"][members].mean(),
        }
    if len(most_steps) > 1:
        weights = {stack: columns[f"{stack}_units"][members] for stack in most_steps}
        depth = sum(columns[f"{stack}_depth"][members] * weights[stack] for stack in most_steps)
        calls = sum(found[stack]["calls"] for stack in most_steps)
        found[BOTH] = {
            "calls": calls,
            "share": calls / sum(possible.values()),
            "mean_depth": (depth / sum(weights.values())).mean(),
        }
    return found


def add_times(row: dict[str, Any], seconds: Mapping[str, tuple[float, float]]) -> None:
    """Give a row its times, from those of each stack here and at full depth."""
    for stack, (here, full) in seconds.items():
        row["stacks"][stack] |= {"seconds": here, "relative_time": here / full}
    row["seconds"] = sum(here for here, _ in seconds.values())
    row["relative_time"] = row["seconds"] / sum(full for _, full in seconds.values())


def together(stacks: Mapping[str, Any]) -> dict[str, float]:
    """The work of all stacks of a row."""
    return stacks[BOTH] if BOTH in stacks else next(iter(stacks.values()))


def compare(columns: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray]) -> dict[str, int]:
    """How many rows the checkpoint's own threshold gets right and this one does not, and the other way round."""
    here, there = columns["right"], own["right"]
    return {"lost": (there & ~here).sum(), "gained": (here & ~there).sum()}


def add_slices(
    row: dict[str, Any],
    columns: Mapping[str, np.ndarray],
    most_steps: Mapping[str, int],
    slices: Mapping[str, Sequence],
) -> None:
    """Give a row its `slices`.

    Raises:
        ValueError: a slice column has not one value for each example.
    """
    row["slices"] = {}
    for column, values in slices.items():
        values = np.asarray(values)
        if values.shape != columns["right"].shape:
            raise ValueError(
                f"slice column '{column}' has shape {values.shape}, but there are {len(columns['right'])} rows"
            )
        index, labels, _ = bucketize(values)
        row["slices"][column] = [
            {
                "value": label,
                "n": (index == bucket).sum(),
                "accuracy": columns["right"][index == bucket].mean(),
                **{
                    name: value
                    for name, value in together(work(columns, most_steps, index == bucket)).items()
                    if name != "calls"
                },
            }
            for bucket, label in enumerate(labels)
        ]


def write_sweep(folder: str | os.PathLike, tables: Mapping[str, Any]) -> Path:
    """Write `{"splits": tables}`, split -> sweep, to `folder`/halting_sweep.json in one step."""
    return write_json(Path(folder) / SWEEP_FILE, {"splits": tables})
