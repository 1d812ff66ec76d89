"""Evaluation of models with state vectors: read without them, and how far their gates are open."""

import math

import numpy as np
import pytest
import torch
from document_reading import SEGMENT_LENGTH, losses_token_by_token, make_documents, make_reader
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.analysis.recurrence import collect_recurrence, recurrence_table
from support.families import VOCAB_SIZE

WINDOW = SEGMENT_LENGTH // 2
SIZES = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}


def make_model(**fields):
    torch.manual_seed(0)
    fields = {"num_hidden_layers": 2, "window_size": WINDOW, "num_state_vectors": 3, "recurrent_layers": [-1], **fields}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("block_recurrent", **SIZES, **fields)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # states start alike, and are read by nearly uniform attention, in a new model
            if "state" in name and "up_proj" not in name and "gate.proj" not in name and "_gate.weight" not in name:
                parameter.mul_(3.0)
    return model


def begin_states_again(model):
    """What resets the state vectors of a cache, and nothing else, as the start of a document does."""
    fresh = model.model.new_cache()

    def reset(cache):
        model(torch.zeros(1, 1, dtype=torch.long), past_key_values=fresh, use_cache=True)
        for layer, other in zip(cache.layers[1:], fresh.layers[1:], strict=True):
            if "state" in layer.tensors:
                layer.tensors["state"] = other.tensors["state"]
                layer.tensors.pop("state_key", None)
                layer.tensors.pop("state_value", None)
        fresh.reset()
        return cache

    return reset


@pytest.mark.parametrize(
    "fields", [{}, {"state_gate": "lstm", "state_update": "dual", "num_hidden_layers": 3, "recurrent_layers": [0, 2]}]
)
def test_without_the_states_but_with_the_windows_of_before(fields):
    model, documents = make_model(**fields), make_documents()
    found = collect_recurrence(model, make_reader(documents)).losses
    assert list(found) == ["document", "segment", "state"]
    ways = {
        "document": (None, None),
        "segment": (SEGMENT_LENGTH, None),
        "state": (SEGMENT_LENGTH, begin_states_again(model)),
    }
    for carry, (every, reset) in ways.items():
        alone = [sum(losses_token_by_token(model, documents[i], every, reset)) for i in range(len(documents))]
        assert (found[carry].texts["nats"] / math.log(2)).tolist() == pytest.approx(alone, rel=1e-4, abs=1e-5), carry
    bits = [losses.bits_per_token for losses in found.values()]
    assert len({round(value, 4) for value in bits}) == 3


def test_a_model_without_states_has_none_to_reset():
    record = collect_recurrence(make_model(recurrent_layers=[]), make_reader(make_documents()))
    assert list(record.losses) == ["document", "segment"]
    assert record.gates is None


def test_a_fixed_gate_forgets_the_same_share_at_every_update():
    model, documents = make_model(), make_documents()
    updates, openness, log_kept = collect_recurrence(model, make_reader(documents)).gates
    # documents of 21, 1, 8, 17 and 5 tokens complete 5, 0, 2, 4 and 1 blocks
    assert set(updates) == {12}
    (bias,) = (parameter for name, parameter in model.named_parameters() if name.endswith("gate.bias.weight"))
    expected = 1 - bias.detach().double().sigmoid().expand(3, -1).flatten().numpy()
    assert openness / 12 == pytest.approx(expected, rel=1e-5)
    assert np.exp(log_kept / 12) == pytest.approx(1 - expected, rel=1e-5)
    table = recurrence_table(collect_recurrence(model, make_reader(documents)))
    assert table["gates"]["units"] == 3 * 16
    assert table["gates"]["mean"] == pytest.approx(expected.mean())
    assert table["gates"]["window_size"] == WINDOW


@pytest.mark.parametrize("feedback", [False, True])
def test_gates_that_change_are_means_over_the_blocks_of_each_document_alone(feedback):
    model, documents = make_model(state_gate="lstm", state_update="single", feedback=feedback), make_documents()
    with torch.no_grad():
        seen = [
            gate[0].flatten().double().numpy()
            for index in range(len(documents))
            for gate in model(torch.from_numpy(documents[index])[None], output_gates=True).gates
        ]
    for batch_size in (1, 2, 5):
        updates, openness, log_kept = collect_recurrence(model, make_reader(documents, batch_size), ("document",)).gates
        assert updates[0] == len(seen) == 12
        assert openness == pytest.approx(np.sum(seen, 0), rel=1e-4)
        assert log_kept == pytest.approx(np.log(1 - np.array(seen)).sum(0), rel=1e-3)
    assert np.std(seen, 0).max() > 1e-3
