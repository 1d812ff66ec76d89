"""The fastest setting of a model that is certified on examples: an early exit, or a fixed depth.

Exit criteria are run at thresholds from the safest to the fastest, and fixed depths from deep to shallow: each is a
family of settings. The risk of a setting is the probability of an error, of one of two kinds:

* "lost": full depth is right and the setting wrong;
* "differs": the setting answers otherwise than full depth, which needs no labels.

Where a model answers for each token, an example is still a whole sequence, because its tokens depend on each other: its
loss is the share of its labelled tokens that are errors, and the risk is the mean of that over sequences.

A setting is certified if, with the requested confidence, its risk is at most the tolerance, by fixed-sequence testing
(see `risk_control`). The level, one less the confidence, is split equally between the families (Bonferroni), so that
the guarantee also holds for the fastest certified setting of them all. It holds for the distribution of the examples,
and for these weights. With a budget the most accurate setting that is fast enough is chosen, without a guarantee.

One pass at full depth shows the answers of every setting that stops rows as a whole (see `DepthRecord`). Other families
are walked from their safest setting to the first that fails, by a pass for each. Only the few settings that are ahead
by their mean steps are timed, and the fastest of them is chosen.

A calibration is plain data: `n` examples, `tolerance`, `confidence`, `risk`, `budget`, `max_depth`, `batch_sizes` and
`repeats` of timing, `unit` ("token") if a model answers for each token, and

* `full_depth`: `accuracy`, `mean_depth`, `relative_time` 1, and `majority_baseline`, the accuracy of the most frequent
  answer;
* `fixed_depths`, a row for each fewer `max_depth`; `criteria`: of each its `curve`, a row for each threshold that was
  tried, and the threshold (or patience) `chosen`, the fastest certified one, or None. A row has `accuracy`,
  `mean_depth` of an example, the `risk` of the examples, its `p_value`, and whether it is `safe` (certified). One that
  was timed has `times`, size of batches -> time compared with full depth, their mean `relative_time`, and its `noise`;
  of others these are None;
* `chosen`, the setting of all, or None; `calibrated`, its row; and `inputs`, mean and standard deviation (`std`) of
  `steps` and `confidence` with it;
* `tests`: of each further split, and before them of all together (`ALL_TESTS`) if there are several, the chosen
  setting's `accuracy`, `risk`, `mean_depth` and `relative_time`, with `full_accuracy`, `spearman` of steps and
  difficulty (of all together every difficulty counts alike), results `by_difficulty`, and `examples`, from few steps to
  many.

Accuracies are None without labels.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ..data.labels import MULTI
from ..metrics.functional import balanced_spearman, spearman
from ..models.base.exit_calibration import exit_digest
from ..models.config.exit_criteria import FIXED
from ..models.depth.objectives import most_trained_steps
from ..models.ops.losses import NO_TARGET
from ..utils import plain
from .answers import (
    Batch,
    answers_are_of_tokens,
    each_right,
    has_labels,
    is_classifier,
    labels_tokens,
    prepare_batch,
    to_device,
    token_mask,
)
from .depth_record import in_record
from .exit_settings import Setting, check_criteria, fixed_depths, full_depth, settings_of
from .halting import ALL_TESTS, bucketize, is_numeric
from .risk_control import bounded_risk_p_values, fewest_examples, fixed_sequence, risk_p_values
from .trials import Trials

LOST, DIFFERS = "lost", "differs"
MEAN_DEPTH, RELATIVE_TIME = "mean_depth", "relative_time"
SHOWN_EXAMPLES = 12
# inputs are unlike those of the calibration if their mean is off by so many standard errors and standard deviations
ERRORS_OFF, DEVIATIONS_OFF = 5.0, 0.5
MEASURED_INPUTS = ("steps", "confidence")
# passes at settings that no pass at full depth shows, shared by their families
MOST_PASSES = 24
# settings that are timed
FINALISTS = 4


@dataclass(frozen=True)
class Goal:
    """The aim of a calibration.

    Attributes:
        tolerance: largest risk.
        confidence: probability with which the risk is no larger.
        budget: MEAN_DEPTH or RELATIVE_TIME, and the largest share of it at full depth; None: the risk decides.
        labelled: whether an error is a right answer that is "lost", rather than any that "differs".
        batch_sizes: sizes of the batches that are timed; the mean of the relative times counts.
        repeats: number of passes that are timed.
    """

    tolerance: float = 0.01
    confidence: float = 0.95
    budget: tuple[str, float] | None = None
    labelled: bool = True
    batch_sizes: tuple[int, ...] = (1, 32)
    repeats: int = 3

    def level(self, families: int) -> float:
        """Error level of each of several families of settings."""
        return (1 - self.confidence) / families

    def check(self) -> None:
        """Raise a ValueError for shares out of range."""
        for name, value, usual in (("tolerance", self.tolerance, 0.01), ("confidence", self.confidence, 0.95)):
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value!r}: pass a share above 0 and below 1, as in {usual}")
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats!r}: pass the number of passes to time, at least 1")
        if self.budget is not None and not 0 < self.budget[1] <= 1:
            raise ValueError(f"budget is {self.budget[1]!r}: pass a share of full depth above 0 and up to 1, as in 0.5")

    def check_number(self, examples: int, families: Sequence[str]) -> None:
        """Raise a ValueError if so many examples could not certify any setting of several families, even without an
        error.
        """
        needed = fewest_examples(self.tolerance, self.level(len(families)))
        if self.budget is not None or examples >= needed:
            return
        shared, remedy = "", "pass more examples, or a larger tolerance (--tolerance)"
        if len(families) > 1:
            shared = f" for {len(families)} families of settings ({', '.join(families)})"
            remedy += ", or choose one criterion (--criterion) and --only_exits"
        raise ValueError(
            f"{examples} examples are too few to calibrate on: a tolerance of {self.tolerance:g} at a confidence of "
            f"{self.confidence:g} takes {needed}{shared}, even without an error; {remedy}"
        )


DEFAULT_GOAL = Goal()


class Examples(NamedTuple):
    """Examples to calibrate or test on.

    Attributes:
        batches: batches of encoded examples, with `labels` if there are any.
        texts: of the examples, in their order; without them none are shown.
        difficulty: a value for each of them, or None.
    """

    batches: Iterable[Mapping[str, Any]]
    texts: Sequence[str] = ()
    difficulty: Sequence | None = None


def calibrate(
    model: Any,
    examples: Examples,
    tests: Mapping[str, Examples] | None = None,
    goal: Goal = DEFAULT_GOAL,
    *,
    criteria: Sequence[str] | None = None,
    only_exits: bool = False,
    max_depth: int | None = None,
    answer_name: Callable[[Any], str] = str,
    progress: bool = False,
) -> dict[str, Any]:
    """Choose an early exit or a fixed depth -> plain data, as described at the top of this module.

    The model stays as it is; `apply_calibration` makes one stop as chosen.

    Args:
        model: a classifier of sequences or tokens, or a language model, that iterates one block.
        examples: independent draws of the distribution that the guarantee is about, unseen in training.
        tests: further examples by the names of their splits.
        goal: the risk or budget that decides, and the batches that are timed.
        criteria: names of the exit criteria to choose from; None: all that the model can use.
        only_exits: whether fixed depths are only compared with, and not chosen from.
        max_depth: full depth, instead of the config's.
        answer_name: text of a class id, token id, tuple of a target's token ids, or array of those of tokens.
        progress: show progress bars.

    Raises:
        ValueError: an argument does not fit, labels are missing, or there are too few examples for the guarantee.
    """
    goal.check()
    names, tests = check_criteria(model, criteria), tests or {}
    batches, labelled = prepare(model, examples, goal.labelled)
    test_batches = {name: prepare(model, own, goal.labelled)[0] for name, own in tests.items()}
    full = Setting(FIXED, max_depth=full_depth(model, batches[0], max_depth))
    families = {FIXED: fixed_depths(model, full.max_depth), **{name: settings_of(name) for name in names}}
    competing = [name for name, own in families.items() if own and not (only_exits and name == FIXED)]
    n = sum(len(batch.labels) for batch in batches)
    goal.check_number(n, competing)
    trials = Trials(model, full, labelled)
    level = goal.level(len(competing))
    found, rows = tried(trials, batches, families, goal, level, progress)
    full_row = run_row(found[full])
    ahead = fitting(rows, full_row[MEAN_DEPTH], goal)

    def timed(group: Sequence[Setting]) -> dict[Setting, dict[str, Any]]:
        return trials.times(batches, group, goal.batch_sizes, goal.repeats, progress)

    choice, times = choose(ahead, competing, goal, timed)
    untimed = dict.fromkeys(("times", RELATIVE_TIME, "noise"))
    rows = {key: {**row, **times.get(key, untimed)} for key, row in rows.items()}

    def rows_of(criterion: str, *names: str) -> list[dict[str, Any]]:
        own = ((key, row) for key, row in rows.items() if key.criterion == criterion)
        return [{**{name: getattr(key, name) for name in names}, **row} for key, row in own]

    table = {
        "n": n,
        "tolerance": goal.tolerance,
        "confidence": goal.confidence,
        "risk": LOST if goal.labelled else DIFFERS,
        "budget": None if goal.budget is None else dict(zip(("measure", "most"), goal.budget, strict=True)),
        **({"unit": "token"} if batches[0].by_token else {}),
        "max_depth": full.max_depth,
        "trained_steps": most_trained_steps(model.config),
        "batch_sizes": list(goal.batch_sizes),
        "repeats": goal.repeats,
        "only_exits": only_exits,
        "full_depth": {**full_row, **times.get(full, {}), "majority_baseline": majority_baseline(found[full])},
        "fixed_depths": rows_of(FIXED, "max_depth")[::-1],
        "criteria": {
            name: {
                "curve": rows_of(name, "threshold", "patience"),
                "chosen": next((key.value for key in ahead if key.criterion == name), None),
            }
            for name in names
        },
        **dict.fromkeys(("chosen", "calibrated", "inputs")),
        "tests": {},
    }
    if choice is not None:
        table["chosen"] = {**choice.as_data(), "min_depth": model.config.min_depth}
        table |= {"calibrated": rows[choice], "inputs": input_statistics(found[choice])}
        table["tests"] = check(trials, choice, tests, test_batches, goal, answer_name)
    return plain(table)


def prepare(model: Any, examples: Examples, labelled: bool) -> tuple[list[Batch], bool]:
    """Batches on the model's device, and whether their labels are true, or only mark what is compared.

    Args:
        labelled: whether labels are needed.

    Raises:
        ValueError: there are no batches, or labels are missing.
    """
    batches = list(examples.batches)
    if not batches:
        raise ValueError("there are no examples to calibrate on, or to test with")
    has_all = all(map(has_labels, batches))
    if not has_all and labelled:
        raise ValueError(
            "the examples have no labels, so there is no accuracy to keep: pass labels, or calibrate without them, by "
            "the answers of full depth (--without-labels)"
        )
    if not has_all:
        if model.config.capabilities.two_stacks:
            raise ValueError(
                "the examples have no targets, and a decoder's answers are compared token by token on those"
            )
        batches = [{**batch, "labels": compared_labels(model, to_device(batch, model))} for batch in batches]
    found = [prepare_batch(model, batch) for batch in batches]
    if has_all and any((batch.labels.reshape(len(batch.labels), -1).max(1) < 0).any() for batch in found):
        raise ValueError(
            "labels hold numbers below 0, which mark examples without a right answer: leave those out, or calibrate "
            "without labels"
        )
    return found, has_all


def compared_labels(model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Labels that mark what is compared: a class or choice (B,), or of a text the tokens (B, S) whose answers count."""
    ids = inputs["input_ids"]
    if is_classifier(model) and model.config.problem_type == MULTI:
        return torch.zeros(len(ids), model.config.num_labels)
    if is_classifier(model) or ids.ndim > 2:
        return torch.zeros(len(ids), dtype=torch.long)
    return (torch.zeros_like(ids) if labels_tokens(model) else ids).masked_fill(~token_mask(inputs), NO_TARGET)


