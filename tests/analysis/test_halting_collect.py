import numpy as np
import pytest
import torch
from fake_classifier import FakeClassifier, batches_of

from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.explain.card import token_heat_map
from hf_recurrent.analysis.halting import halting_mass


def naive_mass(row, steps):
    """One unit, state by state."""
    mass, left = [0.0] * (len(row) + 1), 1.0
    for i in range(steps):
        mass[i] = left * row[i]
        left *= 1 - row[i]
    mass[steps] = left
    return mass


@pytest.fixture
def probabilities():
    return torch.rand(9, 5, generator=torch.Generator().manual_seed(0)) * 0.6


def test_mass_against_a_naive_loop():
    generator = np.random.default_rng(0)
    rows, steps = generator.random((200, 6)), generator.integers(0, 7, 200)
    rows[0], rows[1] = 1.0, 0.0
    expected = [naive_mass(row, k) for row, k in zip(rows, steps, strict=True)]
    mass = halting_mass(rows, steps)
    np.testing.assert_allclose(mass, expected, atol=1e-12)
    np.testing.assert_allclose(mass.sum(axis=1), 1)


def test_mass_of_adaptive_computation_adds_up():
    rows = np.array([[0.3, 0.5, 0.4, 0.0], [0.9995, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]])
    mass = halting_mass(rows, np.array([3, 1, 4]), "act")
    expected = [[0, 0.3, 0.5, 0.2, 0], [0, 1, 0, 0, 0], [0, 0.1, 0.1, 0.1, 0.7]]
    np.testing.assert_allclose(mass, expected, atol=1e-12)


def test_depth_is_cut_or_padded():
    rows = np.array([[0.5, 0.25, 0.75]])
    assert halting_mass(rows, [2], max_depth=2).tolist() == [[0.5, 0.125, 0.375]]
    assert halting_mass(rows, [3], max_depth=4).tolist() == [[0.5, 0.125, 0.28125, 0.09375, 0]]


def test_global_halting_by_brute_force(probabilities):
    model = FakeClassifier(probabilities)
    record = evaluate_batches(model, batches_of(9, 4), slices={"depth": list(range(9))}).record
    assert (record.halting, record.unit, record.max_depth, record.threshold) == ("global", "example", 5, 0.9)
    assert record.examples["prediction"].tolist() == [i % 3 for i in range(9)]
    assert record.examples["label"].tolist() == [0] * 9
    for i, row in enumerate(probabilities.double().tolist()):
        totals = np.cumsum(naive_mass(row, 5)[:5])
        crossed = np.flatnonzero(totals >= 0.9)
        steps = int(crossed[0]) if len(crossed) else 5
        assert record.examples["steps"][i] == record.examples["deepest"][i] == steps
        assert record.examples["forced"][i] == (len(crossed) == 0)
        np.testing.assert_allclose(record.mass[i], naive_mass(row, steps), atol=1e-6)
        assert record.step_counts[i].tolist() == [int(k == steps) for k in range(6)]
    assert record.slices["depth"].tolist() == list(range(9))


def test_pair_units_average_over_both_sentences():
    rows = torch.tensor([[[0.95, 0.5], [0.1, 0.1]]])
    record = evaluate_batches(FakeClassifier(rows), batches_of(1, 1)).record
    assert record.unit == "sentence"
    assert (record.examples["steps"][0], record.examples["deepest"][0], record.examples["forced"][0]) == (1.0, 2, 0.5)
    np.testing.assert_allclose(record.mass[0], [0.55, 0.045, 0.405], atol=1e-6)
    assert record.step_counts[0].tolist() == [1, 0, 1]


def test_padding_positions_do_not_count():
    rows = torch.tensor([0.95, 0.1, 0.1])[None, :, None].expand(2, 3, 4).contiguous()
    record = evaluate_batches(FakeClassifier(rows, halting="token"), batches_of(2, 2)).record
    assert record.unit == "token"
    assert record.examples["steps"].tolist() == [pytest.approx(8 / 3), 2.0]
    assert record.step_counts.sum(axis=1).tolist() == [3, 2]
    np.testing.assert_allclose(record.mass.sum(axis=1), 1)


def test_an_example_of_padding_only_is_an_error():
    batch = next(batches_of(2, 2))
    batch["attention_mask"][1] = 0
    with pytest.raises(ValueError, match="no halting unit"):
        evaluate_batches(FakeClassifier(torch.rand(2, 3, 4), halting="token"), [batch])


def test_limits_reach_the_model(probabilities):
    model = FakeClassifier(probabilities)
    record = evaluate_batches(model, batches_of(9, 9), max_depth=2, halting_threshold=0.999).record
    assert model.calls == [{"training": False, "grad": False, "max_depth": 2, "halting_threshold": 0.999}]
    assert (record.max_depth, record.threshold) == (2, 0.999)
    assert record.mass.shape == (9, 3)
    assert record.examples["forced"].tolist() == [1] * 9


def test_bfloat16_outputs(probabilities):
    record = evaluate_batches(FakeClassifier(probabilities.bfloat16()), batches_of(9, 4)).record
    np.testing.assert_allclose(record.mass.sum(axis=1), 1)


def test_bad_input(probabilities):
    model = FakeClassifier(probabilities)
    with pytest.raises(ValueError, match="no batches"):
        evaluate_batches(model, [])
    with pytest.raises(ValueError, match="does not match length of index"):
        evaluate_batches(model, batches_of(9, 4), slices={"depth": [1, 2]})


class Tokenizer:
    model_input_names = ["input_ids", "attention_mask"]

    def convert_ids_to_tokens(self, ids):
        return [f"t{i}" for i in ids]


def test_heat_map_leaves_padding_out():
    model = FakeClassifier(torch.rand(1, 3, 4), halting="token")
    heat_map = token_heat_map(model, Tokenizer(), {"input_ids": [0, 7, 7], "attention_mask": [1, 1, 0], "depth": 3})
    assert heat_map["rows"] == ["t0", "t7"]
    assert len(heat_map["mass"]) == len(heat_map["steps"]) == 2
    assert all(sum(row) == pytest.approx(1) for row in heat_map["mass"])
    pair = token_heat_map(FakeClassifier(torch.rand(1, 2, 4)), Tokenizer(), {"input_ids": [0, 7, 7]})
    assert pair["rows"] == ["sentence 1", "sentence 2"]
