"""Rows of the Neural Data Router's tables: which one a run reproduces, and what stands beside its own results."""

from types import SimpleNamespace

import pytest
from tiny_run import RECIPES

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.training.arguments import DataArguments
from hf_recurrent.training.card import paper_claims, reproduced_row, split_results
from hf_recurrent.training.paper import PaperRow, papers
from hf_recurrent.training.recipes import read_mapping
from hf_recurrent.training.report_arguments import RunArguments

ROW = {"id": "neural_data_router", "table": 1, "row": "+ rel"}
FIRST = {"table": 5, "row": "+ rel, first"}
TITLE = "The Neural Data Router, Table 1 (compositional table lookup), row + rel"
FIRST_TITLE = "The Neural Data Router, Table 5 (compositional table lookup), row + rel, first"
RUN = RunArguments(paper=ROW, paper_variants={"benchmark_config = backward": None, "config.pooling = cls": FIRST})
TABLES = papers()["neural_data_router"]["tables"]
SPLITS = ("test", "test_ood", "test_basic")


def results(run=RUN, changes=(), width=128, steps=30_000, **data):
    defaults = {"benchmark": "compositional_table_lookup", "benchmark_params": {"valid_extra_depth": 2}}
    arguments = DataArguments(**{**defaults, **data})
    tables = {split: {"n": 5} for split in SPLITS}
    model = SimpleNamespace(hidden_size=width)
    found = split_results(tables, run, arguments, model, steps, changes=changes)
    return {item.split: (item.paper_accuracy, item.paper_std) for item in found if item.paper_accuracy is not None}


def test_a_run_as_the_papers_stands_beside_it():
    assert results() == {"test": (1.0, 0.0), "test_ood": (0.23, 0.05)}
    backward = results(benchmark_config="backward", changes=["benchmark_config = backward (forward)"])
    assert backward == {"test": (1.0, 0.0), "test_ood": (0.13, 0.01)}
    first = results(changes=["config.pooling = cls (end)"])
    assert first["test_ood"] == (0.12, 0.01)
    # another draw of the same distribution
    assert results(benchmark_params={"valid_extra_depth": 2, "seed": 3}) == results()


@pytest.mark.parametrize(
    "change",
    [
        {"width": 64},
        {"steps": 29_999},
        {"changes": ["learning_rate = 1 (2)"]},
        {"changes": ["config.pooling = mean (end)"]},
        {"benchmark_params": {}},
        {"benchmark_params": {"valid_extra_depth": 2, "num_train": 5}},
        {"max_train_samples": 5},
        {"data_dir": "rows"},
        {"run": RunArguments(paper_table="none: Table 1 has a model of 4 times the width")},
        {"benchmark": "listops", "benchmark_params": {}},
    ],
)
def test_other_runs_do_not_compare(change):
    assert results(**change) == {}


def test_columns_of_fewer_steps():
    run = RunArguments(paper={"id": "neural_data_router", "table": 6, "row": "+ geo, U"})
    assert results(run, steps=30_000, benchmark_params={}) == {"test_ood": (0.31, 0.22)}
    assert results(run, steps=60_000, benchmark_params={})["test"] == (0.96, 0.10)
    assert results(run, steps=45_000, benchmark_params={}) == {}


def test_variants_are_rows_of_their_own_and_other_changes_are_reported():
    backward, first = "benchmark_config = backward (forward)", "config.pooling = cls (end)"
    own, other = PaperRow.of(ROW), PaperRow.of(ROW | FIRST)
    assert (own.title, other.title) == (TITLE, FIRST_TITLE)
    assert reproduced_row(RUN, [backward]) == (own, [])
    assert reproduced_row(RUN, [first, backward]) == (other, [])
    assert paper_claims(RUN, [first]) == (FIRST_TITLE, [])
    table, differences = paper_claims(RUN, [first, "seed = 2 (1)"])
    assert table == f"{FIRST_TITLE}, but changed by flags: seed = 2 (1)"
    assert differences == ["changed by flags: seed = 2 (1)"]
    # of two changes that lead to other rows the first counts
    both = RunArguments(paper=ROW, paper_variants={"a = 1": {"row": "LSTM"}, "b = 1": {"row": "DNC"}})
    row, rest = reproduced_row(both, ["a = 1 (0)", "b = 1 (0)"])
    assert (row.row, rest) == ("LSTM", ["b = 1 (0)"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"paper": {**ROW, "id": "neural_router"}}, r"paper\.id is 'neural_router': .*did you mean neural_data_router"),
        ({"paper": {**ROW, "row": "+ relatives"}}, r"paper\.row \(of neural_data_router, Table 1\) is '\+ relatives'"),
        ({"paper": {"id": "block_recurrent", "table": 1, "row": "XL:512"}}, "expected one of PG19 bytes, PG19 tokens"),
        ({"paper": {"id": "neural_data_router"}}, "table, row missing"),
        ({"paper": ROW, "paper_variants": {"a = 1": {"row": "x"}}}, r"paper\.row"),
        ({"paper": ROW, "paper_table": "Table 9"}, "set one of them"),
        ({"paper_variants": {"a = 1": None}}, "set paper to"),
    ],
)
def test_rows_that_no_paper_has(settings, message):
    with pytest.raises(ValueError, match=message):
        RunArguments(**settings)


def test_recipes_are_the_rows_of_tables_1_to_6():
    found = []
    for path in RECIPES:
        recipe = read_mapping(path)
        if recipe.get("paper", {}).get("id") != "neural_data_router":
            continue
        variants = recipe.get("paper_variants") or {}
        for other in [{}, *filter(None, variants.values())]:
            named = PaperRow.of({**recipe["paper"], **other})
            found.append((named.table, named.row))
            for cell in named.cells():
                needs = cell.needs
                assert needs.benchmark == recipe["benchmark"]
                assert needs.model == {"hidden_size": recipe["config"]["hidden_size"]}
                assert needs.params == recipe.get("benchmark_params", {})
                if needs.exact_steps is None:
                    assert needs.steps == recipe["max_steps"]
                else:
                    assert f"max_steps = {needs.exact_steps}" in variants
            assert {cell.config for cell in named.cells()} == set(benchmark_info(recipe["benchmark"]).configs)
    # Table 4 has the row of Table 1 once more
    rows = {(table, row) for table, facts in TABLES.items() for row in facts["rows"]} - {(4, "14 layers")}
    assert sorted(found) == sorted(rows)
