"""When a model may stop early: an exit criterion and threshold chosen on examples, with a guarantee.

Every criterion is run at thresholds from the safest to the fastest. The risk of one is the probability of an error, of
one of two kinds:

* "lost": full depth is right and the early exit wrong;
* "differs": the early exit answers otherwise than full depth, which needs no labels.

Of a model that answers for each token, an example is still a whole sequence, for the tokens of one depend on each
other: its loss is the share of its labelled tokens that are errors, and the risk the mean of that over sequences.

A threshold is safe if, with the confidence asked for, its risk is at most the tolerance, by fixed-sequence testing (see
`risk_control`). The level, one less the confidence, is split equally between several criteria (Bonferroni), so that the
promise also holds for the fastest safe threshold of them all. It holds for the distribution of the examples, and for
these weights. With a budget the most accurate threshold that is fast enough is chosen, and nothing is promised.

A calibration is plain data: `n` examples, `tolerance`, `confidence`, `risk`, `budget`, `max_depth`, `repeats` of timing
over `timed_examples`, `unit` ("token") if a model answers for each token, and

* `full_depth`, and `fixed_depths`, runs of fewer steps: `accuracy`, `seconds`, `relative_time`; of full depth also
  `majority_baseline`, the accuracy of the most frequent answer;
* `criteria`: of each its `curve`, a row for each threshold, and the threshold (or patience) `chosen`, or None. A row
  has `accuracy`, `mean_depth` of an example, `seconds`, `relative_time` over that at full depth, `disagreement` with
  full depth, the number of answers `lost`, the `risk` of the examples, its `p_value`, and whether it is `safe`;
* `chosen`, the setting of all, or None, and `inputs`, mean and standard deviation (`std`) of `steps` and `confidence`
  with it;
* `tests`: of each further split, and before them of all together (`ALL_TESTS`) if there are several, the chosen
  setting's `accuracy`, `risk`, `mean_depth` and `relative_time` beside `full_accuracy`, `spearman` of steps and
  difficulty (of all together every difficulty counts alike), results `by_difficulty`, and `examples`, from few steps to
  many.

Accuracies are None without labels.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from ..files import plain
from ..metrics.functional import balanced_spearman, spearman
from ..models.common.depth_objectives import most_trained_steps
from ..models.common.exit_calibration import exit_digest
from ..models.common.token_targets import NO_TARGET
from ..text_data.labels import MULTI
from .exit_settings import (
    Measured,
    Setting,
    check_criteria,
    depth_fields,
    fixed_depths,
    measure,
    number_of_examples,
    settings_of,
)
from .inference import Batch, has_labels, prepare_batch
from .model_facts import is_classifier, labels_tokens
from .risk_control import (
    bounded_risk_p_values,
    fewest_examples,
    fixed_sequence,
    risk_p_values,
)
from .sweep import FULL_DEPTH, threshold_fields
from .tables import bucketize, is_numeric
from .token_answers import answers_are_of_tokens, each_error, each_right

LOST, DIFFERS = "lost", "differs"
MEAN_DEPTH, RELATIVE_TIME = "mean_depth", "relative_time"
SHOWN_EXAMPLES = 12
# name of the results on all splits together that had no part in the calibration
ALL_TESTS = "all tested splits"
# inputs are unlike those of the calibration if their mean is off by so many standard errors and standard deviations
ERRORS_OFF, DEVIATIONS_OFF = 5.0, 0.5
MEASURED_INPUTS = ("steps", "confidence")


@dataclass(frozen=True)
class Goal:
    """What a calibration is to reach.

    Attributes:
        tolerance: largest risk.
        confidence: probability with which the risk is no larger.
        budget: MEAN_DEPTH or RELATIVE_TIME, and the largest share of it at full depth; None: the risk decides.
        labelled: whether an error is a right answer that is "lost", rather than any that "differs".
    """

    tolerance: float = 0.01
    confidence: float = 0.95
    budget: tuple[str, float] | None = None
    labelled: bool = True

    def level(self, criteria: int) -> float:
        """Error level of each of several criteria."""
        return (1 - self.confidence) / criteria

    def check(self) -> None:
        """Raise a ValueError for shares out of range."""
        for name, value, usual in (("tolerance", self.tolerance, 0.01), ("confidence", self.confidence, 0.95)):
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value!r}: pass a share above 0 and below 1, as in {usual}")
        if self.budget is not None and not 0 < self.budget[1] <= 1:
            raise ValueError(f"budget is {self.budget[1]!r}: pass a share of full depth above 0 and up to 1, as in 0.5")

    def check_number(self, examples: int, criteria: int) -> None:
        """Raise a ValueError if so many examples could not show that a threshold is safe, even without an error."""
        needed = fewest_examples(self.tolerance, self.level(criteria))
        if self.budget is not None or examples >= needed:
            return
        shared, remedy = "", "pass more examples, or a larger tolerance (--tolerance)"
        if criteria > 1:
            shared, remedy = f" for {criteria} criteria", f"{remedy}, or choose one criterion (--criterion)"
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
    max_depth: int | None = None,
    answer_name: Callable[[Any], str] = str,
    repeats: int = 3,
    progress: bool = False,
) -> dict[str, Any]:
    """Choose an exit criterion and threshold -> plain data, as described at the top of this module.

    The model stays as it is; `calibrated_fields` are the config fields of one that stops as chosen.

    Args:
        model: a classifier of sequences or tokens, or a language model, that iterates one block.
        examples: independent draws of the distribution that the promise is about, unseen in training.
        tests: further examples by the names of their splits.
        goal: the risk or budget that decides.
        criteria: names of the criteria to choose from; None: all that the model can use.
        max_depth: full depth, instead of the config's.
        answer_name: text of a class id, token id, tuple of a target's token ids, or array of those of tokens.
        repeats: number of passes that are timed.
        progress: show progress bars.

    Raises:
        ValueError: an argument does not fit, labels are missing, or there are too few examples for the promise.
    """
    goal.check()
    names = check_criteria(model, criteria)
    batches, labelled = prepare(model, examples, goal.labelled)
    prepared_tests = {name: prepare(model, own, goal.labelled) for name, own in (tests or {}).items()}
    n = number_of_examples(batches)
    goal.check_number(n, len(names))
    depth = depth_fields(model, batches[0], max_depth)
    full = {**threshold_fields(FULL_DEPTH), **depth}
    most_steps = depth.get("num_hidden_layers", model.config.num_hidden_layers)
    shallow = [] if model.config.capabilities.two_stacks else fixed_depths(most_steps)
    settings = {setting: {**setting.fields, **depth} for name in names for setting in settings_of(name)}
    every = {FULL_DEPTH: full, **{steps: {**full, "num_hidden_layers": steps} for steps in shallow}, **settings}
    found = measure(model, batches, labelled, every, repeats, progress)
    curves = {name: curve(settings_of(name), found, goal, len(names)) for name in names}
    full_depth = {**run_row(FULL_DEPTH, found), "majority_baseline": majority_baseline(found.examples[FULL_DEPTH])}
    chosen, choice = choose(curves, full_depth[MEAN_DEPTH], goal)
    checked = {}
    if choice is not None:
        pair = {FULL_DEPTH: full, choice: settings[choice]}
        checked = {name: measure(model, *split, pair, repeats) for name, split in prepared_tests.items()}
    table = {
        "n": n,
        "tolerance": goal.tolerance,
        "confidence": goal.confidence,
        "risk": LOST if goal.labelled else DIFFERS,
        "budget": None if goal.budget is None else dict(zip(("measure", "most"), goal.budget, strict=True)),
        **({"unit": "token"} if batches[0].by_token else {}),
        "max_depth": most_steps,
        "trained_steps": most_trained_steps(model.config),
        "repeats": repeats,
        "timed_examples": found.timed,
        "full_depth": full_depth,
        "fixed_depths": [{"max_depth": steps, **run_row(steps, found)} for steps in shallow],
        "criteria": {
            name: {"curve": list(rows.values()), "chosen": None if chosen[name] is None else chosen[name].value}
            for name, rows in curves.items()
        },
        "chosen": None if choice is None else {**choice._asdict(), "min_depth": model.config.min_depth},
        "inputs": None if choice is None else input_statistics(found.examples[choice]),
        "tests": test_tables(choice, checked, tests or {}, goal, answer_name),
    }
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
    if all(map(has_labels, batches)):
        found = [prepare_batch(model, batch) for batch in batches]
        if any((batch.labels < 0).any() for batch in found if batch.labels.ndim == 1):
            raise ValueError(
                "labels hold numbers below 0, which mark examples without a right answer: leave those out, or "
                "calibrate without labels"
            )
        return found, True
    if labelled:
        raise ValueError(
            "the examples have no labels, so there is no accuracy to keep: pass labels, or calibrate without them, by "
            "the answers of full depth (--without-labels)"
        )
    if model.config.capabilities.two_stacks:
        raise ValueError("the examples have no targets, and a decoder's answers are compared token by token on those")
    marked = [{**batch, "labels": compared_labels(model, batch)} for batch in batches]
    return [prepare_batch(model, batch) for batch in marked], False


def compared_labels(model: Any, batch: Mapping[str, Any]) -> torch.Tensor:
    """Labels that mark what is compared: a class or choice (B,), or of a text the tokens (B, S) whose answers count."""
    ids = torch.as_tensor(batch["input_ids"])
    if is_classifier(model) and model.config.problem_type == MULTI:
        return torch.zeros(len(ids), model.config.num_labels)
    if is_classifier(model) or ids.ndim > 2:
        return torch.zeros(len(ids), dtype=torch.long)
    mask = torch.as_tensor(batch.get("attention_mask", torch.ones_like(ids)))
    return (torch.zeros_like(ids) if labels_tokens(model) else ids).masked_fill(mask == 0, NO_TARGET)


def run_row(key: Hashable, found: Measured) -> dict[str, Any]:
    """Accuracy, steps and times of a setting."""
    examples, seconds = found.examples[key], found.seconds[key]
    return {
        "accuracy": each_right(examples).mean() if "right" in examples else None,
        MEAN_DEPTH: examples["steps"].mean(),
        "seconds": seconds,
        RELATIVE_TIME: seconds / found.seconds[FULL_DEPTH],
    }


def majority_baseline(examples: pd.DataFrame) -> float | None:
    """Accuracy of always giving the most frequent of the right answers; None without labels."""
    if "right" not in examples:
        return None
    labels = examples["label"]
    if answers_are_of_tokens(examples):
        labels = pd.Series(np.concatenate(labels.to_numpy()))
    return float(labels.value_counts(normalize=True).iloc[0])


def errors(examples: pd.DataFrame, full: pd.DataFrame, labelled: bool) -> np.ndarray:
    """(N,) shares of each example's answers that are errors: they are "lost", or "differ" from full depth."""
    return np.array([wrong.mean() for wrong in each_error(examples, full, labelled)])


