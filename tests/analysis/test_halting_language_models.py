"""Halting statistics of causal language models: what counts as the answer, and steps token by token."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_language_model import DEPTH, VOCABULARY, FakeLanguageModel, language_batches, naive_rows

from hf_recurrent.analysis import plots
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.explain.card import token_heat_map
from hf_recurrent.analysis.halting import TokenKinds, halting_table
from hf_recurrent.utils import percent

PARITY = TokenKinds(("even", "odd", "never"), lambda ids: ids % 2)


@pytest.fixture
def record():
    return evaluate_batches(
        FakeLanguageModel(), language_batches(), slices={"distance": list(range(12))}, kinds=PARITY
    ).record


def test_the_answer_is_the_last_labelled_token(record):
    assert (record.unit, record.halting) == ("token", "global")
    rows = list(naive_rows())
    assert record.examples["label"].tolist() == [ids[wanted[-1]] for ids, wanted in rows]
    assert record.examples["prediction"].tolist() == [(ids[wanted[-1] - 1] + 1) % VOCABULARY for ids, wanted in rows]
    right = [[ids[t] == (ids[t - 1] + 1) % VOCABULARY for t in wanted] for ids, wanted in rows]
    assert record.examples["labelled"].tolist() == [len(row) for row in right]
    assert record.examples["right"].tolist() == [sum(row) for row in right]
    assert record.examples["answer_steps"].tolist() == [ids[wanted[-1] - 1] % (DEPTH + 1) for ids, wanted in rows]
    table = halting_table(record)
    assert table["n"] == 12
    assert table["accuracy"] == np.mean([row[-1] for row in right])
    total = sum(map(len, right))
    assert table["labelled_tokens"] == {"n": total, "accuracy": pytest.approx(sum(map(sum, right)) / total)}
    for row in table["slices"]["distance"]["rows"]:
        assert row["labelled_tokens"]["n"] == sum(len(right[i]) for i in range(int(row["low"]), int(row["high"]) + 1))
        assert row["answer_steps"]["max"] <= DEPTH


def test_steps_by_position_and_kind(record):
    rows = [ids for ids, _ in naive_rows()]
    tables = halting_table(record)["tokens"]
    positions = tables["position"]["rows"]
    assert [row["value"] for row in positions] == [str(t) for t in range(9)]
    for t, row in enumerate(positions):
        steps = [ids[t] % (DEPTH + 1) for ids in rows if t < len(ids)]
        assert row["n"] == len(steps)
        assert row["steps"] == {
            "mean": pytest.approx(np.mean(steps)),
            "median": np.median(steps),
            "p95": pytest.approx(np.quantile(steps, 0.95)),
            "max": max(steps),
        }
        assert row["forced_halt_rate"] == pytest.approx(np.mean([step == DEPTH for step in steps]))
    even, odd = tables["kind"]["rows"]
    assert (even["value"], odd["value"]) == ("even", "odd")
    steps = [i % (DEPTH + 1) for ids in rows for i in ids if i % 2]
    assert (odd["n"], odd["steps"]["mean"]) == (len(steps), pytest.approx(np.mean(steps)))


@pytest.mark.parametrize("whole", [False, True])
def test_left_padding_changes_nothing(whole):
    right = next(language_batches())
    if whole:
        right["labels"] = right["input_ids"].masked_fill(right["attention_mask"] == 0, -100)
    lengths = right["attention_mask"].sum(1).tolist()
    left = {
        name: torch.stack([row.roll(len(row) - n) for row, n in zip(values, lengths, strict=True)])
        for name, values in right.items()
    }
    assert not torch.equal(left["labels"], right["labels"])
    tables = [
        halting_table(evaluate_batches(FakeLanguageModel(), [batch], kinds=PARITY).record) for batch in (left, right)
    ]
    assert tables[0] == tables[1]


def test_bad_labels():
    batch = next(language_batches())
    # the first token is never predicted
    batch["labels"][2] = torch.tensor([1] + [-100] * 8)
    with pytest.raises(ValueError, match="row 2 of a batch has no label"):
        evaluate_batches(FakeLanguageModel(), [batch])


class Words:
    model_input_names = ["input_ids", "attention_mask"]

    def convert_ids_to_tokens(self, ids):
        return [str(i) for i in ids]


def test_heat_map_of_tokens():
    row = {"input_ids": [3, 1, 2, 0], "attention_mask": [1, 1, 1, 0], "labels": [-100, 1, 2, -100]}
    heat_map = token_heat_map(FakeLanguageModel(), Words(), row)
    assert (heat_map["rows"], heat_map["steps"]) == (["3", "1", "2"], [3, 1, 2])


@pytest.mark.slow
def test_figures_of_a_language_model(record, tmp_path):
    table = halting_table(record)
    heat_map = token_heat_map(FakeLanguageModel(), Words(), {"input_ids": [1, 2] * 60})
    memory = {"reads": np.eye(3, 2), "writes": np.ones((3, 2)), "chunks": ["a", "$x$_", "c"]}
    listed = plots.save_figures(tmp_path, table, prefix="test", heat_map=heat_map, memory=memory)
    kinds = [(entry["kind"], entry["column"]) for entry in listed]
    assert kinds[3:] == [("token_steps", "position"), ("token_steps", "kind"), ("heat_map", None), ("memory", None)]
    for entry in listed:
        content = (tmp_path / entry["path"]).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert 2_000 < len(content) < 100_000


@pytest.mark.parametrize("halting", ["global", None])
def test_figures_call_the_accuracy_what_cards_call_it(halting):
    table = halting_table(
        evaluate_batches(FakeLanguageModel(halting), language_batches(), slices={"x": range(12)}).record
    )
    axes = plots.plot_difficulty(table, "x").axes
    title, rows = axes[0].get_title(loc="left"), table["slices"]["x"]["rows"]
    assert title.endswith(f"last-read accuracy {percent(rows[0]['accuracy'])} → {percent(rows[-1]['accuracy'])}")
    assert axes[-1].get_ylabel() == "last-read accuracy"
    if halting:
        assert title.startswith(f"By x: steps at the last read {rows[0]['answer_steps']['mean']:.2f} → ")
        assert axes[0].get_ylabel() == "steps at the last read"


def test_difficulty_is_compared_with_the_steps_at_the_last_read(record):
    # the harder a string is, the fewer steps it takes on average and the more at its last read
    answer, mean = np.arange(12.0), np.arange(12.0)[::-1]
    examples = record.examples.assign(answer_steps=answer, steps=mean)
    table = halting_table(replace(record, examples=examples))
    assert table["slices"]["distance"]["spearman"] == pytest.approx(1)
    without = halting_table(replace(record, examples=examples.drop(columns=["labelled", "right", "answer_steps"])))
    assert without["slices"]["distance"]["spearman"] == pytest.approx(-1)
    lines = plots.plot_difficulty(table, "distance").axes[0].get_lines()
    rows = table["slices"]["distance"]["rows"]
    assert list(lines[0].get_ydata()) == [row["answer_steps"]["mean"] for row in rows]
    assert list(lines[1].get_ydata()) == [row["answer_steps"]["p95"] for row in rows]
