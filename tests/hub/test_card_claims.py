"""What a card claims follows from its data, and says no more than the data does."""

import json
import os
import re
from dataclasses import replace

import pytest
import yaml

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.hub import render_card
from hf_recurrent.hub.commands import evaluation_command
from hf_recurrent.hub.findings import above_majority, collapsed_halting
from hf_recurrent.hub.lint import FRONT_MATTER
from hf_recurrent.hub.metadata import eval_results_yaml
from hf_recurrent.hub.phrases import phrase
from hf_recurrent.recipes import FOLDER
from hf_recurrent.training.arguments import DataArguments
from hf_recurrent.training.card import command, limitations, recipe_name


def test_better_than_the_most_frequent_answer_means_by_two_standard_errors():
    # the standard error of 0.5 over 100 examples is 0.05
    row = {"n": 100, "majority_baseline": 0.5}
    assert above_majority({**row, "accuracy": 0.61})
    assert not above_majority({**row, "accuracy": 0.6})
    assert not above_majority({**row, "accuracy": 0.55})


def with_steps(card, steps):
    """The card with one split, whose correlation of steps with depth is `steps`."""
    table = json.loads(json.dumps(card.results[0].table))
    table["slices"]["depth"]["spearman"] = steps
    return replace(card, results=[replace(card.results[0], table=table)])


def test_what_too_few_examples_cannot_tell_is_said(card):
    # 60 examples hide correlations below 0.26
    assert "60 examples are too few to decide whether steps change with depth" in render_card(with_steps(card, 0.2))
    assert "do not change** with depth" not in render_card(with_steps(card, 0.2))
    alone = {"direction": "unclear", "n": 1, "steps": "steps", "column": "depth", "spearman": 0.0}
    assert phrase("trend", [alone]).startswith("1 example is too few to decide whether steps change with")


def test_the_same_steps_everywhere_are_one_sentence(card):
    text = render_card(with_steps(card, None))
    assert "**No**: on `test`, every example takes the same steps (2.50 on average)." in text
    assert text.count("the same steps") == 1


def test_results_name_the_config_and_split_they_are_from(card):
    card = replace(card, results=[card.results[0], replace(card.results[0], split="lra/test")])
    found = yaml.safe_load(FRONT_MATTER.match(render_card(card)).group(1))["model-index"][0]["results"]
    assert [(entry["dataset"]["config"], entry["dataset"]["split"]) for entry in found] == [
        ("original", "test"),
        ("lra", "test"),
    ]
    tasks = [entry["dataset"]["task_id"] for entry in yaml.safe_load(eval_results_yaml(card))]
    assert {"original/test", "lra/test"} <= set(tasks)
    assert not [task for task in tasks if task.startswith("original/lra")]


def test_the_command_that_evaluates_again(card):
    command = "hf-recurrent evaluate someone/gut-listops listops --config original --set max_depth=20"
    assert evaluation_command(card).startswith(command)
    defaults = dict(benchmark_info("listops").parameters["original"])
    whole = replace(card.benchmark, parameters=defaults | {"max_eval_samples": 50, "seed": 0})
    assert evaluation_command(replace(card, benchmark=whole)) == (
        "hf-recurrent evaluate someone/gut-listops listops --config original --limit 50"
    )
    other = replace(card.benchmark, parameters=defaults, seed=7)
    assert "--set seed=7" in evaluation_command(replace(card, benchmark=other))
    theirs = replace(card.benchmark, parameters={"rows": "the authors' own files"})
    assert evaluation_command(replace(card, benchmark=theirs)) is None


def test_limitations_follow_from_the_tables(card):
    table = {**card.results[0].table, "accuracy": 0.9, "majority_baseline": 0.4}
    guesses = {**table, "accuracy": 0.41}
    said = " ".join(limitations(DataArguments(benchmark="listops"), {"test": table, "deep": guesses}))
    assert "no better than the most frequent answer on `deep`." in said
    assert "Away from its training distribution it is weaker: 41.0% on `deep`." in said
    said = " ".join(limitations(DataArguments(benchmark="listops"), {"test": table}))
    assert "most frequent" not in said


def halting_table(mean=4.0, spearman=None, **changes):
    slices = {"length": {"spearman": spearman}, "depth": {"spearman": -0.9}}
    table = {"fixed_depth": False, "halting": "global", "max_depth": 10, "n": 400, "steps": {"mean": mean}}
    return {**table, "slices": slices, **changes}


TEXTS = {"fixed_depth": False, "halting": "token", "max_depth": 4, "documents": 400, "mean_steps": 1.2}


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (
            halting_table(1.49),
            "on `test` the model takes 1.49 of 10 depth steps on average. Train with `halting: none` and",
        ),
        (halting_table(spearman=-0.45), "takes fewer depth steps on longer inputs (rank correlation -0.45)."),
        (TEXTS, "takes 1.20 of 4 depth steps on average."),
        ({**TEXTS, "mean_steps": 3.0, "by_column": {"length": {"spearman": -0.5}}}, "(rank correlation -0.50)."),
        # what is no collapse: an exit, a fixed depth, one step, a weak trend, one that few examples cannot tell
        (halting_table(1.2, halting="confidence"), None),
        (halting_table(fixed_depth=True, halting="none", steps=None), None),
        (halting_table(1.0, max_depth=1), None),
        (halting_table(1.5, spearman=-0.25), None),
        (halting_table(spearman=-0.45, n=10), None),
        ({**TEXTS, "mean_steps": 3.0}, None),
    ],
)
def test_learned_halting_that_collapsed_is_told_with_the_remedy(table, found):
    lines = collapsed_halting({"validation": halting_table(), "test": table})
    assert len(lines) == (found is not None)
    assert not found or found in lines[0]


def test_a_command_names_recipes_so_that_they_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    launch = "accelerate launch -m hf_recurrent.train cpu/listops_gut --output_dir run"
    package = FOLDER / "cpu" / "listops_gut.yaml"
    for recipe in ("cpu/listops_gut", "training/recipes/cpu/listops_gut.yaml", str(package), os.path.relpath(package)):
        assert command([recipe]) == launch
        assert recipe_name([recipe]) == "cpu/listops_gut"
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "demo.yaml").touch()
    assert recipe_name([str(tmp_path / "mine.yaml")]) == "mine.yaml"
    # a file of one's own is not what others have under this name
    assert command(["demo.yaml"]) == "accelerate launch training/run_glue_style.py ./demo.yaml --output_dir run"
    assert recipe_name(["--max_steps", "3"]) is None


@pytest.mark.parametrize(
    "form", [["--hub_token", "hf_secret"], ["--hub_token=hf_secret"], ["--hub-token", "hf_secret"]]
)
def test_commands_on_cards_hold_no_token_and_no_place(form):
    words = ["demo", *form, "--seed", "3", "--output_dir", "/home/ada/run"]
    shown = command([*words, "--model_name_or_path", "/home/ada/start", "--push_to_hub", "true"])
    assert shown == (
        "accelerate launch -m hf_recurrent.train demo --seed 3 --model_name_or_path start --output_dir run"
    )
    for data in (["--data_dir", "/home/ada/texts.zip"], ["--data-dir=ada/texts.zip"], ["--data_dir", "../texts.zip"]):
        shown = command(["demo", *data, *form, "--cache_dir", "/tmp/cache"])
        assert re.search(r"demo --data_dir[ =]texts\.zip --output_dir run$", shown)