def curve(settings: Sequence[Setting], found: Measured, goal: Goal, criteria: int) -> dict[Setting, dict[str, Any]]:
    """The rows of one criterion, whose settings go from the safest to the fastest.

    Args:
        criteria: the number of criteria that share the error level.
    """
    full = found.examples[FULL_DEPTH]
    wrong = [errors(found.examples[key], full, goal.labelled) for key in settings]
    # one answer is an error or none
    p_values_of = bounded_risk_p_values if answers_are_of_tokens(full) else risk_p_values
    p_values = p_values_of([error.sum() for error in wrong], len(full), goal.tolerance)
    safe = fixed_sequence(p_values, goal.level(criteria))
    return {
        key: {
            "threshold": key.threshold,
            "patience": key.patience,
            **run_row(key, found),
            "disagreement": errors(found.examples[key], full, False).mean(),
            "lost": sum(map(np.sum, each_error(found.examples[key], full, True))) if "right" in full else None,
            "risk": error.mean(),
            "p_value": p_value,
            "safe": is_safe,
        }
        for key, error, p_value, is_safe in zip(settings, wrong, p_values, safe, strict=True)
    }


def choose(
    curves: Mapping[str, Mapping[Setting, Mapping[str, Any]]], full_depth: float, goal: Goal
) -> tuple[dict[str, Setting | None], Setting | None]:
    """The setting of each criterion, by its mean depth, and that of all of them, by its time; None where none will do.

    Args:
        full_depth: mean depth of an example at full depth: what spares no step is of no use.
    """

    def will_do(row: Mapping[str, Any]) -> bool:
        if goal.budget is None:
            return row["safe"] and row[MEAN_DEPTH] < full_depth
        measured, most = goal.budget
        return (row[MEAN_DEPTH] / full_depth if measured == MEAN_DEPTH else row[RELATIVE_TIME]) <= most

    def fastest(rows: Mapping[Setting, Mapping[str, Any]], by: str) -> Setting | None:
        def rank(key: Setting) -> tuple[float, float]:
            row = rows[key]
            wrong = row["disagreement"] if not goal.labelled else 1 - row["accuracy"]
            return (0.0 if goal.budget is None else wrong, row[by])

        return min((key for key in rows if will_do(rows[key])), key=rank, default=None)

    by_criterion = {name: fastest(rows, MEAN_DEPTH) for name, rows in curves.items()}
    finalists = {key: curves[key.criterion][key] for key in by_criterion.values() if key is not None}
    return by_criterion, fastest(finalists, RELATIVE_TIME)


