"""A calibrated exit on its card and in a gallery: whether depth follows difficulty, what it saves, what is promised."""

import re
from dataclasses import replace

import pytest
from calibration_data import curve_row, make_calibration, split_check, write_calibration
from card_factory import make_card

from hf_recurrent.analysis.calibration import ALL_TESTS
from hf_recurrent.analysis.plots import plot_calibrated_steps
from hf_recurrent.hub import lint_card, render_card
from hf_recurrent.hub.card import SplitResult, read_card, write_card
from hf_recurrent.hub.commands import calibration_command, evaluation_command
from hf_recurrent.hub.findings import accuracy_falls, better_models, relation, time_saved
from hf_recurrent.hub.gallery import build_page, gallery_problems, refresh
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.hub.sections import without_curves
from hf_recurrent.templating import NOTHING
from support.card_text import section

TITLE = "Does it think longer on harder input?"

NAMED = [{"value": name, "n": 50, "accuracy": 0.5, "full_accuracy": 0.5, "mean_depth": 3.0} for name in ("MAX", "MIN")]


def calibrated(fixed=True, **changes):
    return make_card(fixed, calibration=without_curves(make_calibration(**changes)))


def opening(card):
    return section(render_card(card), TITLE)


def answer(card):
    return opening(card).splitlines()[1]


def with_test(**changes):
    return calibrated(tests={"test": {**split_check((1, 2, 3, 4), 0.97), **changes}})


def test_the_card_opens_with_the_calibrated_exit():
    text = render_card(calibrated())
    assert text.index(f"## {TITLE}") < text.index("## Results")
    assert answer(calibrated()) == (
        "**Yes**: on `test`, steps **grow** strongly with depth (Spearman +0.97): "
        "3.00 on average at depth 1, 6.00 at 4."
    )
    assert "- On `far`, steps **grow** moderately with depth (Spearman +0.50): 7.00 on average at depth 5, 8.00" in text
    assert (
        "a fixed depth of 4 steps; calibrated since to stop by `convergence` at 0.25, after at most 16 steps." in text
    )
    assert 'outputs = model(**inputs, exit_criterion="learned")  # without the calibrated exit' in text
    assert "halting_threshold" not in text
    assert "- adaptive-computation\n" in text
    assert "- adaptive-computation\n" not in render_card(calibrated(chosen=None, tests={}))


def test_an_exit_that_was_checked_on_no_other_examples_is_no_fixed_depth():
    card = calibrated(tests={})
    assert answer(card).startswith(
        "**Not known**: it stops by `convergence` at 0.25, which was measured on no examples"
    )
    assert "- adaptive-computation\n" in render_card(card)


def test_a_calibrated_halting_head_is_told_from_a_trained_one():
    chosen = {"criterion": "learned", "threshold": 0.1, "patience": None, "min_depth": 1}
    curves = {"learned": {"curve": [curve_row(0.5, None), curve_row(0.1, None)], "chosen": 0.1}}
    before = calibrated(fixed=False, chosen=chosen, criteria=curves)
    text = render_card(before)
    assert "calibrated since to stop by `learned` at 0.1, after at most 16 steps." in text
    assert f"--halting-threshold {before.results[0].table['threshold']}" in evaluation_command(before)
    assert 'exit_criterion="learned"' not in text
    again = replace(before, results=[SplitResult("test", {**before.results[0].table, "threshold": 0.1})])
    assert "calibrated since" not in render_card(again)
    assert "--halting-threshold" not in evaluation_command(again)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"spearman": -0.7}, "**No, it thinks shorter**: on `test`, steps **shrink** strongly with depth"),
        ({"spearman": 0.2}, "**Weakly**: on `test`, steps **grow** weakly with depth"),
        ({"spearman": 0.05, "n": 4_000}, "**No**: on `test`, steps **do not change** with depth (Spearman +0.05)"),
        ({"spearman": 0.05}, "**Not known**: on `test`, 400 examples are too few to decide whether steps change with"),
        ({"spearman": None}, "**No**: on `test`, every example takes the same steps (4.50 on average)."),
        ({"spearman": None, "by_difficulty": []}, "**Not known**: on `test`, no column orders the examples by"),
        ({"spearman": None, "by_difficulty": NAMED}, "**Not known**: on `test`, no column orders the examples by"),
        ({"accuracy": 0.3}, "6.00 at 4. Its answers there are no better than the most frequent one."),
    ],
)
def test_the_answer_is_what_was_measured(changes, words):
    assert words in answer(with_test(**changes))


