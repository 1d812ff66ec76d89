"""Rules for claims of a card: a trend, a score above the majority class, a harmless threshold. No card can flatter."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.halting import difficulty_key
from ..analysis.tables import is_ordered
from ..models.common.exit_criteria import CRITERIA, FIXED, LEARNED

SMALLEST_TREND = 0.1
# examples of which a rank correlation can be computed
FEWEST = 3
MODERATE, STRONG = 0.3, 0.6
# examples of a bucket whose mean stands for one end of a difficulty
FEWEST_AT_END = 10
# share of answers that must be wrong, to tell from them what is hard
FEWEST_ERRORS = 0.05
# mean steps below which a model hardly uses its depth
FEWEST_STEPS = 1.5
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


def main_column(table: Mapping[str, Any]) -> str | None:
    """The numeric difficulty column that its benchmark lists first, None where there is none.

    One with several values, if there is any: all strings of a split may have the same length.
    """
    slices = table["slices"]
    numeric = [column for column, data in slices.items() if data["numeric"] and column not in NO_DIFFICULTY]
    return next((column for column in numeric if len(slices[column]["rows"]) > 1), next(iter(numeric), None))


def trends(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trend of steps with each numeric slice column of a table, as `relation` gives it."""
    key = difficulty_key(table)
    return [
        relation(
            column,
            data["spearman"],
            table["n"],
            [(row["value"], row[key]["mean"] if row.get(key) else None, row["n"]) for row in data["rows"]],
            table[key]["mean"] if table.get(key) else None,
            steps_name(table),
        )
        for column, data in table["slices"].items()
        if data["numeric"]
    ]


def main_trend(table: Mapping[str, Any]) -> dict[str, Any]:
    """The trend of steps with the main difficulty of a table of a model that halts, as `relation` gives it."""
    column = main_column(table)
    found = next((item for item in trends(table) if item["column"] == column), None)
    if found is None:
        return relation(None, None, table["n"], (), table[difficulty_key(table)]["mean"], steps_name(table))
    return {**found, "harder": accuracy_falls(table["slices"][column]["rows"])}


