import numpy as np
import pytest
import torch
from fake_classifier import FakeClassifier, batches_of

from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.halting import halting_table


@pytest.fixture
def model():
    return FakeClassifier(torch.rand(30, 5, generator=torch.Generator().manual_seed(0)) * 0.6)


def test_table_against_the_record(model):
    lengths = [i * i for i in range(30)]
    record = evaluate_batches(
        model, batches_of(30, 8), slices={"length": lengths, "operator": ["MIN", "MAX"] * 15}
    ).record
    table = halting_table(record)
    assert table["n"] == 30
    assert table["accuracy"] == 10 / 30
    assert table["majority_baseline"] == 1.0
    assert table["steps"]["mean"] == pytest.approx(record.examples["steps"].mean())
    assert table["steps"]["median"] == np.median(record.examples["steps"])
    assert table["forced_halt_rate"] == pytest.approx(np.mean(record.examples["steps"] == 5))
    assert sum(table["halting_mass"]) == pytest.approx(1)
    assert len(table["halting_mass"]) == len(table["steps_histogram"]) == 6
    assert sum(table["steps_histogram"]) == 30
    rows = table["slices"]["length"]["rows"]
    assert sum(row["n"] for row in rows) == 30
    for row in rows:
        members = [i for i, length in enumerate(lengths) if row["low"] <= length <= row["high"]]
        assert row["n"] == len(members)
        assert row["accuracy"] == pytest.approx(
            (record.examples["prediction"] == record.examples["label"])[members].mean()
        )
        assert row["steps"]["mean"] == pytest.approx(record.examples["steps"][members].mean())
    operators = table["slices"]["operator"]
    assert (operators["numeric"], operators["spearman"]) == (False, None)
    assert [row["value"] for row in operators["rows"]] == ["MAX", "MIN"]


def test_correlation_with_difficulty():
    rows = torch.tensor([[0.95, 0, 0], [0, 0.95, 0], [0, 0, 0.95], [0, 0, 0]])
    slices = {"up": [1, 2, 3, 4], "down": [4.0, 3.0, 2.0, 1.0], "same": [5] * 4}
    table = halting_table(evaluate_batches(FakeClassifier(rows), batches_of(4, 4), slices=slices).record)
    related = {name: column["spearman"] for name, column in table["slices"].items()}
    assert related == {"up": pytest.approx(1), "down": pytest.approx(-1), "same": None}


def test_fixed_depth_says_so():
    record = evaluate_batches(
        FakeClassifier(None, halting=None), batches_of(4, 4), slices={"depth": [1, 1, 2, 2]}
    ).record
    table = halting_table(record)
    assert table["fixed_depth"]
    assert table["max_depth"] == 4
    for key in ("steps", "ponder_cost", "forced_halt_rate", "halting_mass", "steps_histogram", "threshold"):
        assert table[key] is None
    column = table["slices"]["depth"]
    assert column["spearman"] is None
    assert [row["steps"] for row in column["rows"]] == [None, None]
