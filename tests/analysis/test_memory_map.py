"""Which slots a chunk reads and writes, against the models' own maps and states."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import hf_recurrent  # noqa: F401
from hf_recurrent.analysis.explain.card import has_memory, memory_map
from support.families import papers_halting

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_memory_slots": 5,
    "chunk_size": 4,
}


class Words:
    model_input_names = ["input_ids", "attention_mask"]

    def convert_ids_to_tokens(self, ids):
        return [str(i) for i in ids]


def make_model(family, **fields):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SIZES, **papers_halting(family), **fields})
    model = AutoModelForCausalLM.from_config(config)
    # slots that differ, and attention that differs between them
    torch.nn.init.normal_(next(iter(model.model.memory.parameters())))
    for name, parameter in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            torch.nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("family", ["tlb", "gutlb"])
def test_each_chunk_by_hand(family):
    model = make_model(family)
    ids = torch.arange(4, 14)[None]
    found = memory_map(model, Words(), {"input_ids": ids[0]})
    assert found["chunks"] == ["4 5 6 7", "8 9 10 11", "12 13"]
    assert model.training
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        output = model(ids, output_attentions=True, output_hidden_states=True)
    for number, tokens in enumerate((range(4), range(4, 8), range(8, 10))):
        rows = [layer[0, head, token] for layer in output.read_attentions for head in range(2) for token in tokens]
        # a token that has halted reads no more
        rows = [row for row in rows if row.sum() > 0.5]
        np.testing.assert_allclose(found["reads"][number], torch.stack(rows).mean(0), atol=1e-6)
        moved = (output.memory_states[number + 1] - output.memory_states[number])[0].detach().norm(dim=-1)
        np.testing.assert_allclose(found["writes"][number], moved, rtol=1e-5)
    assert np.ptp(found["reads"], axis=1).min() > 0.01
    assert np.min(found["writes"]) > 0.01


@pytest.mark.parametrize(
    ("chunking", "sizes"), [("count", [3, 3, 3, 1]), ("balanced", [4, 4, 2]), ("fixed", [4, 4, 2])]
)
def test_every_way_to_cut(chunking, sizes):
    model = make_model("tlb", chunking=chunking, num_chunks=4)
    found = memory_map(model, Words(), {"input_ids": list(range(4, 14)), "labels": [1] * 10})
    assert [len(chunk.split()) for chunk in found["chunks"]] == sizes
    assert len(found["reads"]) == len(found["writes"]) == len(sizes)
    # the model is given back as it was
    assert model.config._attn_implementation != "eager"


def test_models_without_such_a_memory():
    gut = AutoConfig.for_model("gut", hidden_size=16, num_attention_heads=2, vocab_size=20)
    siamese = AutoConfig.for_model("tlb", pair_encoding="siamese", **SIZES)
    assert not has_memory(gut)
    assert not has_memory(siamese)
