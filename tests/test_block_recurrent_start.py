"""How Block-Recurrent Transformers start: every tensor as the reference implementation draws it."""

import json
import math
from pathlib import Path

import pytest
import torch

from hf_recurrent.convert.block_recurrent import NAMES, our_config
from hf_recurrent.convert.loading import rename
from hf_recurrent.models.block_recurrent.configuration_block_recurrent import BlockRecurrentConfig
from hf_recurrent.models.block_recurrent.modeling_block_recurrent import BlockRecurrentForCausalLM, BlockRecurrentModel
from support.block_models import SMALL

pytestmark = pytest.mark.architecture("block_recurrent")

CASES = Path(__file__).parent / "parity" / "block-recurrent"
STATS = json.loads((CASES / "unit_init_stats" / "case.json").read_text())["stats"]
# what the authors' models have without saying so
SHARED = {
    "logits_divisor": "sqrt(embedding_size)",
    "rms_norm_eps": 1e-6,
    "t5_num_buckets": 32,
    "t5_max_distance": 128,
}
# standard errors that a difference of two samples may have; there are some 200 comparisons
SIGMAS = 5.0


def fresh_model(name: str):
    torch.manual_seed(1)
    return BlockRecurrentForCausalLM(our_config({"config": SHARED | STATS[name]["config"]}))


@pytest.mark.parametrize("name", STATS)
def test_fresh_models_start_as_theirs(name):
    parameters = dict(fresh_model(name).named_parameters())
    compared = set()
    for theirs, expected in STATS[name]["params"].items():
        ours = rename(theirs, NAMES)
        values, std = parameters[ours].detach().double().flatten(), expected["std"]
        compared.add(ours)
        error = std * math.sqrt(2 / values.numel())
        assert values.numel() == math.prod(expected["shape"]), theirs
        assert abs(values.mean().item() - expected["mean"]) <= SIGMAS * error, theirs
        assert abs(values.std(correction=0).item() - std) <= SIGMAS * error / math.sqrt(2), theirs
        # cut normals end at the same place, others vary
        spread = 0.02 if theirs.endswith("kernel") else 0.4
        assert values.abs().max().item() == pytest.approx(expected["absmax"], rel=spread), theirs
    assert compared == parameters.keys()


def test_memory_shares_start_at_a_half():
    theirs = SHARED | STATS["lstm_dual"]["config"]
    memory = {"recurrent_layers": [], "memory_layers": [0], "memory_size": 16, "memory_num_neighbors": 4}
    model = BlockRecurrentForCausalLM(our_config({"config": theirs | memory}))
    assert not model.model.layers[0].attention.memory.share.weight.any()
    assert model.model.layers[0].attention.position_bias is None


CHANGES = [
    {"initializer_range": 0.25, "attention_scale_init": -3.5},
    {"state_initializer_range": 0.0, "state_gate_bias_init": 2.0},
]


@pytest.mark.parametrize("change", CHANGES)
def test_ranges_are_the_configs(change):
    sizes = {"vocab_size": 500, "num_state_vectors": 200, "hidden_size": 64, "state_update": "dual"}
    model = BlockRecurrentModel(BlockRecurrentConfig(**{**SMALL, **sizes, **change}))
    cell, attention = model.layers[model.config.recurrent_indices[-1]].state_cell, model.layers[1].attention
    normal = {"initializer_range": model.embed_tokens, "state_initializer_range": cell.initial_state}
    expected = {"initializer_range": 1.0, "state_initializer_range": 0.1} | change
    for name, table in normal.items():
        assert table.weight.std().item() == pytest.approx(expected[name], rel=0.1)
        assert abs(table.weight.mean().item()) <= 0.05 * expected[name]
    for scales in (cell.scales, cell.token_scales, attention.scales, attention.state_scales):
        assert (scales.weight == change.get("attention_scale_init", 1.0)).all()
    for gate in (cell.attention_gate, cell.feed_forward_gate):
        assert gate.bias.weight.mean().item() == pytest.approx(change.get("state_gate_bias_init", 0.0), abs=0.06)
        assert gate.bias.weight.std().item() == pytest.approx(0.1, rel=0.4)