def test_without_a_calibration_the_card_opens_with_learned_halting_and_promises_nothing(picture):
    drawn = [replace(picture, kind="difficulty", column=column) for column in ("depth", "operator")]
    text = opening(make_card(plots=drawn))
    assert "**Yes**: on `test`, steps **grow** strongly with depth (Spearman +1.00)" in text
    assert text.count("![") == 1
    for word in ("saves", "guaranteed", "confidence", "Examples"):
        assert word not in text
    assert TITLE not in render_card(make_card(fixed=True))


def test_the_time_stands_beside_full_and_fixed_depth():
    text = opening(calibrated())
    for row in (
        "| `test` | 400 | at full depth | 75.0% | 16 | 100.0% |",
        "| `test` | 400 | by `convergence` at 0.25 | **74.8%** | **4.50** | **30.0%** |",
        "| `validation` | 1,000 | by `convergence` at 0.25 | **74.8%** | **4.50** | **32.0%** |",
        "| `validation` | 1,000 | after 4 steps | 50.0% | 4 | 26.0% |",
    ):
        assert row in text
    assert "On `validation`, the fastest fixed depth that is as accurate takes 8 steps and 51.0% of the time" in text
    # of many, those count that are as fast or as accurate as the early exit
    many = [
        {"max_depth": steps, "accuracy": 0.09 * steps, "relative_time": 0.01 + steps / 16} for steps in range(2, 16, 2)
    ]
    assert re.findall(r"after (\d+) steps", opening(calibrated(fixed_depths=many))) == ["4", "10"]
    fixed = [{"max_depth": 2, "accuracy": 0.8, "relative_time": 0.1}]
    assert "a fixed depth of 2 steps is as accurate **in no more time**" in opening(calibrated(fixed_depths=fixed))
    fixed[0]["accuracy"] = 0.1
    assert "no fixed depth that was tried is as accurate" in opening(calibrated(fixed_depths=fixed))


def test_examples_are_sorted_by_steps():
    table = opening(calibrated()).split("| Steps | depth | Example of `test` | Answer | Right answer |\n")[1]
    rows = [f"| {depth + 2} | {depth} | `[MAX {depth} \\| 2 ]` | `7` | `7` |" for depth in (1, 2, 3, 4)]
    assert table.splitlines()[1:5] == rows


def test_the_guarantee_names_its_data_and_what_was_found():
    assert (
        "With 95% confidence at most 1% of inputs like `validation` of listops (original) are answered right "
        "at full depth and wrong by the early exit. This holds for these weights and that distribution only. Measured: "
        "0.3% of 1,000 examples of `validation`, 0.2% of 400 of `test`, 3.0% of 200 of `far` (**more than the "
        "tolerance**).\n"
    ) in opening(calibrated())
    assert "get another answer by the early exit than at full depth. This" in opening(calibrated(risk="differs"))


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ({"measure": "relative_time", "most": 0.5}, "at most 50% of the time of full depth, whatever inputs are"),
        (
            {"measure": "mean_depth", "most": 0.25},
            "at most 25% of the mean steps of full depth, whatever inputs are answered right",
        ),
    ],
)
def test_an_exit_chosen_by_a_budget_guarantees_nothing(budget, words):
    text = opening(calibrated(budget=budget))
    assert f"Nothing: the exit was chosen to take {words}" in text
    assert "confidence" not in text


COMMAND = (
    "hf-recurrent calibrate someone/gut-listops listops --config original --set max_depth=20 "
    """--set 'operators=["MIN","|"]' --split validation --test_split test --test_split far --criterion convergence """
    "--criterion stability --limit 1000 {} --only_exits --difficulty depth --output calibrated"
)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, "--tolerance 0.01 --confidence 0.95"),
        ({"budget": {"measure": "mean_depth", "most": 0.5}}, "--budget depth=0.5"),
        ({"budget": {"measure": "relative_time", "most": 0.25}}, "--budget time=0.25"),
        ({"risk": "differs"}, "--tolerance 0.01 --confidence 0.95 --without_labels"),
        ({"seed": 7}, "--seed 7 --tolerance 0.01 --confidence 0.95"),
    ],
)
def test_the_command_that_chooses_the_exit_again(changes, options):
    card = calibrated(**changes)
    assert calibration_command(card) == COMMAND.format(options)
    assert f"\n{COMMAND.format(options)}\n" in render_card(card)


