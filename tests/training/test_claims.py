"""What a card claims of a run that flags changed: its recipe's row of a paper's table, or another, and what changed."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_lines import read
from tiny_run import write_recipe

from hf_recurrent.hub import lint_card, read_results
from hf_recurrent.hub.results import stored_digest
from hf_recurrent.recipes import FOLDER
from hf_recurrent.training.arguments import ReportArguments
from hf_recurrent.training.recipes import (
    PaperRow,
    is_packaged,
    paper_claims,
    paper_values,
    read_mapping,
    reproduced_row,
)
from hf_recurrent.training.results import command, recipe_of
from hf_recurrent.training.run import run

# ---- changes by flags


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
        # places on the machine are left out
        (
            ["--model_name_or_path", "/home/ada/mine"],
            ["model_type = default (gut)", "model_name_or_path = mine (default)"],
        ),
        # the recipe's own values, and what is no experiment
        ([], []),
        (["--max_steps", "12", "--config", "{hidden_size: 16}", "--learning_rate", "5e-2"], []),
        (["--seed", "9", "--disable_tqdm", "false", "--keep_checkpoints", "--dataloader_num_workers", "1"], []),
        (["--hub_model_id", "org/tiny", "--push_to_hub", "true", "--logging_steps", "1", "--data_dir", "/home/a"], []),
    ],
)
def test_changes_of_the_experiment_are_reported(recipe, flags, reported):
    assert read(recipe(), *flags).changes == reported
    assert read("--model_type", "gut", "--max_steps", "7").changes == [], "without a recipe nothing is changed"


def test_no_place_of_the_machine_is_told():
    inner = {"iid": {"data_dir": "/home/me/files", "num_test": 5}, "parts": ["/tmp/a", "b"]}
    flags = {"evaluate_params": inner, "notice": "/runs/first", "config": {"hidden_size": 8}, "data_dir": "/a/texts"}
    told = command(["demo"], {**flags, "output_dir": "/runs/first", "language": ["en", "de"]}, read("demo").task)
    assert told.startswith("accelerate launch -m hf_recurrent.train demo ")
    assert not any(folder in told for folder in ("/home", "/tmp", "/runs"))
    assert '{"iid": {"data_dir": "files", "num_test": 5}, "parts": ["a", "b"]}' in told
    assert "--notice first" in told
    assert '{"hidden_size": 8}' in told
    assert told.endswith("--language en de --data_dir texts --output_dir run")
    assert recipe_of({"evaluate_params": inner}) == {
        "evaluate_params": {"iid": {"data_dir": "files", "num_test": 5}, "parts": ["a", "b"]}
    }


# ---- rows of tables

ROW = {"id": "neural_data_router", "table": 1, "row": "+ rel"}
FIRST = {"table": 5, "row": "+ rel, first"}
TITLES = {
    1: "The Neural Data Router, Table 1 (compositional table lookup), row + rel",
    5: "The Neural Data Router, Table 5 (compositional table lookup), row + rel, first",
}
VARIANTS = {"benchmark_config = backward": None, "config.pooling = cls": FIRST}
REPORT = ReportArguments(paper=ROW, paper_variants=VARIANTS, differences=["one seed"])
POOLED, BACKWARD = "config.pooling = cls (end)", "benchmark_config = backward (forward)"


def results(report=REPORT, changes=(), width=128, steps=30_000, **data):
    """Split -> accuracy and deviation that stand beside a run on table lookup."""
    given = {"benchmark": "compositional_table_lookup", "benchmark_config": "forward"}
    given |= {"benchmark_params": {"valid_extra_depth": 2}}
    arguments = dataclasses.replace(read("--model_type", "gut").task.data, **{**given, **data})
    tables, config = (
        {split: {"n": 5} for split in ("test", "test_ood", "test_basic")},
        SimpleNamespace(hidden_size=width),
    )
    found = paper_values(tables, report, arguments, config, steps, changes=changes)
    return {split: (paper["accuracy"], paper.get("std")) for split, paper in found.items() if "accuracy" in paper}


def test_a_run_as_the_papers_stands_beside_it():
    assert results() == {"test": (1.0, 0.0), "test_ood": (0.23, 0.05)}
    backward = results(benchmark_config="backward", changes=[BACKWARD])
    assert backward == {"test": (1.0, 0.0), "test_ood": (0.13, 0.01)}
    assert results(changes=[POOLED])["test_ood"] == (0.12, 0.01)
    # another draw of the same distribution
    assert results(changes=["benchmark_params.seed = 3 (default)"]) == results()
    # a number that a recipe gives as a text
    assert results(ReportArguments(paper={**ROW, "table": "1"})) == {"test": (1.0, 0.0), "test_ood": (0.23, 0.05)}
    # columns of fewer steps
    report = ReportArguments(paper={"id": "neural_data_router", "table": 6, "row": "+ geo, U"})
    assert results(report, steps=30_000, benchmark_params={}) == {"test_ood": (0.31, 0.22)}
    assert results(report, steps=60_000, benchmark_params={})["test"] == (0.96, 0.10)
    assert results(report, steps=45_000, benchmark_params={}) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"width": 64},
        {"steps": 29_999},
        {"changes": ["learning_rate = 1 (2)"]},
        {"changes": ["config.pooling = mean (end)"]},
        {"changes": ["benchmark_params.valid_extra_depth = default (2)"]},
        {"changes": ["benchmark_params.num_train = 5 (default)"]},
        {"changes": ["benchmark_params.num_test = 5 (default)"]},
        {"changes": ["benchmark_params.disjoint = false (default)"]},
        {"changes": ["max_train_samples = 5 (default)"]},
        {"changes": ["size of a step = 32 (16)"]},
        {"data_dir": "rows"},
        {"report": ReportArguments(paper_table="none: Table 1 has a model of 4 times the width")},
    ],
)
def test_other_runs_do_not_compare(change):
    assert results(**change) == {}


def test_claims():
    own, other = PaperRow.of(ROW), PaperRow.of(ROW | FIRST)
    assert reproduced_row(REPORT, [BACKWARD]) == (own, [])
    assert reproduced_row(REPORT, [POOLED, BACKWARD]) == (other, [])
    assert paper_claims(REPORT, []) == (TITLES[1], ["one seed"])
    assert paper_claims(REPORT, [POOLED]) == (TITLES[5], ["one seed"])
    told = "changed by flags: a = 1 (2), b = 3 (4)"
    assert paper_claims(REPORT, [POOLED, "a = 1 (2)", "b = 3 (4)"]) == (f"{TITLES[5]}, but {told}", ["one seed", told])
    # of two changes that lead to other rows the first counts
    both = ReportArguments(paper=ROW, paper_variants={"a = 1": {"row": "LSTM"}, "b = 1": {"row": "DNC"}})
    row, rest = reproduced_row(both, ["a = 1 (0)", "b = 1 (0)"])
    assert (row.row, rest) == ("LSTM", ["b = 1 (0)"])
    small = ReportArguments(paper_table="none: small", differences=["width 64"])
    assert paper_claims(small, ["a = 1 (2)"]) == ("none: small", ["width 64", "changed by flags: a = 1 (2)"])
    assert paper_claims(ReportArguments(), ["a = 1 (2)"]) == ("none", [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paper": {**ROW, "id": "neural_router"}}, r"paper\.id is 'neural_router': .*did you mean neural_data_router"),
        ({"paper": {**ROW, "row": "+ relatives"}}, r"paper\.row \(of neural_data_router, Table 1\) is '\+ relatives'"),
        ({"paper": {"id": "block_recurrent", "table": 1, "row": "XL:512"}}, "expected one of PG19 bytes, PG19 tokens"),
        ({"paper": {"id": "neural_data_router"}}, "expected the keys id, table and row"),
        ({"paper": {**ROW, "page": 3}}, "expected the keys id, table and row"),
        ({"paper": {**ROW, "table": "7"}}, "paper.table is '7': expected one of 1, 2, 3"),
        ({"paper_variants": {"a = 1": None}}, "set paper to"),
        ({"paper": ROW, "paper_variants": {"a = 1": {"row": "x"}}}, r"paper\.row"),
        ({"paper": ROW, "paper_table": "Table 9"}, "set one of them"),
    ],
)
def test_rows_that_no_paper_has(settings, message):
    with pytest.raises(ValueError, match=message):
        ReportArguments(**settings)


def test_copies_of_recipes_are_the_papers_experiments(tmp_path):
    recipe = read_mapping(FOLDER / "listops_gut.yaml")
    for changes, same in (
        ({}, True),
        ({"title": "mine", "output_dir": "runs/mine", "seed": 5}, True),
        ({"learning_rate": 0.5}, False),
        ({"paper": {**recipe["paper"], "row": "UT"}}, False),
    ):
        copy = Path(write_recipe(tmp_path / "mine.yaml", {**recipe, **changes}))
        assert is_packaged(copy) is same


@pytest.mark.slow
def test_the_card_of_a_changed_run_says_so(recipe, tmp_path):

    path = recipe(paper=ROW, differences=["width 16"], eval_steps=1, save_steps=1)
    run(
        [path, "--output_dir", str(tmp_path / "run"), "--max_steps", "1", "--config", "{hidden_size: 8}", "--seed", "5"]
    )
    reported = "changed by flags: config.hidden_size = 8 (16), max_steps = 1 (12)"
    training = read_results(tmp_path / "run")["training"]
    assert training["reproduces"] == f"{TITLES[1]}, but {reported}"
    assert training["weights"] == stored_digest(tmp_path / "run")
    assert training["differences"] == ["width 16", reported]
    assert f"| Reproduces | {TITLES[1]}, but {reported} |" in (tmp_path / "run" / "README.md").read_text()
    lint_card(tmp_path / "run")