def test_tables(
    choice: Setting | None,
    checked: Mapping[str, Measured],
    tests: Mapping[str, Examples],
    goal: Goal,
    answer_name: Callable[[Any], str],
) -> dict[str, dict[str, Any]]:
    """`split_table` of each test split, after that of `ALL_TESTS` together if there are several."""
    if choice is None:
        return {}
    tables = {name: split_table(choice, found, tests[name], goal, answer_name) for name, found in checked.items()}
    if len(tables) < 2 or any(tests[name].difficulty is None for name in checked):
        return tables
    texts = [text for name in checked for text in tests[name].texts]
    difficulty = np.concatenate([np.asarray(tests[name].difficulty) for name in checked])
    together = split_table(choice, joined(checked.values()), Examples((), texts, difficulty), goal, answer_name, True)
    return {ALL_TESTS: together, **tables}


def joined(parts: Iterable[Measured]) -> Measured:
    """The measurements of several splits as of one, whose time is that of all their examples."""
    parts = list(parts)
    keys = parts[0].examples.keys()
    examples = {key: pd.concat([part.examples[key] for part in parts], ignore_index=True) for key in keys}
    seconds = {key: sum(part.seconds[key] / part.timed * len(part.examples[key]) for part in parts) for key in keys}
    return Measured(examples, seconds, len(examples[FULL_DEPTH]))


