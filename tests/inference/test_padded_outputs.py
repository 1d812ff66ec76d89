"""Outputs of batches by way of refilled batches are the model's own."""

import pytest
import torch

from hf_recurrent.inference import padded_outputs
from hf_recurrent.inference.padded_outputs import batch_outputs, refilling_batcher
from support.compare import assert_same
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text

FIELDS = ("logits", "ponder_cost", "ponder_steps", "halting_probabilities")


def inputs_of(batch):
    return {name: values for name, values in batch.items() if name != "labels"}


def assert_as_model(model, batches, **options):
    found = list(batch_outputs(model, iter(batches), inputs_of, output_halting=True, **options))
    assert [id(batch) for batch, _ in found] == list(map(id, batches))
    for batch, output in found:
        with torch.no_grad():
            expected = model(**inputs_of(batch), output_halting=True, **options)
        mask = batch["attention_mask"]
        fields = {name: expected[name] for name in FIELDS if expected.get(name) is not None}
        found = {name: output.get(name) for name in fields}
        if fields["logits"].dim() == 3:
            # those of padding mean nothing
            for each in (found, fields):
                each["logits"] = each["logits"] * mask[..., None]
        assert_same(found, fields)


@pytest.mark.parametrize("name", ["gut", "gut_token", "ut", "ndr_act", "sut", "gutlb", "gut_siamese"])
@pytest.mark.parametrize("options", [{}, {"max_steps": 2}], ids=["", "max_steps"])
def test_classifiers(name, options):
    variant = BY_NAME[name]
    batches = [make_batch(variant, rows=rows, seed=rows) for rows in (5, 1, 9)]
    assert_as_model(make_model(variant), batches, **options)


@pytest.mark.parametrize("name", ["gut", "ut", "ndr_act", "tlb"])
def test_language_models(name):
    variant = LANGUAGE_BY_NAME[name]
    assert_as_model(make_language_model(variant), [make_text(variant), make_text(variant, length=17, seed=1)])


def test_exits():
    variant = BY_NAME["gut"]
    options = {"exit_criterion": "confidence", "exit_threshold": 0.4}
    assert_as_model(make_model(variant), [make_batch(variant), make_batch(variant, rows=3, seed=1)], **options)


def test_positions_are_those_that_are_given():
    """Refilled batches do not read them."""
    variant = BY_NAME["ouro_recurrent"]
    model, batch = make_model(variant), make_batch(variant, rows=3)
    assert refilling_batcher(model, True, {}) is not None
    batch["position_ids"] = 3 * torch.arange(batch["input_ids"].shape[1]).repeat(3, 1)
    assert_as_model(model, [batch, batch])
    batch.pop("labels", None)
    others = {name: values for name, values in batch.items() if name != "position_ids"}
    with pytest.raises(ValueError, match="a batch has 'position_ids', but the first one had not"):
        list(batch_outputs(model, [others, batch], lambda each: each))


def test_models_in_parts_run_batch_by_batch():
    model = make_model(BY_NAME["gut"])
    assert refilling_batcher(model, False, {}) is not None
    model.hf_device_map = {"model": "cpu", "classifier": "disk"}
    assert refilling_batcher(model, False, {}) is None


def test_batches_are_read_as_they_are_needed(monkeypatch):
    """A stream of batches is not read to its end before the first output."""
    variant = BY_NAME["gut"]
    monkeypatch.setattr(padded_outputs.DepthBatcher.__init__, "__defaults__", (16, False))
    read = []

    def stream():
        for seed in range(100):
            read.append(seed)
            yield make_batch(variant, seed=seed)

    outputs = batch_outputs(make_model(variant), stream(), inputs_of)
    next(outputs)
    assert len(read) < 50
