"""`HaltingRecord` -> a JSON table of accuracy, ponder steps and halting mass, overall and per slice."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...metrics.functional import accuracy, accuracy_by_slice, majority_accuracy, spearman, step_summary
from ...metrics.serialize import plain, write_json
from .buckets import bucketize
from .record import HaltingRecord
from .tokens import token_tables

STATS_FILE = "halting_stats.json"


def halting_table(record: HaltingRecord) -> dict[str, Any]:
    """Everything that a card says about one evaluation, as plain Python data without NaN.

    `steps` (mean, median, p95 over examples, each example being the mean over its units; max over units),
    `ponder_cost` (mean expected depth), `forced_halt_rate`, `halting_mass` (L + 1 values that sum to 1) and
    `steps_histogram` (L + 1 counts of units) are None for a model of fixed depth, which `fixed_depth` says.
    `slices` maps each column to its rows in order of difficulty and to `spearman`, the rank correlation of
    the examples' steps (see `judged_steps`) with the column (None where undefined or not numeric).

    `accuracy` of a language model is that of each row's last labelled token. Its table and slices have two more keys:
    `labelled_tokens` (`n` and `accuracy` of all of them) and `answer_steps` (as `steps`, of the token from which the
    last labelled one is predicted), and the table has `tokens`, steps by position and kind of token
    (see `token_tables`; None for a fixed depth).
    """
    table = {
        "n": len(record.labels),
        "accuracy": accuracy(record.predictions, record.labels),
        "majority_baseline": majority_accuracy(record.labels),
        "halting": record.halting,
        "unit": record.unit,
        "fixed_depth": record.fixed_depth,
        "max_steps": record.max_steps,
        "threshold": record.threshold,
        "steps": None,
        "ponder_cost": None,
        "forced_halt_rate": None,
        "halting_mass": None,
        "steps_histogram": None,
        "slices": {name: _slice_table(record, values) for name, values in record.slices.items()},
    }
    if not record.fixed_depth:
        table |= {
            "steps": step_summary(record.steps, record.deepest),
            "ponder_cost": record.ponder_cost.mean(),
            "forced_halt_rate": record.forced.mean(),
            "halting_mass": record.mass.mean(axis=0),
            "steps_histogram": record.step_counts.sum(axis=0),
        }
    table |= _token_results(record, np.full(table["n"], True))
    if record.tokens is not None:
        table["tokens"] = None if record.fixed_depth else token_tables(record.tokens)
    return plain(table)


def judged_steps(table: Mapping[str, Any]) -> str:
    """The key of the steps that are compared with difficulty: `steps`, or `answer_steps` of a language model.

    The mean over all tokens of a string says what it is made of: more of it to be ignored, fewer steps. What a column
    such as `distance` makes hard is the last read.
    """
    return "answer_steps" if table.get("answer_steps") else "steps"


def _token_results(record: HaltingRecord, members: np.ndarray) -> dict[str, Any]:
    """The keys that a language model's results have beside a classifier's, for the rows `members` `(N,)`."""
    tokens = record.tokens
    if tokens is None:
        return {}
    labelled = tokens.labelled[members].sum()
    return {
        "labelled_tokens": {"n": labelled, "accuracy": tokens.right[members].sum() / labelled},
        "answer_steps": None if record.fixed_depth else step_summary(tokens.answer_steps[members]),
    }


def _slice_table(record: HaltingRecord, values: np.ndarray) -> dict[str, Any]:
    """One column: rows with `value` (label), `low` and `high` (numeric bounds or None), results and steps."""
    index, labels, numeric = bucketize(values)
    results = accuracy_by_slice(record.predictions, record.labels, index)
    rows = []
    for bucket, label in enumerate(labels):
        members = index == bucket
        row = {
            "value": label,
            "low": values[members].min() if numeric else None,
            "high": values[members].max() if numeric else None,
            **results[bucket],
            "steps": None,
            "forced_halt_rate": None,
        }
        if not record.fixed_depth:
            row["steps"] = step_summary(record.steps[members], record.deepest[members])
            row["forced_halt_rate"] = record.forced[members].mean()
        row |= _token_results(record, members)
        rows.append(row)
    judged = record.steps if record.tokens is None else record.tokens.answer_steps
    related = None if record.fixed_depth or not numeric else spearman(judged, values)
    return {"numeric": numeric, "spearman": related, "rows": rows}


def write_stats(folder: str | os.PathLike, tables: Mapping[str, Any]) -> Path:
    """Write `tables` (split name -> table, or any JSON data) to `folder`/halting_stats.json in one step."""
    return write_json(Path(folder) / STATS_FILE, tables)
