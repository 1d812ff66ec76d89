"""Whether steps follow difficulty: one stated rule, so that a card cannot flatter its model."""

import math
from collections.abc import Mapping
from typing import Any

from ..analysis.halting import difficulty_key

SMALLEST_TREND = 0.1
MODERATE, STRONG = 0.3, 0.6
# columns of which more makes a row no harder: every read of a flip-flop string shows the bit again
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


def above_majority(row: Mapping[str, Any]) -> bool:
    """Whether an accuracy exceeds that of the most frequent answer by more than two of its standard errors.

    `row` is a table or a slice: `n`, `accuracy` and `majority_baseline` b, whose standard error is sqrt(b (1 - b) / n).
    """
    baseline = row["majority_baseline"]
    return row["accuracy"] > baseline + 2 * math.sqrt(baseline * (1 - baseline) / row["n"])


def one_valued(table: Mapping[str, Any]) -> list[str]:
    """The slice columns by which the rows of a table do not differ."""
    return [column for column, data in table["slices"].items() if len(data["rows"]) == 1]


def strength(correlation: float) -> str:
    """Size of a correlation in a word: "weakly" below 0.3, "moderately" below 0.6, else "strongly"."""
    size = abs(correlation)
    return "weakly" if size < MODERATE else "moderately" if size < STRONG else "strongly"


def steps_words(table: Mapping[str, Any]) -> str:
    """What the steps of a table's trends are called."""
    return "steps at the last read" if difficulty_key(table) == "answer_steps" else "steps"


def trends(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each numeric slice column: `column`, `spearman`, `direction`, and the `low` and `high` end rows.

    `steps` names the steps that are meant, and `low_mean` and `high_mean` are their means at the ends.
    """
    found, judged = [], difficulty_key(table)
    for column, data in table["slices"].items():
        if not data["numeric"]:
            continue
        direction = trend(data["spearman"], table["n"])
        found.append(
            {
                "column": column,
                "spearman": data["spearman"],
                "direction": direction,
                "strength": strength(data["spearman"]) if direction in ("grow", "shrink") else None,
                "low": data["rows"][0],
                "high": data["rows"][-1],
                "steps": steps_words(table),
                **{
                    f"{end}_mean": row[judged]["mean"] if row.get(judged) else None
                    for end, row in (("low", data["rows"][0]), ("high", data["rows"][-1]))
                },
            }
        )
    return found
