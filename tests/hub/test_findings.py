"""Rules for claims: a card says no more than its results do."""

import pytest

from hf_recurrent.hub.card import render_card
from hf_recurrent.hub.findings import (
    ALL_TESTS,
    above_majority,
    accuracy_falls,
    adaptivity,
    best_fixed_depth,
    collapsed_halting,
    lowest_harmless,
    main_trend,
    time_saved,
    trend,
)
from support.card_text import section
from support.results import make_calibration, make_language_table, make_results, make_table, split_check, with_trend


@pytest.mark.parametrize(
    ("correlation", "examples", "expected"),
    [
        (None, 1000, "same"),
        (0.5, 1000, "grow"),
        (-0.5, 1000, "shrink"),
        (0.09, 100_000, "flat"),
        (0.11, 100_000, "grow"),
        (0.5, 10, "unclear"),
        (0.0, 402, "flat"),
        (-0.1, 401, "shrink"),
    ],
)
def test_trend_rule(correlation, examples, expected):
    assert trend(correlation, examples) == expected


NAMED = [{"value": name, "n": 50, "accuracy": 0.5, "full_accuracy": 0.5, "mean_depth": 3.0} for name in ("MAX", "MIN")]


@pytest.mark.parametrize(
    ("changes", "answer", "words"),
    [
        ({}, "Yes", "steps grow with `depth` on `test`"),
        ({"spearman": 0.2}, "Weakly", "steps grow with `depth` on `test`"),
        ({"spearman": -0.7}, "No", "steps shrink as `depth` grows on `test`"),
        ({"spearman": 0.05, "n": 4_000}, "No", "steps do not change with `depth` on `test`"),
        ({"spearman": 0.05}, "Not known", "400 inputs of `test` are too few"),
        ({"spearman": None}, "No", "every input of `test` takes the same steps"),
        ({"spearman": None, "by_difficulty": []}, "Not known", "no column orders the inputs of `test` by difficulty"),
        (
            {"spearman": None, "by_difficulty": NAMED},
            "Not known",
            "no column orders the inputs of `test` by difficulty",
        ),
        ({"accuracy": 0.3}, "Yes", "on `test`, where its answers are no better than the majority baseline"),
    ],
)
def test_whether_it_thinks_longer_is_what_was_measured(changes, answer, words):
    tests = {"test": {**split_check((1, 2, 3, 4), 0.97), **changes}}
    found = adaptivity(make_results(calibration=make_calibration(tests=tests)))
    assert found["answer"] == answer
    assert words in found["reason"]


@pytest.mark.parametrize(
    ("near", "far", "answer", "words"),
    [
        (0.5, 0.5, "Yes", "steps grow with `depth` on `all tested splits`"),
        (0.5, 0.02, "Partly", "but not within `far`, the hardest split"),
        (-0.5, 0.5, "Partly", "but not within `near`"),
    ],
)
def test_steps_must_grow_within_splits_as_well_as_over_them(near, far, answer, words):
    tests = {
        ALL_TESTS: split_check((1, 2, 3, 4, 5, 6), 0.9),
        "near": split_check((1, 2, 3), near),
        "far": split_check((4, 5, 6), far, accuracy=0.5, n=5_000),
    }
    results = make_results(calibration=make_calibration(tests=tests))
    assert adaptivity(results)["answer"] == answer
    assert f"**{answer}**: {adaptivity(results)['reason']}." in render_card(results)
    assert words in adaptivity(results)["reason"]
    assert "| `far` | depth 4 → 6 | 6.00 → 8.00 |" in render_card(results)


def test_a_column_along_which_accuracy_does_not_fall_is_no_difficulty():
    flat = split_check((1, 2, 3, 4), 0.9)
    flat["by_difficulty"] = [{**row, "accuracy": 0.7} for row in flat["by_difficulty"]]
    found = adaptivity(make_results(calibration=make_calibration(tests={"test": flat})))
    assert found["answer"] == "Not known"
    assert found["reason"].startswith("accuracy does not fall with `depth` on `test`")


def test_without_measurements_nothing_is_claimed():
    assert adaptivity(make_results(fixed=True)) == {
        **{"answer": "No", "reason": "it runs all 4 steps on every input", "rows": []},
    }
    unchecked = make_results(fixed=True, calibration=make_calibration(tests={}))
    assert adaptivity(unchecked)["reason"] == "the exit was measured only on the examples that chose it"
    splits = {"test": make_table(), "deep": with_trend(make_table(accuracy=0.4), -0.5)}
    assert adaptivity(make_results(splits=splits))["answer"] == "Partly"


@pytest.mark.parametrize(
    ("low", "high", "falls"),
    [
        (0.9, 0.6, True),
        (0.7, 0.7, False),
        # within two standard errors
        (0.71, 0.69, False),
        # too few errors to tell
        (1.0, 0.96, None),
        (0.0, 0.0, None),
        (None, None, None),
    ],
)
def test_whether_accuracy_falls(low, high, falls):
    assert accuracy_falls({"n": 100, "accuracy": low}, {"n": 100, "accuracy": high}) is falls


def test_the_ends_of_a_trend_have_examples():
    table = make_table()
    rows = table["slices"]["depth"]["rows"]
    table["slices"]["depth"]["rows"] = [{**rows[0], "n": 2}, *rows[1:]]
    assert (main_trend("test", table)["low"], main_trend("test", table)["low_mean"]) == ("2", 2.0)