def split_table(
    choice: Setting,
    found: Measured,
    examples: Examples,
    goal: Goal,
    answer_name: Callable[[Any], str],
    balanced: bool = False,
) -> dict[str, Any]:
    """The chosen setting beside full depth, on examples of a test split.

    Args:
        balanced: whether every difficulty counts alike in the correlation with steps.
    """
    early, full = found.examples[choice], found.examples[FULL_DEPTH]
    row, at_full_depth = run_row(choice, found), run_row(FULL_DEPTH, found)
    difficulty = None if examples.difficulty is None else np.asarray(examples.difficulty)
    ordered = difficulty is not None and is_numeric(difficulty)
    return {
        "n": len(early),
        "accuracy": row["accuracy"],
        "full_accuracy": at_full_depth["accuracy"],
        "risk": errors(early, full, goal.labelled).mean(),
        MEAN_DEPTH: row[MEAN_DEPTH],
        RELATIVE_TIME: row[RELATIVE_TIME],
        "spearman": (balanced_spearman if balanced else spearman)(early["steps"], difficulty) if ordered else None,
        "by_difficulty": [] if difficulty is None else difficulty_rows(early, full, difficulty),
        "examples": shown_examples(early, examples.texts, difficulty, answer_name),
    }


def difficulty_rows(early: pd.DataFrame, full: pd.DataFrame, difficulty: np.ndarray) -> list[dict[str, Any]]:
    """Results of each bucket of difficulty."""
    rows = []
    for label, members in early.groupby(bucketize(difficulty), observed=True):
        accuracies = [each_right(own.loc[members.index]).mean() if "right" in own else None for own in (early, full)]
        row = {"value": label, "n": len(members), MEAN_DEPTH: members["steps"].mean()}
        rows.append({**row, **dict(zip(("accuracy", "full_accuracy"), accuracies, strict=True))})
    return rows


def shown_examples(
    examples: pd.DataFrame, texts: Sequence[str], difficulty: np.ndarray | None, answer_name: Callable[[Any], str]
) -> list[dict[str, Any]]:
    """A few examples of each number of steps, from few to many."""
    if not len(texts):
        return []
    buckets = pd.Series(bucketize(examples["steps"]).codes)
    # the first of each bucket, then the second ones
    turns = buckets.groupby(buckets).cumcount()
    places = np.lexsort((examples["steps"], turns))[:SHOWN_EXAMPLES]
    return [
        {
            "text": texts[place],
            "steps": examples["steps"][place],
            "label": answer_name(examples["label"][place]) if "label" in examples else None,
            "prediction": answer_name(examples["answer"][place]),
            "difficulty": None if difficulty is None else difficulty[place],
        }
        for place in sorted(places, key=lambda place: examples["steps"][place])
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


def calibrated_fields(model: Any, table: Mapping[str, Any], **source: Any) -> dict[str, Any]:
    """Config fields of a model that stops as a calibration chose.

    Args:
        model: the calibrated model.
        table: a result of `calibrate` with a choice.
        source: `benchmark`, `config` and `split` of the examples, for the record in `exit_calibration`.
    """
    choice = dict(table["chosen"])
    min_depth = choice.pop("min_depth")
    fields = {**Setting(**choice).fields, "min_depth": min_depth, "num_hidden_layers": table["max_depth"]}
    if model.config.capabilities.two_stacks:
        # by which the encoder stops, and the decoder's steps
        others = ("halting_threshold", "num_decoder_layers")
        fields = {name: getattr(model.config, name) for name in others} | fields
    kept = ("n", "tolerance", "confidence", "risk", "budget", "inputs")
    record = {
        **source,
        **{name: table[name] for name in kept},
        **choice,
        "fields": fields,
        "weights": exit_digest(model, fields.get("exit_criterion")),
    }
    return {**fields, "exit_calibration": record}
