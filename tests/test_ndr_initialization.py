"""Freshly made models against statistics of the authors' freshly made ones (`RobertCsordas/ndr`), tensor by tensor."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from hf_recurrent.convert.loading import rename
from hf_recurrent.convert.neural_data_router import NAMES, UNUSED
from hf_recurrent.models.ndr.configuration_ndr import NDRConfig
from hf_recurrent.models.ndr.modeling_ndr import NDRForSequenceClassification

pytestmark = pytest.mark.architecture("ndr")

STATS = json.loads((Path(__file__).parent / "parity" / "neural-data-router-init" / "init_stats.json").read_text())
# 19 words, END and BEGIN, 8 classes
SHELL = {"vocab_size": 21, "pad_token_id": None, "eos_token_id": 19, "bos_token_id": 20, "num_labels": 8}
# what "kaiming" draws embeddings of width 128 with
KAIMING = math.sqrt(2 / 128)


def sizes(width, heads, inner):
    return {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner}


PLAIN, GATED = sizes(128, 4, 256) | {"copy_gate": False}, {"attention": "absolute_relative"}
MODELS = {
    "universal_d128_h4_ff2_kaiming": PLAIN | {"attention": "absolute"},
    "relative_universal_d128_h4_ff2_kaiming": PLAIN | {"attention": "relative", "initializer_range": KAIMING},
    "relative_universal_d256_h16_ff4_auto": sizes(256, 16, 1024)
    | {"attention": "relative", "copy_gate": False, "embedding_init": "xavier_uniform"},
    "ndr_residual_d256_h1_ff2_auto": sizes(256, 1, 1024) | GATED,
    "ndr_residual_d256_h4_ff4_auto": sizes(256, 4, 1024) | GATED,
    "geometric_transformer_d128_h4_ff2_kaiming": PLAIN | {"normalize_attention": True, "initializer_range": KAIMING},
    "ndr_geometric_d256_h1_ff2_auto": sizes(256, 1, 512),
    "ndr_geometric_d256_h4_ff4_auto": sizes(256, 4, 1024),
    "ndr_geometric_d512_h16_ff2_auto": sizes(512, 16, 1024),
    "act_relative_universal_d128_h4_ff2_kaiming": PLAIN
    | {"attention": "relative", "initializer_range": KAIMING, "halting": "act"},
}
# standard errors that a difference of two samples may have; there are some 600 comparisons
SIGMAS = 5.0
# biases of one number, uniform within 1 / sqrt of this width
SINGLE = {"trafo.p_map.bias": 128, "trafo.layer.att.data_to_absgate.bias": 256}


def ours_of(model, name):
    """Our parameters behind one of theirs, as one tensor; None if ours have none because theirs do not use it."""
    parameters = dict(model.named_parameters())
    if name.endswith("data_to_kv.weight"):
        return torch.cat([parameters[f"model.block.attention.{kind}_proj.weight"] for kind in "kv"])
    found = parameters.get(rename(name, NAMES))
    assert found is not None or re.search(UNUSED, name), name
    return found


def test_every_model_of_the_statistics_is_compared():
    assert MODELS.keys() == STATS["models"].keys()


@pytest.mark.parametrize("name", MODELS)
def test_fresh_models_start_as_theirs(name):
    torch.manual_seed(0)
    model = NDRForSequenceClassification(NDRConfig(**SHELL, **MODELS[name]))
    theirs, compared = STATS["models"][name], set()
    unused = 0
    for key, (shape, mean, std, most) in theirs["params"].items():
        values = ours_of(model, key)
        if values is None:
            unused += math.prod(shape)
            continue
        assert list(values.shape) == shape, key
        compared.add(key)
        check_sample(key, values.detach().double().flatten(), mean, std, most)
    assert sum(parameter.numel() for parameter in model.parameters()) == theirs["n_parameters"] - unused
    assert sum(math.prod(theirs["params"][key][0]) for key in compared) == theirs["n_parameters"] - unused


def check_sample(key, values, mean, std, most):
    """Mean, standard deviation and greatest size of both samples are those of one law."""
    n, biggest = len(values), values.abs().max().item()
    if key in SINGLE and n == 1:
        assert 0 < biggest <= 1 / math.sqrt(SINGLE[key])
        return
    if std == 0.0:
        assert values.tolist() == pytest.approx([mean] * n, abs=1e-6), key
        return
    assert abs(values.mean().item() - mean) < SIGMAS * std * math.sqrt(2 / n), key
    uniform = most < 2 * std
    # the variance of a sample's standard deviation, for flat and for bell-shaped laws
    spread = SIGMAS * std * math.sqrt(2 * (0.2 if uniform else 0.5) / n)
    # a few numbers say little of their spread
    assert n < 8 or abs(values.std(correction=0).item() - std) < spread, key
    assert n < 32 or (biggest < 2 * values.std()) == uniform, key
    if uniform:
        assert n < 8 or biggest == pytest.approx(most, rel=12 / n + 1e-4), key
        assert biggest <= most * (1 + 12 / n + 1e-4), key
