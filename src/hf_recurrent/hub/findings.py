"""Rules for what a card may claim: a trend, a score above the majority baseline, a threshold that loses nothing."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..analysis.halting import difficulty_key
from ..analysis.tables import is_ordered
from ..models.common.exit_criteria import CRITERIA, FIXED, LEARNED

SMALLEST_TREND = 0.1
# examples of which a rank correlation can be computed
FEWEST = 3
MODERATE = 0.3
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
# of a bucket at one end of a difficulty
ENDS = (("", "value"), ("_mean", "mean_depth"))


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


def main_column(table: Mapping[str, Any]) -> str | None:
    """The numeric difficulty column that comes first, one with several values if there is any; None without one."""
    slices = table["slices"]
    numeric = [column for column, data in slices.items() if data["numeric"] and column not in NO_DIFFICULTY]
    return next((column for column in numeric if len(slices[column]["rows"]) > 1), next(iter(numeric), None))


def main_trend(split: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The trend of steps with the main difficulty of a table of a model that halts, as `relation` gives it."""
    column, key = main_column(table), difficulty_key(table)
    data = table["slices"].get(column, {"spearman": None, "rows": ()})
    buckets = [{**row, "mean_depth": (row.get(key) or {}).get("mean")} for row in data["rows"]]
    return relation(split, column, data["spearman"], buckets, {**table, "mean_depth": table[key]["mean"]})