def test_why_a_trend_is_not_known():
    table = with_trend(make_table(), None)
    depth = table["slices"]["depth"]
    same = {**table, "slices": {"depth": {**depth, "rows": depth["rows"][:1]}}}
    for changed, reason in (
        ({**table, "n": 2}, "2 inputs of `test` are too few"),
        (same, "all inputs of `test` have the same `depth`"),
        ({**table, "slices": {}}, "no column orders the inputs of `test` by difficulty"),
    ):
        found = adaptivity(make_results(splits={"test": changed}))
        assert found["answer"] == "Not known"
        assert found["reason"].startswith(reason)


def test_reads_are_no_difficulty_and_steps_are_those_of_the_answer():
    table = make_language_table()
    assert main_trend("test", table)["mean"] == 3.25
    falls = {**table["slices"]["distance"], "spearman": -0.7}
    assert main_trend("test", {**table, "slices": {"num_reads": falls}})["direction"] == "unmeasured"
    assert main_trend("test", {**table, "slices": {"num_reads": falls, "distance": falls}})["column"] == "distance"


def test_better_than_the_majority_means_by_two_standard_errors():
    # the standard error of 0.5 over 100 examples is 0.05
    row = {"n": 100, "majority_baseline": 0.5}
    assert above_majority({**row, "accuracy": 0.61})
    assert not above_majority({**row, "accuracy": 0.6})


def limitations(**changes):
    return section(render_card(make_results(**changes)), "Limitations")


def test_limitations_follow_from_the_results():
    said = limitations()
    assert "It was trained on `listops` alone" in said
    assert "One run with one seed was made" in said
    # the right answers of depths 3 and 4 are those of one label of three
    assert "On `test`, it is no better than the majority baseline at depth 3, 4." in said
    assert "It knows digits alone." in said
    chance = {"test": make_table(accuracy=0.9), "deep": make_table(accuracy=0.34, distribution="deeper than training")}
    said = limitations(splits=chance)
    assert "It is no better than the majority baseline on `deep`." in said
    assert "34.0% on `deep` (deeper than training), 90.0% on `test`" in said
    assert "outside the training distribution" not in limitations(splits={"test": make_table(), "more": make_table()})
    assert "measured on validation examples" in limitations(splits={"validation": make_table()})


@pytest.mark.parametrize(("runs", "told"), [([0.99], True), ([0.99, 0.2], False), ([0.68], False)])
def test_a_model_that_is_measurably_better_is_a_limitation(runs, told):
    rival = {"name": "LSTM", "parameters": 1234, "values": {"test": runs}, "same_model": False}
    said = "- LSTM (1,234 parameters) is more accurate on `test`: 99.0%."
    assert (said in limitations(compared=[rival])) is told
    again = limitations(compared=[{**rival, "same_model": True}])
    assert "is more accurate" not in again
    assert "one seed" not in again


def test_the_best_fixed_depth_and_the_time_saved():
    calibration = make_calibration()
    assert best_fixed_depth(calibration)["max_depth"] == 8
    assert best_fixed_depth(make_calibration(fixed_depths=[])) is None
    # without a test, one that is as accurate
    rows = [{"max_depth": 8, "accuracy": 0.74, "relative_time": 0.51}]
    assert best_fixed_depth(make_calibration(fixed_depths=rows)) is None
    rows += [{"max_depth": 9, "accuracy": 0.75, "relative_time": 0.6}]
    assert best_fixed_depth(make_calibration(fixed_depths=rows))["max_depth"] == 9
    assert time_saved(make_results(calibration=calibration)) == {
        **{"saved": pytest.approx(0.7), "change": pytest.approx(-0.002)},
    }
    row = {"threshold": 0.9, "accuracy": 0.7, "relative_time": 0.6}
    sweep = {"own_threshold": 0.9, "thresholds": [row], "full_depth": {"accuracy": 0.75}}
    assert time_saved(make_results(sweep={"test": sweep}))["saved"] == pytest.approx(0.4)
    assert time_saved(make_results()) is None


@pytest.mark.parametrize(("lost", "lowest"), [((0, 0, 0), 0.1), ((9, 0, 0), 0.5), ((0, 9, 0), 0.9)])
def test_the_lowest_threshold_that_loses_nothing(lost, lowest):
    rows = [{"threshold": x, "lost": n, "gained": 0} for x, n in zip((0.1, 0.5, 0.9), lost, strict=True)]
    assert lowest_harmless({"own_threshold": 0.9, "thresholds": rows})["threshold"] == lowest


def with_steps(mean=4.0, spearman=None, **changes):
    table = {"fixed_depth": False, "halting": "global", "max_depth": 10, "n": 400, "steps": {"mean": mean}}
    return {**table, "slices": {"length": {"spearman": spearman}}, **changes}


TEXTS = {"fixed_depth": False, "halting": "token", "max_depth": 4, "documents": 400, "mean_steps": 1.2}


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (
            with_steps(1.49),
            "on `test` the model takes 1.49 of 10 depth steps on average. Train with `halting: none` and",
        ),
        (with_steps(spearman=-0.45), "takes fewer depth steps on longer inputs (rank correlation -0.45)."),
        (TEXTS, "takes 1.20 of 4 depth steps on average."),
        ({**TEXTS, "mean_steps": 3.0, "by_column": {"length": {"spearman": -0.5}}}, "(rank correlation -0.50)."),
        # an exit, a fixed depth, one step, a weak trend, one that few examples cannot tell
        (with_steps(1.2, halting="confidence"), None),
        (with_steps(fixed_depth=True, halting="none", steps=None), None),
        (with_steps(1.0, max_depth=1), None),
        (with_steps(1.5, spearman=-0.25), None),
        (with_steps(spearman=-0.45, n=10), None),
    ],
)
def test_learned_halting_that_collapsed_is_told_with_the_remedy(table, found):
    lines = collapsed_halting({"validation": with_steps(), "test": table})
    assert len(lines) == (found is not None)
    assert not found or found in lines[0]
