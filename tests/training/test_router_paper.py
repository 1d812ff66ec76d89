"""Rows of the Neural Data Router's tables: which one a run reproduces, and what stands beside its own results."""

from types import SimpleNamespace

import pytest
import yaml
from tiny_run import RECIPES

from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.hub.paper_results import NEURAL_DATA_ROUTER_TABLES
from hf_recurrent.training.arguments import DataArguments, RunArguments
from hf_recurrent.training.paper import (
    NEURAL_DATA_ROUTER_ROW,
    paper_claims,
    paper_results,
    split_results,
    within_tables,
)

TABLE = "The Neural Data Router, Table 1 (compositional table lookup), row + rel"
FIRST = "The Neural Data Router, Table 5 (compositional table lookup), row + rel, first"
RUN = RunArguments(
    paper_table=TABLE, paper_variants={"benchmark_config = backward": None, "config.pooling = cls": FIRST}
)
SPLITS = ("test", "test_ood", "test_basic")


def results(run=RUN, changes=(), width=128, steps=30_000, **data):
    defaults = {"benchmark": "compositional_table_lookup", "benchmark_params": {"valid_extra_depth": 2}}
    arguments = DataArguments(**{**defaults, **data})
    return paper_results(run, arguments, SimpleNamespace(hidden_size=width), steps, SPLITS, changes)


def test_a_run_as_the_papers_stands_beside_it():
    assert results() == {"test": (None, 1.0, 0.0), "test_ood": (None, 0.23, 0.05)}
    backward = results(benchmark_config="backward", changes=["benchmark_config = backward (forward)"])
    assert backward == {"test": (None, 1.0, 0.0), "test_ood": (None, 0.13, 0.01)}
    first = results(changes=["config.pooling = cls (end)"])
    assert first["test_ood"] == (None, 0.12, 0.01)
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
        {"run": RunArguments(paper_table=TABLE.replace("+ rel", "+ relatives"))},
        {"benchmark": "listops", "benchmark_params": {}},
    ],
)
def test_other_runs_do_not_compare(change):
    assert results(**change) == {}


def test_columns_of_fewer_steps():
    run = RunArguments(paper_table="The Neural Data Router, Table 6 (compositional table lookup), row + geo, U")
    assert results(run, steps=30_000, benchmark_params={}) == {"test_ood": (None, 0.31, 0.22)}
    assert results(run, steps=60_000, benchmark_params={})["test"] == (None, 0.96, 0.10)
    assert results(run, steps=45_000, benchmark_params={}) == {}


def test_a_mean_without_a_median_is_the_papers_value():
    (result,) = split_results({"test_ood": {}}, results())
    assert (result.paper_accuracy, result.paper_mean, result.paper_std) == (0.23, None, 0.05)


def test_variants_are_rows_of_their_own_and_other_changes_are_told():
    backward, first = "benchmark_config = backward (forward)", "config.pooling = cls (end)"
    assert within_tables(RUN, [backward]) == (TABLE, [])
    assert within_tables(RUN, [first, backward]) == (FIRST, [])
    assert paper_claims(RUN, [first]) == (FIRST, [])
    table, differences = paper_claims(RUN, [first, "seed = 2 (1)"])
    assert (table, differences) == (f"{FIRST}, but changed by flags: seed = 2 (1)", ["changed by flags: seed = 2 (1)"])
    # two ways to another row lead to none
    both = RunArguments(paper_table=TABLE, paper_variants={"a = 1": "row A", "b = 1": "row B"})
    assert within_tables(both, ["a = 1 (0)", "b = 1 (0)"]) == ("row A", ["b = 1 (0)"])


def router_recipes():
    return [path for path in RECIPES if path.parent.name == "recipes" and "Neural Data Router" in path.read_text()]


def test_recipes_are_the_rows_of_tables_1_to_6():
    found = []
    for path in router_recipes():
        recipe = yaml.safe_load(path.read_text())
        variants = recipe.get("paper_variants") or {}
        for claim in [recipe["paper_table"], *filter(None, variants.values())]:
            match = NEURAL_DATA_ROUTER_ROW.search(claim)
            table, row = int(match[1]), match[2]
            found.append((table, row))
            known = NEURAL_DATA_ROUTER_TABLES[table][row]
            assert known.benchmark == recipe["benchmark"]
            assert known.width == recipe["config"]["hidden_size"]
            assert known.iterations == recipe["max_steps"]
            assert known.data == recipe.get("benchmark_params", {})
            assert recipe["benchmark_config"] in known.columns
            assert set(known.columns) == set(benchmark_info(known.benchmark).configs)
            if known.early_iterations is not None:
                assert f"max_steps = {known.early_iterations}" in variants
    # Table 4 has the row of Table 1 once more
    rows = {(table, row) for table, rows in NEURAL_DATA_ROUTER_TABLES.items() for row in rows} - {(4, "14 layers")}
    assert sorted(found) == sorted(rows)


@pytest.mark.parametrize(("table", "row"), [(t, row) for t, rows in NEURAL_DATA_ROUTER_TABLES.items() for row in rows])
def test_numbers_are_accuracies_of_five_runs(table, row):
    known = NEURAL_DATA_ROUTER_TABLES[table][row]
    pairs = [pair for cells in known.columns.values() for pair in cells] + list(known.early.values())
    for mean, std in pairs:
        # five numbers in [0, 1] with this mean cannot spread further
        assert 0 <= std <= (1.25 * mean * (1 - mean)) ** 0.5 + 0.01
    assert set(known.early) in (set(), set(known.columns))