def test_results_on_all_tests_are_no_split_of_the_command():
    tests = {ALL_TESTS: split_check((1, 2), 0.5), "test": split_check((1, 2), 0.5)}
    assert calibration_command(calibrated(tests=tests)).count("--test_split") == 1
    assert calibration_command(calibrated(difficulty=None)).endswith(
        "--confidence 0.95 --only_exits --output calibrated"
    )


def test_an_exit_that_not_everybody_can_choose_again_has_no_command():
    card = calibrated()
    theirs = replace(card.benchmark, parameters={"rows": "the authors' own files"})
    own = replace(card.benchmark, seed=None)
    # as earlier versions wrote it
    earlier = {name: value for name, value in card.calibration.items() if name != "tried"}
    for other in (
        calibrated(benchmark="logical_inference"),
        calibrated(chosen=None, tests={}),
        make_card(fixed=True),
        replace(card, benchmark=theirs),
        replace(card, benchmark=own),
        replace(card, calibration=earlier),
    ):
        assert calibration_command(other) is None
    assert "hf-recurrent calibrate someone" not in render_card(replace(card, calibration=earlier))


def test_a_calibration_that_found_nothing_safe():
    text = render_card(calibrated(fixed=False, chosen=None, tests={}))
    assert "Nothing, so it runs as it was trained: at no threshold of any exit criterion do 1,000 examples show" in text
    assert "What stopping early saves" not in text
    assert "halting_threshold=0.9" in text
    assert "**Yes**: on `test`, steps **grow** strongly" in text
    assert answer(calibrated(chosen=None, tests={})) == "**No**: it runs all 4 steps on every input."


def test_without_labels_there_is_no_accuracy():
    bare = split_check((1, 2), 0.97, accuracy=None)
    bare["examples"] = [{**example, "label": None} for example in bare["examples"]]
    found = calibrated(risk="differs", tests={"test": bare})
    assert f"by `convergence` at 0.25 | **{NOTHING}** |" in opening(found)
    assert "Right answer" not in opening(found)
    assert phrase("saved_cell", time_saved(found.to_dict())) == "70.0%"


def test_a_relation_of_too_few_examples_or_values():
    rows = [("1", 2.0, 1), ("2", 3.0, 1)]
    assert relation("depth", None, 2, rows, 2.5)["direction"] == "undefined"
    assert relation("depth", None, 60, rows[:1], 2.0)["direction"] == "constant"


def test_an_end_of_a_relation_has_examples():
    rows = [("1", 9.0, 2), ("2", 3.0, 40), ("3", 4.0, 30), ("4", 1.0, 1)]
    found = relation("depth", 0.5, 73, rows, 3.5)
    assert (found["low"], found["low_mean"], found["high"], found["high_mean"]) == ("2", 3.0, "3", 4.0)
    # where not even two buckets have, all count
    assert relation("depth", 0.5, 43, rows[:2], 3.5)["low"] == "1"


@pytest.mark.parametrize(
    ("accuracies", "falls"),
    [
        ((0.9, 0.8, 0.6), True),
        ((0.7, 0.7, 0.7), False),
        ((0.6, 0.7, 0.8), False),
        # within two standard errors
        ((0.71, 0.7, 0.69), False),
        # too few errors to tell
        ((1.0, 0.99, 0.96), None),
        ((0.0, 0.0, 0.0), None),
        ((None, None, None), None),
        ((0.7,), None),
    ],
)
def test_whether_accuracy_falls(accuracies, falls):
    assert accuracy_falls([{"n": 200, "accuracy": accuracy} for accuracy in accuracies]) is falls


def test_r_squared_is_no_share_of_answers():
    rows = [{"n": 200, "accuracy": share, "majority_baseline": 0.0} for share in (0.8, 0.2, -3.0)]
    assert accuracy_falls(rows) is None
    result = {"split": "test", "table": {**rows[2]}}
    assert better_models([{"name": "other", "same_model": False, "values": {"test": [0.9]}}], result) == []