def by_direction(items: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Trends as `relation` gives them, those of one direction together."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for item in items:
        groups.setdefault(item["direction"], []).append(item)
    return list(groups.values())


def calibrated_trend(calibration: Mapping[str, Any], split: str) -> dict[str, Any]:
    """The trend of the calibrated exit's steps on a test split, as `relation` gives it."""
    found = calibration["tests"][split]
    rows = found["by_difficulty"]
    buckets = [(row["value"], row["mean_depth"], row["n"]) for row in rows]
    column = calibration["difficulty"] if is_ordered(row["value"] for row in rows) else None
    harder = None if column is None else accuracy_falls(rows)
    return {**relation(column, found["spearman"], found["n"], buckets, found["mean_depth"]), "harder": harder}


def collapsed_halting(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with learned halting that stops at once, or earlier on longer inputs, in a sentence, and a remedy.

    Args:
        tables: of the splits of a model, by their names: those of examples, texts or documents.
    """
    for split, table in tables.items():
        if table["fixed_depth"] or table["halting"] in CRITERIA or table["max_depth"] == 1:
            continue
        mean = table["steps"]["mean"] if "steps" in table else table["mean_steps"]
        columns = table.get("slices", table.get("by_column", {}))
        correlation = columns.get("length", {}).get("spearman")
        if mean < FEWEST_STEPS:
            found = f"takes {mean:.2f} of {table['max_depth']} depth steps on average"
        elif trend(correlation, table.get("n", table.get("documents"))) == "shrink" and correlation <= -MODERATE:
            found = f"takes fewer depth steps on longer inputs (rank correlation {correlation:.2f})"
        else:
            continue
        return [
            f"Learned halting has collapsed: on `{split}` the model {found}. Train with `halting: none` and "
            "`depth_objective: every_step`, and choose when it stops by `hf-recurrent calibrate`."
        ]
    return []


def accuracy_falls(rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether accuracy falls along buckets of a difficulty: `n` and `accuracy` of each, in order.

    The fall must exceed two standard errors (Cochran 1954, Armitage 1955: trend of proportions, equally spaced). None
    where there is nothing to compare, no accuracy is known, fewer than 5% of the answers are wrong, or answers are
    numbers.
    """
    accuracies, numbers = [row.get("accuracy") for row in rows], [row["n"] for row in rows]
    if len(rows) < 2 or None in accuracies or any(of_numbers(row) for row in rows):
        return None
    mean = sum(n * accuracy for n, accuracy in zip(numbers, accuracies, strict=True)) / sum(numbers)
    if mean > 1 - FEWEST_ERRORS or mean == 0:
        return None
    middle = sum(n * place for place, n in enumerate(numbers)) / sum(numbers)
    parts = [
        (n, place - middle, accuracy - mean)
        for place, (n, accuracy) in enumerate(zip(numbers, accuracies, strict=True))
    ]
    slope = sum(n * place * above for n, place, above in parts)
    return slope < -2 * math.sqrt(mean * (1 - mean) * sum(n * place**2 for n, place, _ in parts))


def relation(
    column: str | None,
    spearman: float | None,
    examples: int,
    buckets: Sequence[tuple[str, float | None, int]],
    mean: float | None,
    steps: str = "steps",
) -> dict[str, Any]:
    """The trend of steps with a difficulty: its `direction` and `strength` in words, and the means at both ends.

    The ends are the outermost buckets of at least 10 examples, if there are two of them.

    `direction` is "unmeasured" without a column, "constant" where one value is all there is, "same" where every example
    takes the same steps, and otherwise that of `trend`.

    Args:
        buckets: value, mean steps and number of examples of each bucket, in order of difficulty.
        mean: that of all examples.
        steps: name of the steps that are meant.
    """
    direction = trend(spearman, examples)
    if direction == "undefined" and examples >= FEWEST:
        direction = "same" if len(buckets) > 1 else "constant"
    if column is None or not buckets:
        column, direction, spearman, buckets = None, "unmeasured", None, [("", mean, examples)]
    large = [bucket for bucket in buckets if bucket[2] >= FEWEST_AT_END]
    ends = large if len(large) > 1 else buckets
    (low, low_mean, _), (high, high_mean, _) = ends[0], ends[-1]
    return {
        "column": column,
        "direction": direction,
        "strength": strength(spearman) if spearman is not None and direction in ("grow", "shrink") else None,
        "spearman": spearman,
        "n": examples,
        "steps": steps,
        "mean": mean,
        "low": low,
        "high": high,
        "low_mean": low_mean,
        "high_mean": high_mean,
    }


def has_exit(calibration: Mapping[str, Any] | None) -> bool:
    """Whether a calibration chose an exit that stops the model, rather than a fixed depth."""
    return calibration is not None and calibration["chosen"] is not None and calibration["chosen"]["criterion"] != FIXED


def is_calibrated(calibration: Mapping[str, Any] | None) -> bool:
    """Whether a calibration chose an exit that stops the model, and checked it on examples that had no part in it."""
    return has_exit(calibration) and bool(calibration["tests"])


def measured_as_trained(calibration: Mapping[str, Any] | None, halting: str, threshold: float | None = None) -> bool:
    """Whether results of a model that stops by `halting` are older than the exit that was calibrated since.

    Args:
        threshold: that of the results, by which a halting head that was calibrated is told from a trained one.
    """
    if not has_exit(calibration):
        return False
    chosen = calibration["chosen"]
    return threshold != chosen["threshold"] if chosen["criterion"] == LEARNED else chosen["criterion"] != halting


def depth_trends(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trend of steps with the main difficulty, on the card's first split: `relation`, `split` and `above`.

    With a calibrated exit it is that of its steps, on each of its test splits. Empty where depth is fixed, and of
    documents. `above` says whether accuracy exceeds that of the most frequent answer, None where this is not known.
    """
    tables = {result["split"]: result["table"] for result in card["results"]}
    if is_calibrated(card["calibration"]):
        tests = card["calibration"]["tests"]
        return [
            {"split": split, "above": _above(found, tables.get(split)), **calibrated_trend(card["calibration"], split)}
            for split, found in tests.items()
        ]
    split, table = next(iter(tables.items()))
    if table["fixed_depth"] or "slices" not in table:
        return []
    return [{"split": split, "above": above_majority(table), **main_trend(table)}]


def _above(found: Mapping[str, Any], table: Mapping[str, Any] | None) -> bool | None:
    # that of documents has bits, and no answers
    if table is None or found["accuracy"] is None or "majority_baseline" not in table:
        return None
    return above_majority({**found, "majority_baseline": table["majority_baseline"]})


def time_saved(card: Mapping[str, Any]) -> dict[str, Any] | None:
    """Time that stopping early saves, as a fraction of full depth's, and the `change` of accuracy that it costs.

    It is measured on the first test split of the calibrated exit, or else in the first sweep of the halting threshold
    at the checkpoint's own; None where neither was made. `change` is None where there are no labels.
    """
    if is_calibrated(card["calibration"]):
        split, found = next(iter(card["calibration"]["tests"].items()))
        early, full = found["accuracy"], found["full_accuracy"]
    elif card["sweep"]:
        split, sweep = next(iter(card["sweep"].items()))
        found = own_row(sweep)
        early, full = found["accuracy"], sweep["full_depth"]["accuracy"]
    else:
        return None
    change = None if early is None or full is None else early - full
    return {"split": split, "saved": 1 - found["relative_time"], "change": change}


def timed_depths(calibration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fixed depths whose time is known."""
    return [row for row in calibration["fixed_depths"] if row["relative_time"] is not None]


def fixed_rival(calibration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fastest fixed depth that is as accurate as the calibrated exit on the calibration split; None without one."""
    accuracy = calibration["calibrated"]["accuracy"]
    rivals = [row for row in timed_depths(calibration) if accuracy is not None and row["accuracy"] >= accuracy]
    return min(rivals, key=lambda row: row["relative_time"], default=None)


def fixed_depths(calibration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fixed depths to set beside the calibrated exit: that nearest to it in time, and its `fixed_rival`."""
    time, rival = calibration["calibrated"]["relative_time"], fixed_rival(calibration)
    rows = timed_depths(calibration)
    nearest = min(rows, key=lambda row: abs(row["relative_time"] - time), default=None)
    return [row for row in rows if row is nearest or row is rival]


def above_majority(row: Mapping[str, Any]) -> bool:
    """Whether an accuracy exceeds that of the most frequent answer by more than two of its standard errors.

    `row` is a table or a slice: `n`, `accuracy` and `majority_baseline` b, whose standard error is sqrt(b (1 - b) / n).
    """
    baseline = row["majority_baseline"]
    return row["accuracy"] > baseline + 2 * math.sqrt(baseline * (1 - baseline) / row["n"])


def of_numbers(row: Mapping[str, Any]) -> bool:
    """Whether answers are numbers, so that "accuracy" is no share of right answers but of the variance explained.

    Their mean explains none of it, while the most frequent of other answers is right at least once.
    """
    return row.get("majority_baseline") == 0


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


def better_models(compared: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The other models that get measurably more right on the split of `result`, one of a card's results.

    The mean of their runs must exceed the card's accuracy p by more than two standard errors of the difference of two
    shares of n examples, sqrt(2 p (1 - p) / n). None is told where answers are numbers.
    """
    if of_numbers(result["table"]):
        return []
    split, own, n = result["split"], result["table"]["accuracy"], result["table"]["n"]
    bar = own + 2 * math.sqrt(2 * own * (1 - own) / n)
    rivals = [item for item in compared if not item["same_model"] and split in item["values"]]
    return [item for item in rivals if statistics.fmean(item["values"][split]) > bar]


def several_runs(compared: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are several runs of one of the models that a card sets side by side."""
    return any(item["same_model"] or len(runs) > 1 for item in compared for runs in item["values"].values())