def relation(
    split: str,
    column: str | None,
    spearman: float | None,
    buckets: Sequence[Mapping[str, Any]],
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """The `direction` of steps with a difficulty, the means at both ends, and whether more of it is `harder`.

    The ends are the outermost buckets of at least 10 examples, if there are two of them. `direction` is "unmeasured"
    without a column, "constant" where one value is all there is, "same" where every example takes the same steps, and
    otherwise that of `trend`. `above` tells whether answers are better than the majority baseline; None: not known.

    Args:
        buckets: `value`, `mean_depth`, `n` and `accuracy` of each, in order of difficulty.
        found: `n`, `accuracy`, `mean_depth` and `majority_baseline` of all examples.
    """
    known = None not in (found["accuracy"], found["majority_baseline"])
    row = {"split": split, "column": column, "spearman": spearman, "n": found["n"], "mean": found["mean_depth"]}
    row |= {"accuracy": found["accuracy"], "above": above_majority(found) if known else None, "harder": None}
    if column is None or not buckets or not is_ordered(bucket["value"] for bucket in buckets):
        return {**row, "column": None, "direction": "unmeasured"}
    row["direction"] = trend(spearman, found["n"])
    if row["direction"] == "undefined" and found["n"] >= FEWEST:
        row["direction"] = "same" if len(buckets) > 1 else "constant"
    large = [bucket for bucket in buckets if bucket["n"] >= FEWEST_IN_BUCKET]
    low, *_, high = large if len(large) > 1 else [*buckets, buckets[-1]]
    row |= {f"{end}{name}": each[key] for end, each in (("low", low), ("high", high)) for name, key in ENDS}
    return {**row, "harder": accuracy_falls(low, high)}


def accuracy_falls(low: Mapping[str, Any], high: Mapping[str, Any]) -> bool | None:
    """Whether accuracy falls from one bucket of a difficulty to another, by over two standard errors.

    None where no accuracy is known, the buckets are one, fewer than 5% of the answers are wrong, or answers are
    numbers.
    """
    if low is high or None in (low["accuracy"], high["accuracy"]) or of_numbers(low):
        return None
    sizes = low["n"], high["n"]
    mean = (low["accuracy"] * sizes[0] + high["accuracy"] * sizes[1]) / sum(sizes)
    if not 0 < mean <= 1 - FEWEST_ERRORS:
        return None
    return low["accuracy"] - high["accuracy"] > 2 * math.sqrt(mean * (1 - mean) * (1 / sizes[0] + 1 / sizes[1]))


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


def trends(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How steps follow the main difficulty, as `relation` gives it.

    Of a calibrated exit they are of the splits that it was tested on, of which all together come first; otherwise of
    all splits of a model that halts.
    """
    splits, calibration = results["splits"], results["calibration"]
    if not is_adaptive(results):
        return []
    if not has_exit(calibration) or not calibration["tests"]:
        halted = ((split, table) for split, table in splits.items() if not table["fixed_depth"] and "slices" in table)
        return [main_trend(split, table) for split, table in halted]
    rows = []
    for split, found in calibration["tests"].items():
        whole = {**found, "majority_baseline": splits.get(split, {}).get("majority_baseline")}
        rows.append(relation(split, calibration["difficulty"], found["spearman"], found["by_difficulty"], whole))
    return rows


def adaptivity(results: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a model thinks longer on harder input: the `answer`, its `reason` in a sentence, and the `rows` of both.

    The answer is "Yes" only where steps grow within splits as well as over them: the means of splits alone correlate,
    too.
    """
    model, calibration, rows = results["model"], results["calibration"], trends(results)
    if not is_adaptive(results):
        steps = calibration["chosen"]["max_depth"] if has_choice(calibration) else model["max_depth"]
        return {"answer": "No", "reason": f"it runs all {steps} steps on every input", "rows": rows}
    if not rows:
        reason = "no column orders the inputs by difficulty"
        if has_exit(calibration):
            reason = "the exit was measured only on the examples that chose it"
        return {"answer": "Not known", "reason": reason, "rows": rows}
    first = rows[0]
    split, column, direction = f"`{first['split']}`", f"`{first['column']}`", first["direction"]
    answer, reason = {
        "grow": ("Yes" if (first["spearman"] or 0) >= MODERATE else "Weakly", f"steps grow with {column} on {split}"),
        "shrink": ("No", f"steps shrink as {column} grows on {split}"),
        "flat": ("No", f"steps do not change with {column} on {split}"),
        "same": ("No", f"every input of {split} takes the same steps"),
        "constant": ("Not known", f"all inputs of {split} have the same {column}"),
        "unmeasured": ("Not known", f"no column orders the inputs of {split} by difficulty"),
    }.get(direction, ("Not known", f"{first['n']:,} inputs of {split} are too few"))
    within = [row for row in rows if row["split"] != ALL_TESTS]
    against = [row for row in within if row["direction"] in ("flat", "same", "shrink")]
    if direction != "same" and first["harder"] is False:
        answer = "Not known"
        reason = f"accuracy does not fall with {column} on {split}, so it is no measure of difficulty"
    elif direction == "grow" and against:
        measured = [row for row in within if row["accuracy"] is not None]
        hardest = min(measured, key=lambda row: row["accuracy"], default=None)
        names = [f"`{row['split']}`{', the hardest split' if row is hardest else ''}" for row in against]
        answer, reason = "Partly", f"{reason}, but not within {' and '.join(names)}"
    elif first["above"] is False:
        reason += ", where its answers are no better than the majority baseline"
    return {"answer": answer, "reason": reason, "rows": rows}


def has_choice(calibration: Mapping[str, Any] | None) -> bool:
    """Whether a calibration chose an exit or a fixed depth."""
    return calibration is not None and calibration["chosen"] is not None


def has_exit(calibration: Mapping[str, Any] | None) -> bool:
    """Whether a calibration chose an exit that stops the model, rather than a fixed depth."""
    return has_choice(calibration) and calibration["chosen"]["criterion"] != FIXED


def is_adaptive(results: Mapping[str, Any]) -> bool:
    """Whether inputs may take different numbers of steps."""
    calibration = results["calibration"]
    return has_exit(calibration) or (results["model"]["halting"] != "none" and not has_choice(calibration))


def measured_before(table: Mapping[str, Any], calibration: Mapping[str, Any] | None) -> bool:
    """Whether the results of a split are older than the exit or fixed depth that was calibrated."""
    if not has_choice(calibration):
        return False
    chosen = calibration["chosen"]
    if chosen["criterion"] == FIXED:
        return table["max_depth"] != chosen["max_depth"]
    if chosen["criterion"] == LEARNED:
        return table.get("threshold") != chosen["threshold"]
    return chosen["criterion"] != table["halting"]


def best_fixed_depth(calibration: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The fastest fixed depth that is certified as the exit is or, where none was tested, that is as accurate."""
    accuracy = calibration["calibrated"]["accuracy"]
    timed = [row for row in calibration["fixed_depths"] if row["relative_time"] is not None]
    if certifies_depths(calibration):
        rows = [row for row in timed if row["safe"]]
    else:
        rows = [row for row in timed if accuracy is not None and row["accuracy"] >= accuracy]
    return min(rows, key=lambda row: row["relative_time"], default=None)


def certifies_depths(calibration: Mapping[str, Any]) -> bool:
    """Whether the risk of fixed depths was tested; earlier versions tested that of exits alone."""
    return calibration["budget"] is None and any("safe" in row for row in calibration["fixed_depths"])


def time_saved(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Time that stopping early saves, as a fraction of full depth's, and the `change` of accuracy that it costs.

    It is measured on the first test split of the calibrated exit, or else in the first sweep of the halting threshold
    at the checkpoint's own; None where neither was made. `change` is None where there are no labels.
    """
    calibration = results["calibration"]
    if has_choice(calibration) and calibration["tests"]:
        split, found = next(iter(calibration["tests"].items()))
        early, full = found["accuracy"], found["full_accuracy"]
    elif results["sweep"]:
        split, sweep = next(iter(results["sweep"].items()))
        found = next(row for row in sweep["thresholds"] if row["threshold"] == sweep["own_threshold"])
        early, full = found["accuracy"], sweep["full_depth"]["accuracy"]
    else:
        return None
    change = None if early is None or full is None else early - full
    return {"split": split, "saved": 1 - found["relative_time"], "change": change}


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


def loses(row: Mapping[str, Any]) -> bool:
    """Whether a threshold gets measurably fewer examples right than the checkpoint's own.

    Both are evaluated on the same examples, so only those count whose answer changed: the loss must exceed two standard
    errors, which is two roots of their number (McNemar 1947).
    """
    return row["lost"] - row["gained"] > 2 * math.sqrt(row["lost"] + row["gained"])


def lowest_harmless(sweep: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the lowest threshold down to which none loses measurably."""
    lower = [row for row in sweep["thresholds"] if row["threshold"] <= sweep["own_threshold"]]
    first = 1 + max((place for place, row in enumerate(lower[:-1]) if loses(row)), default=-1)
    return lower[first]


def forgetting(gates: Mapping[str, Any]) -> str:
    """How much of a carried state an update forgets, in words."""
    life = gates["half_life_blocks"]["median"]
    half = "never" if life is None else f"after {life:,.1f} blocks ({gates['half_life_tokens']['median']:,.0f} tokens)"
    return f"an update forgets {gates['mean']:.1%} of a state unit on average, and half of the median unit {half}"


def better_models(results: Mapping[str, Any], split: str) -> list[Mapping[str, Any]]:
    """The compared models that get measurably more right on a split.

    The mean of their runs must exceed the card's accuracy p by more than two standard errors of the difference of two
    shares of n examples, sqrt(2 p (1 - p) / n). None is told where answers are numbers.
    """
    table = results["splits"][split]
    if of_numbers(table):
        return []
    own = table["accuracy"]
    bar = own + 2 * math.sqrt(2 * own * (1 - own) / table["n"])
    rivals = [item for item in results["compared"] if not item["same_model"] and split in item["values"]]
    return [item for item in rivals if statistics.fmean(item["values"][split]) > bar]


def at_majority(table: Mapping[str, Any]) -> Iterator[str]:
    """The buckets of each difficulty in which answers are no better than the majority, nor nearly all right."""
    for column, data in table["slices"].items():
        found = [
            row["value"]
            for row in data["rows"]
            if row["n"] >= FEWEST_IN_BUCKET and row["accuracy"] < 1 - FEWEST_ERRORS and not above_majority(row)
        ]
        if data["numeric"] and found:
            yield f"{column} {', '.join(found)}"


def limits(results: Mapping[str, Any], in_bits: bool, shown: Any) -> Iterator[str]:
    """The limitations that follow from the results, in sentences.

    Args:
        in_bits: whether the splits have losses of documents rather than accuracies.
        shown: a value of the metric -> its text.
    """
    splits, data = results["splits"], results["data"]
    if not splits:
        return
    yield f"It was trained on `{data['name']}` alone: how well it does on other texts was not measured."
    if all(split.startswith("validation") for split in splits):
        yield "It was measured on validation examples, by which a checkpoint or settings may have been chosen."
    if in_bits:
        few = [
            f"`{split}` ({table['documents']})" for split, table in splits.items() if table["documents"] < FEW_DOCUMENTS
        ]
        if few:
            yield f"Few documents were tested, and others may give other numbers: {', '.join(few)}."
    else:
        yield from limits_of_accuracy(results, shown)
    yield from collapsed_halting(splits)
    if not any(item["same_model"] for item in results["compared"]):
        yield "One run with one seed was made: the spread over seeds is not known."


def limits_of_accuracy(results: Mapping[str, Any], shown: Any) -> Iterator[str]:
    splits = results["splits"]
    lost = [split for split, table in splits.items() if not above_majority(table)]
    if lost:
        yield f"It is no better than the majority baseline on {', '.join(f'`{split}`' for split in lost)}."
    for split, table in splits.items():
        buckets = "; ".join(() if split in lost else at_majority(table))
        if buckets:
            yield f"On `{split}`, it is no better than the majority baseline at {buckets}."
    best = max(splits, key=lambda split: splits[split]["accuracy"])
    unlike = [split for split, table in splits.items() if table["distribution"] not in ALIKE]
    worst = min(unlike, key=lambda split: splits[split]["accuracy"], default=best)
    if splits[worst]["accuracy"] < splits[best]["accuracy"]:
        yield (
            f"Accuracy falls outside the training distribution: {shown(splits[worst]['accuracy'])} on `{worst}` "
            f"({splits[worst]['distribution']}), {shown(splits[best]['accuracy'])} on `{best}`."
        )
    first = next(iter(splits))
    for item in better_models(results, first):
        mean = statistics.fmean(item["values"][first])
        yield f"{item['name']} ({item['parameters']:,} parameters) is more accurate on `{first}`: {shown(mean)}."