def tried(
    trials: Trials,
    batches: Sequence[Batch],
    families: Mapping[str, Sequence[Setting]],
    goal: Goal,
    level: float,
    progress: bool,
) -> tuple[dict[Setting, pd.DataFrame], dict[Setting, dict[str, Any]]]:
    """The answers at full depth and at settings of families, and a row for each of these settings.

    They are all settings that a pass at full depth shows. A family that takes a pass for each setting tries some of
    them, evenly chosen before any result is known, up to the first that fails.

    Args:
        level: the error level of each family.
    """
    shown = [setting for own in families.values() for setting in own if in_record(trials.model, setting)]
    found, rows = trials.answers(batches, [trials.full, *shown], progress), {}
    walked = [name for name, own in families.items() if own and own[0] not in found]
    for name, settings in families.items():
        number = min(len(settings), max(1, MOST_PASSES // len(walked))) if name in walked else len(settings)
        tested = {}
        for place in range(number):
            setting = settings[(2 * place + 1) * len(settings) // (2 * number)]
            if setting not in found:
                found |= trials.answers(batches, [setting])
            tested[setting] = row = setting_row(found[setting], found[trials.full], goal)
            if name in walked and goal.budget is None and row["p_value"] > level:
                break
        safe = fixed_sequence([row["p_value"] for row in tested.values()], level)
        rows |= {key: {**row, "safe": own} for (key, row), own in zip(tested.items(), safe, strict=True)}
    return found, rows


def setting_row(examples: pd.DataFrame, full: pd.DataFrame, goal: Goal) -> dict[str, Any]:
    """A setting compared with the answers of full depth."""
    wrong = errors(examples, full, goal.labelled)
    # one answer is an error or none
    p_values_of = bounded_risk_p_values if answers_are_of_tokens(full) else risk_p_values
    (p_value,) = p_values_of([wrong.sum()], len(full), goal.tolerance)
    return {**run_row(examples), "risk": wrong.mean(), "p_value": p_value}


def run_row(examples: pd.DataFrame) -> dict[str, Any]:
    """Accuracy and steps of a setting."""
    return {"accuracy": accuracy_of(examples), MEAN_DEPTH: examples["steps"].mean()}


def accuracy_of(examples: pd.DataFrame, column: str = "right") -> float | None:
    """Share of answers that are right by a column; None without labels."""
    return each_right(examples[column]).mean() if column in examples else None


def majority_baseline(examples: pd.DataFrame) -> float | None:
    """Accuracy of always giving the most frequent of the right answers; None without labels."""
    if "right" not in examples:
        return None
    labels = examples["label"].explode() if answers_are_of_tokens(examples) else examples["label"]
    return float(labels.value_counts(normalize=True).iloc[0])


def errors(examples: pd.DataFrame, full: pd.DataFrame, labelled: bool) -> np.ndarray:
    """(N,) shares of each example's answers that are errors: they are "lost", or "differ" from full depth."""
    name = "right" if labelled else "answer"
    whole, early = full[name].to_numpy(), examples[name].to_numpy()
    # a right answer is greater than a wrong one
    differ = np.greater if labelled else np.not_equal
    if answers_are_of_tokens(full):
        return np.array([differ(*tokens).mean() for tokens in zip(whole, early, strict=True)])
    return differ(whole, early).astype(float)


def fitting(rows: Mapping[Setting, Mapping[str, Any]], full_depth: float, goal: Goal) -> list[Setting]:
    """The settings that will do: certified ones that spare steps, those with the fewest steps first; or within a
    budget, whose share of time is at least that of steps, the most accurate first.

    Args:
        full_depth: mean depth of an example at full depth.
    """

    def fits(row: Mapping[str, Any]) -> bool:
        if goal.budget is None:
            return row["safe"] and row[MEAN_DEPTH] < full_depth
        return row[MEAN_DEPTH] <= goal.budget[1] * full_depth

    def rank(key: Setting) -> tuple[float, float]:
        wrong = 1 - rows[key]["accuracy"] if goal.labelled else rows[key]["risk"]
        return (0.0 if goal.budget is None else wrong, rows[key][MEAN_DEPTH])

    return sorted((key for key, row in rows.items() if fits(row)), key=rank)


def choose(
    ahead: Sequence[Setting],
    competing: Sequence[str],
    goal: Goal,
    timed: Callable[[Sequence[Setting]], dict[Setting, dict[str, Any]]],
) -> tuple[Setting | None, dict[Setting, dict[str, Any]]]:
    """The fastest of the settings that will do, or the first within a budget; None if none is faster than full depth.

    Settings of one criterion are as fast as their steps are few, so that the first of each is timed. The best fixed
    depth is timed even if it does not compete.

    Args:
        ahead: settings that will do, the best first.
        competing: names of the families to choose from.
        timed: function of settings to their times.

    Returns:
        The choice, and all times.
    """
    measure, most = goal.budget or (None, 1.0)
    if measure == RELATIVE_TIME:
        groups = [ahead[first : first + FINALISTS] for first in range(0, len(ahead), FINALISTS)]
    else:
        most = math.inf if measure == MEAN_DEPTH else most
        first = {key.criterion: key for key in reversed(ahead)}
        leaders = sorted(first.values(), key=lambda key: (key.criterion != FIXED, ahead.index(key)))
        groups = [leaders[:FINALISTS]] if leaders else []
    times: dict[Setting, dict[str, Any]] = {}
    fast: list[Setting] = []
    for group in groups:
        times |= timed(group)
        fast = [key for key in group if key.criterion in competing and times[key][RELATIVE_TIME] < most]
        if fast:
            break
    if goal.budget is None and fast:
        best = min((times[key] for key in fast), key=lambda own: own[RELATIVE_TIME])
        # what differs by noise goes to fewer steps
        most = best[RELATIVE_TIME] + max(best["noise"], *(times[key]["noise"] for key in fast))
    return next((key for key in ahead if key in fast and times[key][RELATIVE_TIME] <= most), None), times


def check(
    trials: Trials,
    choice: Setting,
    tests: Mapping[str, Examples],
    batches: Mapping[str, Sequence[Batch]],
    goal: Goal,
    answer_name: Callable[[Any], str],
) -> dict[str, dict[str, Any]]:
    """`split_table` of the choice on each test split, after that of `ALL_TESTS` together if there are several.

    Args:
        batches: of each split, prepared.
    """
    frames, times = {}, {}
    for name, (_, texts, difficulty) in tests.items():
        found = trials.answers(batches[name], (choice, trials.full))
        times[name] = trials.times(batches[name], (choice,), goal.batch_sizes, goal.repeats)[choice][RELATIVE_TIME]
        early, full = found[choice], found[trials.full]
        difficulty = None if difficulty is None else np.asarray(difficulty)
        more = {"text": list(texts) or None, "difficulty": difficulty, "full_right": full.get("right")}
        more = {column: values for column, values in more.items() if values is not None}
        frames[name] = early.assign(error=errors(early, full, goal.labelled), **more)
    tables = {name: split_table(frame, times[name], answer_name, spearman) for name, frame in frames.items()}
    if len(frames) < 2 or not all("difficulty" in frame for frame in frames.values()):
        return tables
    whole = pd.concat(frames.values(), ignore_index=True, join="inner")
    time = np.average([*times.values()], weights=[*map(len, frames.values())])
    # every difficulty counts alike
    return {ALL_TESTS: split_table(whole, time, answer_name, balanced_spearman), **tables}


def split_table(
    examples: pd.DataFrame, time: float, answer_name: Callable[[Any], str], correlation: Callable[..., float | None]
) -> dict[str, Any]:
    """The chosen setting compared with full depth, on examples of a test split.

    Args:
        examples: answers at the setting, whether those of full depth are right (`full_right`), shares of `error`s and,
            where they are known, each `text` and `difficulty`.
        time: of the setting, compared with full depth.
    """
    difficulty, related, rows = examples.get("difficulty"), None, []
    if difficulty is not None:
        for label, own in examples.groupby(bucketize(difficulty), observed=True):
            full = accuracy_of(own, "full_right")
            rows.append({"value": label, "n": len(own), **run_row(own), "full_accuracy": full})
        related = correlation(examples["steps"], difficulty) if is_numeric(difficulty) else None
    return {
        "n": len(examples),
        **run_row(examples),
        "full_accuracy": accuracy_of(examples, "full_right"),
        "risk": examples["error"].mean(),
        RELATIVE_TIME: time,
        "spearman": related,
        "by_difficulty": rows,
        "examples": shown_examples(examples, answer_name) if "text" in examples else [],
    }


def shown_examples(examples: pd.DataFrame, answer_name: Callable[[Any], str]) -> list[dict[str, Any]]:
    """A few examples of each number of steps, from few to many."""
    buckets = pd.Series(bucketize(examples["steps"]).codes)
    # the first of each bucket, then the second ones
    turns = buckets.groupby(buckets).cumcount()
    places = np.lexsort((examples["steps"], turns))[:SHOWN_EXAMPLES]
    return [
        {
            "text": row["text"],
            "steps": row["steps"],
            "label": answer_name(row["label"]) if "label" in row else None,
            "prediction": answer_name(row["answer"]),
            "difficulty": row.get("difficulty"),
        }
        for row in examples.iloc[places].sort_values("steps", kind="stable").to_dict("records")
    ]


def input_statistics(examples: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of steps and confidences, by which unusual inputs are told.

    Of a model that answers for each token confidences alone: its steps are of all tokens, labelled or not.
    """
    names = [name for name in MEASURED_INPUTS if name in examples]
    if "answer" in examples and answers_are_of_tokens(examples):
        names.remove("steps")
    return {name: {"mean": examples[name].mean(), "std": examples[name].std(ddof=0)} for name in names}


def unusual_inputs(calibration: Mapping[str, Any], examples: pd.DataFrame) -> str | None:
    """How inputs differ from those of the calibration in `steps` or `confidence`; None if they do not.

    A mean differs if it is more than 5 standard errors of the difference, and more than half a standard deviation of
    the calibration, away from the calibration's.

    Args:
        calibration: `config.exit_calibration`.
        examples: a row for each input.
    """
    found = []
    for name, now in input_statistics(examples).items():
        before = calibration["inputs"][name]
        error = math.sqrt(before["std"] ** 2 / calibration["n"] + now["std"] ** 2 / len(examples))
        off = abs(now["mean"] - before["mean"])
        if off > ERRORS_OFF * error and off > DEVIATIONS_OFF * before["std"]:
            found.append(f"mean {name} {now['mean']:.3g} instead of {before['mean']:.3g}")
    if not found:
        return None
    return (
        f"these inputs look unlike those of the calibration ({calibration['benchmark']}, {calibration['split']}), to "
        f"which its guarantee is limited: {'; '.join(found)}"
    )


def apply_calibration(model: Any, table: Mapping[str, Any], **source: Any) -> dict[str, Any]:
    """Let a model stop as a calibration chose -> the config fields that were set.

    A model with a classifier for each step loses those of steps that it no longer takes.

    Args:
        model: the calibrated model.
        table: a result of `calibrate` with a choice.
        source: `benchmark`, `config` and `split` of the examples, for the record in `exit_calibration`.
    """
    choice, config = dict(table["chosen"]), model.config
    min_depth = choice.pop("min_depth")
    setting = Setting(**choice)
    fields = {"num_hidden_layers": table["max_depth"], **setting.fields, "min_depth": min_depth}
    if setting.criterion == FIXED and config.halting == "none":
        del fields["halting_threshold"], fields["hard_stop"]
    if config.capabilities.two_stacks:
        # by which the encoder stops, and the decoder's steps
        fields = {name: getattr(config, name) for name in ("halting_threshold", "num_decoder_layers")} | fields
    config.update(fields)
    if setting.criterion == FIXED and hasattr(model, "classifiers"):
        del model.classifiers[setting.max_depth :]
    kept = ("n", "tolerance", "confidence", "risk", "budget", "inputs")
    weights = exit_digest(model, fields["exit_criterion"])
    record = {**source, **{name: table[name] for name in kept}, **choice, "fields": fields, "weights": weights}
    config.exit_calibration = record
    return {**fields, "exit_calibration": record}