def test_what_makes_no_more_answers_wrong_is_no_difficulty():
    item = {**relation("length", 0.2, 400, [("1", 2.0, 200), ("2", 3.0, 200)], 2.5), "split": "test", "above": True}
    assert phrase("answer", {**item, "harder": True}).startswith("**Weakly**: on `test`, steps **grow** weakly")
    assert phrase("answer", {**item, "harder": False}).startswith(
        "**Not known**: more length makes no more answers wrong, so that it is no measure of difficulty here. On `test`"
    )


def test_a_sweep_tells_the_time_of_learned_halting():
    row = {"threshold": 0.9, "accuracy": 0.7, "relative_time": 0.6}
    sweep = {"own_threshold": 0.9, "thresholds": [row], "full_depth": {"accuracy": 0.75}}
    card = make_card().to_dict()
    assert phrase("saved_cell", time_saved(card)) == "not measured"
    assert phrase("saved_cell", time_saved({**card, "sweep": {"test": sweep}})) == "40.0% at -5.0 points"


@pytest.fixture
def folder(tmp_path):
    """A gallery's only folder, with a card and a calibration that the card does not show yet."""
    folder = tmp_path / "cards" / "one"
    write_card(folder, make_card(fixed=True, repo_id="one"))
    write_calibration(folder)
    return folder


def test_a_calibration_is_drawn_and_replaced(folder):
    refresh(folder.parent)
    lint_card(folder)
    (plot,) = read_card(folder).plots
    assert (folder / plot.path).read_bytes().startswith(b"\x89PNG")
    assert f"({plot.path})" in opening(read_card(folder))
    assert "criteria" not in read_card(folder).calibration
    # without difficulty there is nothing to draw
    write_calibration(folder, difficulty=None, tests={"test": {**split_check((1,), None), "by_difficulty": []}})
    refresh(folder.parent)
    assert read_card(folder).plots == []
    assert not (folder / plot.path).exists()


def files(root):
    return {path.relative_to(root): path.is_file() and path.read_bytes() for path in root.rglob("*")}


def about_calibration(root):
    return [line for line in gallery_problems(root) if "/calibration.json" in line]


def test_refreshing_takes_up_a_calibration(folder):
    root = folder.parent
    assert about_calibration(root) == [
        "one/calibration.json disagrees with card.json: run `hf-recurrent cards refresh` on the gallery"
    ]
    changed = [path.as_posix() for path in refresh(root)]
    assert {"one/card.json", "one/README.md", "one/assets/calibrated_steps_depth.png", "README.md"} <= set(changed)
    assert about_calibration(root) == []
    assert refresh(root) == []
    index = (root / "README.md").read_text()
    assert "| grow with depth: \u03c1 = +0.97, 3.00 → 6.00 | 70.0% at -0.2 points |" in index
    (folder / "calibration.json").unlink()
    assert about_calibration(root) == ["one/calibration.json is missing: copy it from the run's output folder"]


def test_a_row_of_the_page_shows_depth_and_time(folder):
    refresh(folder.parent)
    text = build_page(folder.parent, folder.parent.parent / "page.html").read_text(encoding="utf-8")
    summary = text.split('<tr class="details"')[0]
    assert "\u03c1&nbsp;=&nbsp;+0.97" in summary
    assert '70.0% <span class="config">at -0.2 points</span>' in summary


def splits_drawn(tests):
    """The labels of the lines of accuracies, and the number of places on the axis."""
    axes = plot_calibrated_steps(tests, "depth").axes[1]
    return [line.get_label() for line in axes.get_lines()], len(axes.get_xticks())


def test_many_buckets_leave_room_for_the_first_split_alone():
    tests = {name: split_check(range(first, first + 12), 0.9) for name, first in (("test", 1), ("far", 20))}
    assert splits_drawn(tests) == (["full depth", "early exit"], 12)


def test_all_test_splits_together_are_drawn_alone():
    tests = {ALL_TESTS: split_check(range(1, 6), 0.9), "test": split_check(range(2, 6), 0.9)}
    assert splits_drawn(tests) == (["full depth", "early exit"], 5)
