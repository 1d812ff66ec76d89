"""What the card of a language model's run claims, and when the paper's numbers stand beside its own."""

from types import SimpleNamespace

import pytest
import yaml
from language_card import make_language_table

from hf_recurrent import TLBConfig, UTConfig
from hf_recurrent.benchmarks import benchmark_info
from hf_recurrent.hub.findings import main_trend
from hf_recurrent.recipes import FOLDER
from hf_recurrent.training.arguments import DataArguments
from hf_recurrent.training.card import chunk_settings, example_of, headline, limitations, split_results
from hf_recurrent.training.objectives import CLASSIFICATION, LANGUAGE_MODELLING
from hf_recurrent.training.paper import PaperRow, papers
from hf_recurrent.training.report_arguments import RunArguments


def test_the_claim_is_about_last_reads():
    assert headline("TLB", "test_64_p80", make_language_table(fixed=True), LANGUAGE_MODELLING) == (
        "TLB: the last read of 90.0% of 40 strings of the `test_64_p80` split right, where the most frequent answer "
        "gives 50.0%, in a fixed 4 depth steps."
    )
    assert "2.5 of at most 4 depth steps on average" in headline("GUT", "t", make_language_table(), LANGUAGE_MODELLING)
    assert "90.0% of 40 examples of the `t` split right" in headline("GUT", "t", make_language_table())


def test_what_a_language_model_does_not_do():
    table = make_language_table()
    said = " ".join(limitations(DataArguments(benchmark="flip_flop"), {"a": table}, LANGUAGE_MODELLING))
    assert "what it generates elsewhere means nothing" in said
    assert "generates" not in " ".join(limitations(DataArguments(benchmark="listops"), {"a": table}))


def test_more_reads_are_no_harder():
    table = make_language_table()
    falls = {**table["slices"]["distance"], "spearman": -0.7}
    by_reads = {**table, "slices": {"num_reads": falls}}
    assert main_trend(by_reads)["direction"] == "unmeasured"
    by_distance = {**table, "slices": {"num_reads": falls, "distance": falls}}
    assert (main_trend(by_distance)["column"], main_trend(by_distance)["direction"]) == ("distance", "shrink")


def row(labelled):
    words = [word for place in range(50) for word in ("i" if place else "w", str(place % 2))]
    return {"text": " ".join(words), "labels": [7 if place in labelled else -100 for place in range(100)]}


@pytest.mark.parametrize(("labelled", "place"), [([5, 39, 41, 99], 39), ([55, 99], 55), ([40], 40)])
def test_the_example_is_a_prompt_up_to_a_read_and_its_answer(labelled, place):
    example = example_of(row(labelled), benchmark_info("flip_flop"), LANGUAGE_MODELLING)
    words = row(labelled)["text"].split()
    assert (example.text, example.answer, example.text_pair) == (" ".join(words[:place]), words[place], None)


def test_an_example_of_bytes_is_how_it_begins():
    text = "a film from /usr/share that C:\\x and ~me " + "like very much\n" * 40
    example = example_of({"text": text, "label": 1}, benchmark_info("lra", "text"), CLASSIFICATION)
    assert example.text.startswith("a film from that and like very much like")
    assert 140 < len(example.text) <= 160
    assert example.text_pair is None
    pair = {"text": "one two three", "text_pair": "four five six", "label": 0}
    example = example_of(pair, benchmark_info("lra", "retrieval"), CLASSIFICATION)
    assert (example.text, example.text_pair) == ("one two three", "four five six")


def test_chunks_are_told_by_the_field_that_counts():
    fixed = TLBConfig(chunking="fixed", chunk_size=10, num_chunks=5, num_memory_slots=4)
    assert chunk_settings(fixed) == {"chunking": "fixed", "chunk_size": 10, "num_memory_slots": 4}
    count = TLBConfig(chunking="count", chunk_size=10, num_chunks=5, num_memory_slots=4)
    assert chunk_settings(count) == {"chunking": "count", "num_chunks": 5, "num_memory_slots": 4}
    assert chunk_settings(UTConfig()) is None


ROW = {"id": "dynamic_halt", "table": 3, "row": "GUTLB"}
RUN = RunArguments(paper=ROW)
SPLITS = ("test_512_p98", "test_1024_p10", "test_256_p98", "test_512_p50", "original/test_512_p98")


def results(run=RUN, width=512, steps=10_000, **data):
    arguments = DataArguments(**{"benchmark": "flip_flop", **data})
    tables = {split: make_language_table() for split in SPLITS}
    found = split_results(tables, run, arguments, SimpleNamespace(hidden_size=width), steps)
    return {
        item.split: (item.paper_accuracy, item.paper_mean, item.paper_std)
        for item in found
        if item.paper_accuracy is not None
    }


def test_a_run_as_the_papers_stands_beside_the_paper():
    assert results() == {"test_512_p98": (0.95, 0.8907, 0.0963), "test_1024_p10": (1.0, 0.8342, 0.2337)}


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 64},
        {"steps": 9_999},
        {"max_train_samples": 100},
        {"benchmark_params": {"train_length": 64}},
        {"benchmark_params": {"p_ignore": 0.5}},
        {"benchmark_params": {"num_train": 1_000}},
        {"benchmark": "listops"},
        {"run": RunArguments(paper_table="none: Table 3 has models of 8 times the width")},
        {"run": RunArguments(paper={**ROW, "table": 1})},
    ],
)
def test_other_runs_do_not_compare(changes):
    assert results(**changes) == {}


def test_every_full_size_recipe_names_a_row_and_no_small_one_does():
    found = {}
    for path in FOLDER.rglob("flip_flop_*.yaml"):
        paper = yaml.safe_load(path.read_text()).get("paper", {})
        found.setdefault(path.parent.name, []).append((paper.get("table"), paper.get("row")))
    assert sorted(found["recipes"]) == sorted((3, row) for row in TABLE_3["rows"])
    assert set(found["cpu"]) == {(None, None)}


TABLE_3 = papers()["dynamic_halt"]["tables"][3]
# medians printed with one digit or none are off by up to this much
ROUNDING = 0.005


def numbers(row):
    """Split -> median, mean and standard deviation."""
    return {cell.split: tuple(cell.numbers.values()) for cell in PaperRow("dynamic_halt", 3, row).cells()}


@pytest.mark.parametrize("row", TABLE_3["rows"])
def test_three_runs_can_have_these_medians_and_means(row):
    for split, (median, mean, std) in numbers(row).items():
        assert 0 <= std < 0.5
        possible = 2 * median / 3 - ROUNDING <= mean <= (2 * median + 1) / 3 + ROUNDING
        # the file says so of this one cell
        assert possible != ((row, split) == ("GUT", "test_1024_p10"))


def test_rows_and_columns_of_the_papers_table():
    assert numbers("UT")["test_512_p80"] == pytest.approx((0.928, 0.9281, 0.0013))
    assert numbers("Transformer")["test_1024_p98"] == pytest.approx((0.87, 0.8388, 0.0412))
    assert numbers("TLB-FR")["test_1024_p80"] == pytest.approx((0.996, 0.9908, 0.0086))
    assert numbers("TLB").keys() == {f"test_{length}_p{percent}" for length in (512, 1024) for percent in (10, 80, 98)}
    with pytest.raises(ValueError, match=r"is 'LSTM': expected one of Transformer, UT, GUT, TLB, GUTLB, TLB-FR"):
        PaperRow("dynamic_halt", 3, "LSTM")
