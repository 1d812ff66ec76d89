"""A card does not give a run that flags changed the claims of its recipe."""

import json

import pytest

from hf_recurrent.hub import lint_card
from hf_recurrent.hub.stored import stored_digest
from hf_recurrent.training.arguments import ARGUMENT_TYPES
from hf_recurrent.training.card import command, paper_claims, recipe_of
from hf_recurrent.training.recipes import changes_by_flags, parse
from hf_recurrent.training.report_arguments import RunArguments

PAPER = {"id": "dynamic_halt", "table": 1, "row": "GUT"}
TABLE = "Investigating Recurrent Transformers with Dynamic Halt, Table 1 (ListOps), row GUT"


def changes(*argv):
    settings = parse([*argv, "--output_dir", "unused"], ARGUMENT_TYPES)[1]
    return changes_by_flags(argv, settings, ARGUMENT_TYPES)


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (
            ["--config", "{hidden_size: 32, dropout: 0.2}"],
            ["config.hidden_size = 32 (16)", "config.dropout = 0.2 (default)"],
        ),
        (
            ["--benchmark_params", "{max_depth: 5}", "--max_steps=7"],
            ["benchmark_params.max_depth = 5 (3)", "max_steps = 7 (12)"],
        ),
        (["--learning-rate", "1"], ["learning_rate = 1 (0.05)"]),
        (["--max_train_samples", "20"], ["max_train_samples = 20 (default)"]),
        (["--model_type", "ut"], ["model_type = ut (gut)"]),
    ],
)
def test_changes_of_the_experiment_are_reported(write_recipe, flags, reported):
    assert changes(write_recipe(), *flags) == reported


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--max_steps", "12", "--config", "{hidden_size: 16}", "--learning_rate", "5e-2", "--ponder_warmup_steps", "6"],
        [
            "--seed",
            "9",
            "--bf16",
            "true",
            "--disable_tqdm",
            "false",
            "--keep_checkpoints",
            "--dataloader_num_workers",
            "1",
        ],
        ["--hub_model_id", "org/tiny", "--push_to_hub", "true", "--logging_steps", "1", "--data_dir", "/home/ada/rows"],
    ],
)
def test_what_does_not_is_not(write_recipe, flags):
    assert changes(write_recipe(), *flags) == []


def test_without_a_recipe_nothing_is_overridden():
    assert changes("--model_type", "gut", "--max_steps", "7") == []
    assert changes_by_flags([], {}, ARGUMENT_TYPES) == []


def test_places_on_the_machine_are_left_out(write_recipe):
    recipe = write_recipe(model_type=None, model_name_or_path="org/start")
    assert changes(recipe, "--model_name_or_path", "/home/ada/mine") == ["model_name_or_path = mine (org/start)"]


def test_claims():
    run = RunArguments(paper=PAPER, differences=["one seed"])
    assert paper_claims(run, []) == (TABLE, ["one seed"])
    table, differences = paper_claims(run, ["a = 1 (2)", "b = 3 (4)"])
    assert table == f"{TABLE}, but changed by flags: a = 1 (2), b = 3 (4)"
    assert differences == ["one seed", "changed by flags: a = 1 (2), b = 3 (4)"]
    small = RunArguments(paper_table="none: small", differences=["width 64"])
    assert paper_claims(small, ["a = 1 (2)"]) == ("none: small", ["width 64", "changed by flags: a = 1 (2)"])
    assert paper_claims(RunArguments(), ["a = 1 (2)"]) == ("none", [])
    assert run.differences == ["one seed"]


@pytest.mark.slow
def test_the_card_of_a_changed_run_says_so(script, write_recipe, tmp_path):
    recipe = write_recipe(paper=PAPER, differences=["width 16"], eval_steps=1, save_steps=1, thresholds=[])
    flags = ["--max_steps", "1", "--config", "{hidden_size: 8}", "--seed", "5"]
    script.main([recipe, "--output_dir", str(tmp_path / "run"), *flags])
    reported = "changed by flags: config.hidden_size = 8 (16), max_steps = 1 (12)"
    training = json.loads((tmp_path / "run" / "card.json").read_text())["training"]
    assert training["paper_table"] == f"{TABLE}, but {reported}"
    assert training["weights"] == stored_digest(tmp_path / "run")
    assert training["differences_from_paper"] == ["width 16", reported]
    assert f"| Reproduces | {TABLE}, but {reported} |" in (tmp_path / "run" / "README.md").read_text()
    lint_card(tmp_path / "run")


def test_no_place_of_the_machine_is_told():
    inner = {"iid": {"data_dir": "/home/me/files", "num_test": 5}, "parts": ["/tmp/a", "b"]}
    told = command(
        ["demo", "--evaluate_params", json.dumps(inner), "--compare_with=/runs/first", "--config", "{hidden_size: 8}"]
    )
    assert not any(folder in told for folder in ("/home", "/tmp", "/runs"))
    assert '{"iid": {"data_dir": "files", "num_test": 5}, "parts": ["a", "b"]}' in told
    assert "--compare_with=first" in told
    assert "{hidden_size: 8}" in told
    assert recipe_of({"evaluate_params": inner}) == {
        "evaluate_params": {"iid": {"data_dir": "files", "num_test": 5}, "parts": ["a", "b"]}
    }
