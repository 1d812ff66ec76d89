"""Rules for what a card may claim: a trend, a score above the majority baseline, a threshold that loses nothing."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..analysis.halting import difficulty_key, is_ordered
from ..models.config.exit_criteria import CRITERIA, FIXED, LEARNED
from ..utils import Json

SMALLEST_TREND = 0.1
MODERATE = 0.3
# examples of which a rank correlation can be computed
FEWEST = 3
# examples of a bucket whose mean stands for one end of a difficulty, or that may be at the majority baseline
FEWEST_IN_BUCKET = 10
# share of answers that must be wrong, to tell from them what is hard
FEWEST_ERRORS = 0.05
# documents of which no number is sure
FEW_DOCUMENTS = 30
# mean steps below which a model hardly uses its depth
FEWEST_STEPS = 1.5
# columns of which more makes an example no harder: every read of a flip-flop string shows the bit again
NO_DIFFICULTY = frozenset({"num_reads"})
# splits whose examples are not unlike those of training
ALIKE = (None, "as in training", "part of training")
ALL_TESTS = "all tested splits"
NO_BUCKET = {"value": None, "mean_depth": None}
# direction of steps with difficulty -> whether the model thinks longer on harder input, and why
ANSWERS = {
    "grow": ("Yes", "steps grow with {column} on {split}"),
    "shrink": ("No", "steps shrink as {column} grows on {split}"),
    "flat": ("No", "steps do not change with {column} on {split}"),
    "same": ("No", "every input of {split} takes the same steps"),
    "unclear": ("Not known", "{n:,} inputs of {split} are too few"),
    "constant": ("Not known", "all inputs of {split} have the same {column}"),
    "unmeasured": ("Not known", "no column orders the inputs of {split} by difficulty"),
}


def two_errors(share: float, *sizes: int) -> float:
    """Two standard errors of a share of `n` examples or, with two sizes, of the difference of two shares."""
    return 2 * math.sqrt(share * (1 - share) * sum(1 / size for size in sizes))


def above_majority(row: Json) -> bool | None:
    """Whether the `accuracy` of `n` examples exceeds their `majority_baseline` by over two of its standard errors.

    None where one of them is not known.
    """
    accuracy, baseline = row["accuracy"], row["majority_baseline"]
    return None if None in (accuracy, baseline) else accuracy > baseline + two_errors(baseline, row["n"])


def of_numbers(row: Json) -> bool:
    """Whether answers are numbers, so that "accuracy" is no share of right answers but of the variance explained.

    Their mean explains none of it, while the most frequent of other answers is right at least once.
    """
    return row.get("majority_baseline") == 0


def accuracy_falls(low: Json, high: Json) -> bool | None:
    """Whether accuracy falls from one bucket of a difficulty to another, by over two standard errors.

    None where no accuracy is known, fewer than 5% of the answers are wrong, or answers are numbers.
    """
    if None in (low["accuracy"], high["accuracy"]) or of_numbers(low):
        return None
    mean = (low["accuracy"] * low["n"] + high["accuracy"] * high["n"]) / (low["n"] + high["n"])
    if not 0 < mean <= 1 - FEWEST_ERRORS:
        return None
    return low["accuracy"] - high["accuracy"] > two_errors(mean, low["n"], high["n"])


# ---- do steps follow difficulty?


def trend(correlation: float | None, examples: int) -> str:
    """ "grow", "shrink", "flat", "unclear", or "same" for a Spearman correlation of steps with difficulty.

    A trend must reach 0.1 in size and exceed twice the correlation's own sampling error 1 / sqrt(n - 1). Where that
    error hides a correlation of 0.1, what is no trend is unclear; where it does not, it is flat. Without a correlation,
    all steps are the same.
    """
    if correlation is None:
        return "same"
    error = 2 / math.sqrt(examples - 1)
    if abs(correlation) < max(SMALLEST_TREND, error):
        return "unclear" if error > SMALLEST_TREND else "flat"
    return "grow" if correlation > 0 else "shrink"


def relation(
    split: str,
    column: str | None,
    spearman: float | None,
    buckets: Sequence[Json],
    whole: Json,
) -> dict:
    """The `direction` of steps with a difficulty, the means at both ends, and whether more of it is `harder`.

    The ends are the outermost buckets of at least 10 examples, if there are two of them. `direction` is "unmeasured"
    where nothing orders the examples, "unclear" of fewer than three, "constant" where all have the same value of the
    column, and otherwise that of `trend`; without an ordered column, `column` is None.
    `above` says whether answers are better than the majority baseline; None: not known.

    Args:
        buckets: `value`, `mean_depth`, `n` and `accuracy` of each, in order of difficulty.
        whole: `n`, `accuracy`, `mean_depth` and `majority_baseline` of all examples.
    """
    if not is_ordered(bucket["value"] for bucket in buckets):
        buckets = ()
    large = [bucket for bucket in buckets if bucket["n"] >= FEWEST_IN_BUCKET]
    ends = large if len(large) > 1 else [*buckets] or [NO_BUCKET]
    low, high = ends[0], ends[-1]
    direction = "unmeasured" if not buckets else "unclear" if whole["n"] < FEWEST else "constant"
    if len(buckets) > 1 and whole["n"] >= FEWEST:
        direction = trend(spearman, whole["n"])
    return {
        "split": split,
        "column": column if buckets else None,
        "direction": direction,
        "spearman": spearman,
        "n": whole["n"],
        "mean": whole["mean_depth"],
        "accuracy": whole["accuracy"],
        "above": above_majority(whole),
        "low": low["value"],
        "high": high["value"],
        "low_mean": low["mean_depth"],
        "high_mean": high["mean_depth"],
        "harder": None if low is high else accuracy_falls(low, high),
    }


def main_column(table: Json) -> str | None:
    """The numeric difficulty column that comes first, one with several values if there is any; None without one."""
    slices = table["slices"]
    numeric = [column for column, data in slices.items() if data["numeric"] and column not in NO_DIFFICULTY]
    return next((column for column in numeric if len(slices[column]["rows"]) > 1), next(iter(numeric), None))


def main_trend(split: str, table: Json) -> dict:
    """The trend of steps with the main difficulty of a table of a model that halts, as `relation` gives it."""
    column, key = main_column(table), difficulty_key(table)
    data = table["slices"].get(column, {"spearman": None, "rows": ()})
    buckets = [{**row, "mean_depth": (row.get(key) or {}).get("mean")} for row in data["rows"]]
    return relation(split, column, data["spearman"], buckets, {**table, "mean_depth": table[key]["mean"]})


def trends(results: Json) -> list[dict]:
    """How steps follow the main difficulty, as `relation` gives it.

    Of a calibrated exit they are of the splits that it was tested on, of which all together come first; otherwise of
    all splits of a model that halts.
    """
    splits, calibration = results["splits"], results["calibration"]
    if not is_adaptive(results):
        return []
    if not has_exit(results) or not calibration["tests"]:
        halted = ((split, table) for split, table in splits.items() if not table["fixed_depth"] and "slices" in table)
        return [main_trend(split, table) for split, table in halted]
    rows = []
    for split, test in calibration["tests"].items():
        whole = {**test, "majority_baseline": splits.get(split, {}).get("majority_baseline")}
        rows.append(relation(split, calibration["difficulty"], test["spearman"], test["by_difficulty"], whole))
    return rows


def adaptivity(results: Json) -> dict:
    """Whether a model thinks longer on harder input: the `answer`, its `reason` in a sentence, and the `rows` of both.

    The answer is "Yes" only where steps grow within splits as well as over them: the means of splits alone correlate,
    too.
    """
    rows = trends(results)
    if not is_adaptive(results):
        steps = (chosen(results) or results["model"])["max_depth"]
        return {"answer": "No", "reason": f"it runs all {steps} steps on every input", "rows": rows}
    if not rows:
        reason = "no column orders the inputs by difficulty"
        if has_exit(results):
            reason = "the exit was measured only on the examples that chose it"
        return {"answer": "Not known", "reason": reason, "rows": rows}
    first, direction = rows[0], rows[0]["direction"]
    names = {"split": f"`{first['split']}`", "column": f"`{first['column']}`"}
    answer, reason = ANSWERS[direction]
    reason = reason.format(**{**first, **names})
    within = [row for row in rows if row["split"] != ALL_TESTS]
    against = [row for row in within if row["direction"] in ("flat", "same", "shrink")]
    if direction != "same" and first["harder"] is False:
        answer = "Not known"
        reason = "accuracy does not fall with {column} on {split}, so it is no measure of difficulty".format(**names)
    elif direction == "grow" and against:
        measured = [row for row in within if row["accuracy"] is not None]
        hardest = min(measured, key=lambda row: row["accuracy"], default=None)
        places = [f"`{row['split']}`{', the hardest split' if row is hardest else ''}" for row in against]
        answer, reason = "Partly", f"{reason}, but not within {' and '.join(places)}"
    else:
        if direction == "grow" and first["spearman"] < MODERATE:
            answer = "Weakly"
        if first["above"] is False:
            reason += ", where its answers are no better than the majority baseline"
    return {"answer": answer, "reason": reason, "rows": rows}


def collapsed_halting(tables: Mapping[str, Json]) -> list[str]:
    """What is wrong with learned halting that stops at once, or earlier on longer inputs, in a sentence, and a remedy.

    Args:
        tables: of the splits of a model, by their names: those of examples, texts or documents.
    """
    for split, table in tables.items():
        if table["fixed_depth"] or table["halting"] in CRITERIA or table["max_depth"] == 1:
            continue
        mean = table["steps"]["mean"] if "steps" in table else table["mean_steps"]
        correlation = table.get("slices", table.get("by_column", {})).get("length", {}).get("spearman")
        shrinks = trend(correlation, table.get("n", table.get("documents"))) == "shrink"
        if mean < FEWEST_STEPS:
            symptom = f"takes {mean:.2f} of {table['max_depth']} depth steps on average"
        elif shrinks and correlation <= -MODERATE:
            symptom = f"takes fewer depth steps on longer inputs (rank correlation {correlation:.2f})"
        else:
            continue
        return [
            f"Learned halting has collapsed: on `{split}` the model {symptom}. Train with `halting: none` and "
            "`depth_objective: every_step`, and choose when it stops by `hf-recurrent calibrate`."
        ]
    return []


# ---- what does stopping early save?


def chosen(results: Json) -> Json:
    """The exit or fixed depth that a calibration chose; empty where there was none."""
    return (results["calibration"] or {}).get("chosen") or {}


def has_exit(results: Json) -> bool:
    """Whether a calibration chose an exit that stops the model, rather than a fixed depth."""
    return chosen(results).get("criterion", FIXED) != FIXED


def is_adaptive(results: Json) -> bool:
    """Whether inputs may take different numbers of steps."""
    return has_exit(results) if chosen(results) else results["model"]["halting"] != "none"


def measured_before(results: Json, table: Json) -> bool:
    """Whether the results of a split are older than the exit or fixed depth that was calibrated."""
    setting = chosen(results)
    if not setting:
        return False
    if key := {FIXED: "max_depth", LEARNED: "threshold"}.get(setting["criterion"]):
        return table.get(key) != setting[key]
    return table["halting"] != setting["criterion"]


def certifies_depths(calibration: Json) -> bool:
    """Whether the risk of fixed depths was tested; earlier versions tested that of exits alone."""
    return calibration["budget"] is None and any("safe" in row for row in calibration["fixed_depths"])


def best_fixed_depth(calibration: Json) -> Json | None:
    """The fastest fixed depth that is certified as the exit is or, where none was tested, that is as accurate."""
    accuracy, certified = calibration["calibrated"]["accuracy"], certifies_depths(calibration)
    rows = [
        row
        for row in calibration["fixed_depths"]
        if row["relative_time"] is not None
        and (row["safe"] if certified else accuracy is not None and row["accuracy"] >= accuracy)
    ]
    return min(rows, key=lambda row: row["relative_time"], default=None)


def time_saved(results: Json) -> dict | None:
    """Time that stopping early saves, as a fraction of full depth's, and the `change` of accuracy that it costs.

    It is measured on the first test split of the calibrated exit, or else in the first sweep of the halting threshold
    at the checkpoint's own; None where neither was made. `change` is None where there are no labels.
    """
    if chosen(results) and results["calibration"]["tests"]:
        early = next(iter(results["calibration"]["tests"].values()))
        full = early["full_accuracy"]
    elif results["sweep"]:
        sweep = next(iter(results["sweep"].values()))
        early = next(row for row in sweep["thresholds"] if row["threshold"] == sweep["own_threshold"])
        full = sweep["full_depth"]["accuracy"]
    else:
        return None
    change = None if None in (early["accuracy"], full) else early["accuracy"] - full
    return {"saved": 1 - early["relative_time"], "change": change}


def lowest_harmless(sweep: Json) -> Json:
    """The row of the lowest threshold down to which none gets measurably fewer examples right than the checkpoint's.

    All are evaluated on the same examples, so only those count whose answer changed: the loss must exceed two standard
    errors, which is two roots of their number (McNemar 1947).
    """
    *lower, lowest = [row for row in sweep["thresholds"] if row["threshold"] <= sweep["own_threshold"]]
    for row in reversed(lower):
        if row["lost"] - row["gained"] > 2 * math.sqrt(row["lost"] + row["gained"]):
            break
        lowest = row
    return lowest


# ---- limitations


def limits(results: Json, in_bits: bool, shown: Callable[[float], str]) -> Iterator[str]:
    """The limitations that follow from the results, in sentences.

    Args:
        in_bits: whether the splits have losses of documents rather than accuracies.
        shown: a value of the metric -> its text.
    """
    splits = results["splits"]
    if not splits:
        return
    yield f"It was trained on `{results['data']['name']}` alone: how well it does on other texts was not measured."
    if all(split.startswith("validation") for split in splits):
        yield "It was measured on validation examples, by which a checkpoint or settings may have been chosen."
    if not in_bits:
        yield from limits_of_accuracy(results, shown)
    elif few := [(split, n) for split, table in splits.items() if (n := table["documents"]) < FEW_DOCUMENTS]:
        places = ", ".join(f"`{split}` ({n})" for split, n in few)
        yield f"Few documents were tested, and others may give other numbers: {places}."
    yield from collapsed_halting(splits)
    if not any(item["same_model"] for item in results["compared"]):
        yield "One run with one seed was made: the spread over seeds is not known."


def limits_of_accuracy(results: Json, shown: Callable[[float], str]) -> Iterator[str]:
    """The limitations of a model whose answers are right or wrong: where it is at the baseline, or others are better.

    The runs of another model are better if their mean exceeds the card's accuracy by over two standard errors of the
    difference of two shares. None is reported where answers are numbers.
    """
    splits = results["splits"]
    accuracy = {split: table["accuracy"] for split, table in splits.items()}
    at_baseline = [split for split, table in splits.items() if not above_majority(table)]
    if at_baseline:
        yield f"It is no better than the majority baseline on {', '.join(f'`{split}`' for split in at_baseline)}."
    for split in [split for split in splits if split not in at_baseline]:
        places = []
        for column, data in splits[split]["slices"].items():
            values = [row["value"] for row in data["rows"] if is_at_majority(row)]
            if data["numeric"] and values:
                places.append(f"{column} {', '.join(values)}")
        if places:
            yield f"On `{split}`, it is no better than the majority baseline at {'; '.join(places)}."
    best = max(splits, key=accuracy.__getitem__)
    unlike = [split for split, table in splits.items() if table["distribution"] not in ALIKE]
    worst = min(unlike, key=accuracy.__getitem__, default=best)
    if accuracy[worst] < accuracy[best]:
        yield (
            f"Accuracy falls outside the training distribution: {shown(accuracy[worst])} on `{worst}` "
            f"({splits[worst]['distribution']}), {shown(accuracy[best])} on `{best}`."
        )
    first, table = next(iter(splits.items()))
    rivals = [item for item in results["compared"] if not item["same_model"] and first in item["values"]]
    for item in () if of_numbers(table) else rivals:
        mean = statistics.fmean(item["values"][first])
        if mean > table["accuracy"] + two_errors(table["accuracy"], table["n"], table["n"]):
            yield f"{item['name']} ({item['parameters']:,} parameters) is more accurate on `{first}`: {shown(mean)}."


def is_at_majority(row: Json) -> bool:
    """Whether the answers of a bucket are no better than the majority, nor nearly all right."""
    return row["n"] >= FEWEST_IN_BUCKET and row["accuracy"] < 1 - FEWEST_ERRORS and not above_majority(row)
