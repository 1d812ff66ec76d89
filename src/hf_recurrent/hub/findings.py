"""Rules for claims of a card: a trend, a score above the majority class, a harmless threshold. No card can flatter."""

import math
from collections.abc import Mapping
from typing import Any

from ..analysis.halting import difficulty_key

SMALLEST_TREND = 0.1
MODERATE, STRONG = 0.3, 0.6
# columns of which more makes an example no harder: every read of a flip-flop string shows the bit again
NO_DIFFICULTY = frozenset({"num_reads"})


def trend(correlation: float | None, examples: int) -> str:
    """ "grow", "shrink", "flat", "unclear" or "undefined" for a Spearman correlation of steps with difficulty.

    A trend must reach 0.1 in size and exceed twice the correlation's own sampling error 1 / sqrt(n - 1). Where that
    error hides a correlation of 0.1, what is no trend is unclear; where it does not, it is flat.
    """
    if correlation is None:
        return "undefined"
    error = 2 / math.sqrt(examples - 1)
    if abs(correlation) < max(SMALLEST_TREND, error):
        return "unclear" if error > SMALLEST_TREND else "flat"
    return "grow" if correlation > 0 else "shrink"


def strength(correlation: float) -> str:
    """Size of a correlation in a word: "weakly" below 0.3, "moderately" below 0.6, else "strongly"."""
    size = abs(correlation)
    return "weakly" if size < MODERATE else "moderately" if size < STRONG else "strongly"


def steps_name(table: Mapping[str, Any]) -> str:
    """Name of the steps that a table compares with difficulty."""
    return "steps at the last read" if difficulty_key(table) == "answer_steps" else "steps"


def trends(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each numeric slice column: `column`, `spearman`, `direction`, and the `low` and `high` end rows.

    `steps` names the steps that are meant, and `low_mean` and `high_mean` are their means at the ends.
    """
    found, key = [], difficulty_key(table)
    for column, data in table["slices"].items():
        if not data["numeric"]:
            continue
        direction, ends = trend(data["spearman"], table["n"]), {"low": data["rows"][0], "high": data["rows"][-1]}
        means = {f"{end}_mean": row[key]["mean"] if row.get(key) else None for end, row in ends.items()}
        found.append(
            {
                "column": column,
                "spearman": data["spearman"],
                "direction": direction,
                "strength": strength(data["spearman"]) if direction in ("grow", "shrink") else None,
                "steps": steps_name(table),
                **ends,
                **means,
            }
        )
    return found


def above_majority(row: Mapping[str, Any]) -> bool:
    """Whether an accuracy exceeds that of the most frequent answer by more than two of its standard errors.

    `row` is a table or a slice: `n`, `accuracy` and `majority_baseline` b, whose standard error is sqrt(b (1 - b) / n).
    """
    baseline = row["majority_baseline"]
    return row["accuracy"] > baseline + 2 * math.sqrt(baseline * (1 - baseline) / row["n"])


def constant_columns(table: Mapping[str, Any]) -> list[str]:
    """The slice columns that have one value in all examples of a table."""
    return [column for column, data in table["slices"].items() if len(data["rows"]) == 1]


def own_row(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the checkpoint's own threshold."""
    return next(row for row in sweep["thresholds"] if row["threshold"] == sweep["own_threshold"])


def loses(row: Mapping[str, Any]) -> bool:
    """Whether a threshold gets measurably fewer examples right than the checkpoint's own.

    Both are evaluated on the same examples, so only those count whose answer changed: the loss must exceed two standard
    errors, which is two roots of their number (McNemar 1947).
    """
    return row["lost"] - row["gained"] > 2 * math.sqrt(row["lost"] + row["gained"])


def lowest_harmless(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the lowest threshold down to which none loses measurably."""
    found = own_row(sweep)
    for row in reversed(sweep["thresholds"]):
        if row["threshold"] < sweep["own_threshold"]:
            if loses(row):
                break
            found = row
    return found
