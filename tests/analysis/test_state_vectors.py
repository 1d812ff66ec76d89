"""Evaluation of models with state vectors: read without them, and how far their gates are open."""

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from document_reading import SEGMENT_LENGTH, losses_token_by_token, make_documents, make_reader
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401 - registers the families
from hf_recurrent.analysis.losses import CARRIES, evaluate_split, read_losses
from support.families import VOCAB_SIZE
from support.tokenizer import make_tokenizer

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
    found = read_losses(model, make_reader(documents), CARRIES).losses
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
    documents = Dataset.from_dict({"text": ["w4 w5 w6", "w7 w8"], "num_bytes": [8, 5], "num_words": [3, 2]})
    table = evaluate_split(make_model(recurrent_layers=[]), make_tokenizer(), documents)
    assert [row["carry"] for row in table["carries"]] == ["document", "segment"]
    assert table["gates"] is None


def test_a_fixed_gate_forgets_the_same_share_at_every_update():
    model, documents = make_model(), make_documents()
    (bias,) = (parameter for name, parameter in model.named_parameters() if name.endswith("gate.bias.weight"))
    found = read_losses(model, make_reader(documents), ("document",), gates=True)
    assert found.forgotten == pytest.approx((1 - bias.detach().double().sigmoid()).mean().item(), rel=1e-5)


@pytest.mark.parametrize("feedback", [False, True])
def test_gates_that_change_are_means_over_the_blocks_of_each_document_alone(feedback):
    model, documents = make_model(state_gate="lstm", state_update="single", feedback=feedback), make_documents()
    with torch.no_grad():
        seen = [
            gate.double().mean().item()
            for index in range(len(documents))
            for gate in model(torch.from_numpy(documents[index])[None], output_gates=True).gates
        ]
    # documents of 21, 1, 8, 17 and 5 tokens complete 5, 0, 2, 4 and 1 blocks
    assert len(seen) == 12
    for batch_size in (1, 2, 5):
        found = read_losses(model, make_reader(documents, batch_size), ("document",), gates=True)
        assert found.forgotten == pytest.approx(np.mean(seen), rel=1e-4)
    assert np.std(seen) > 1e-4
