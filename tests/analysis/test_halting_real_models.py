"""The statistics agree with what real models compute: mass-weighted states are the model's soft states."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import hf_recurrent  # noqa: F401
from hf_recurrent.analysis.evaluate import evaluate_batches
from hf_recurrent.analysis.halting import halting_table, unit_kind, unit_mass

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 6,
}
LEARNED = {"gut": {"halting": "global"}, "ut": {"halting": "token"}}


def make_model(family, **fields):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SIZES, "num_labels": 3, **LEARNED.get(family, {}), **fields})
    model = AutoModelForSequenceClassification.from_config(config).eval()
    if getattr(config, "halting", "none") != "none":
        # halting decisions that differ from unit to unit
        torch.nn.init.normal_(model.model.halting_head.down_proj.weight, std=3.0)
    return model


def make_batch(rows=6, length=8):
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[::2, -3:] = 0
    types = torch.zeros(rows, length, dtype=torch.long)
    types[:, 2:] = 1
    return {
        "input_ids": torch.randint(4, 20, (rows, length), generator=generator),
        "attention_mask": mask,
        "token_type_ids": types,
        "labels": torch.arange(rows) % 3,
    }


@pytest.mark.parametrize("fields", [{"halting": "global"}, {"halting": "token"}, {"transition_aware": False}])
def test_mass_weighted_states_are_the_soft_state(fields):
    model = make_model("gut", halting_threshold=0.8, halting_bias_init=-0.5, initializer_range=1.0, **fields)
    batch = make_batch()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        output = model.model(**inputs, output_halting=True, output_hidden_states=True)
    live, steps, found = unit_mass(output, model.config, 6)
    assert len(np.unique(steps)) > 1
    mass = np.zeros((*live.shape, 7))
    mass[live] = found
    if unit_kind(output, model.config) != "token":
        mass = np.broadcast_to(mass, (*batch["input_ids"].shape, 7))
    states = torch.stack(output.hidden_states, dim=2).double().numpy()
    tokens = batch["attention_mask"].numpy().astype(bool)
    mixed = np.einsum("bsl,bsle->bse", mass, states)
    np.testing.assert_allclose(mixed[tokens], output.last_hidden_state.numpy()[tokens], atol=1e-5)


@pytest.mark.parametrize(
    ("family", "fields", "unit"),
    [
        ("gut", {}, "example"),
        ("gut", {"pair_encoding": "siamese"}, "sentence"),
        ("gut", {"hard_stop": False}, "example"),
        ("gut", {"halting": "none"}, None),
        ("ut", {}, "token"),
        ("ut", {"pair_encoding": "siamese"}, "token"),
        ("xpos_transformer", {}, None),
    ],
)
def test_every_kind_of_model_gives_a_table(family, fields, unit):
    model = make_model(family, **fields)
    record = evaluate_batches(model, [make_batch(), make_batch(4, 6)], slices={"length": [8] * 6 + [6] * 4}).record
    table = halting_table(record)
    assert (table["unit"], table["n"]) == (unit, 10)
    if unit:
        assert sum(table["halting_mass"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("family", "fields", "unit"),
    [
        ("gut", {"halting": "none"}, "example"),
        ("gut", {"halting": "none", "pair_encoding": "siamese"}, "sentence"),
        ("ut", {}, "token"),
        # whose steps are those of tokens, by which experts are counted
        ("sut", {"halting": "none"}, "token"),
        ("sut", {"halting": "none", "pair_encoding": "siamese"}, "token"),
    ],
)
def test_tables_of_models_that_stop_by_an_exit_criterion(family, fields, unit):
    model = make_model(family, exit_criterion="confidence", exit_threshold=0.5, **fields)
    table = halting_table(evaluate_batches(model, [make_batch()]).record)
    assert (table["unit"], table["halting"], table["threshold"], table["fixed_depth"]) == (
        unit,
        "confidence",
        0.5,
        False,
    )
    # all weight lies on the state after a unit's last step
    counts = np.array(table["steps_histogram"]) / sum(table["steps_histogram"])
    if unit != "token":
        np.testing.assert_allclose(table["halting_mass"], counts, atol=1e-6)
    model.config.exit_criterion, model.config.exit_threshold = "stability", None
    assert halting_table(evaluate_batches(model, [make_batch()]).record)["threshold"] is None
