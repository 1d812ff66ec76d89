"""Rows are packed: blocks compute tokens alone, and nothing else changes."""

import math

import pytest
import torch

from hf_recurrent.models.engine import packed_rows
from support.compare import assert_same, compute, gradients
from support.families import BY_NAME, make_batch, make_model


def first_block(base):
    return base.block if hasattr(base, "block") else base.layers[0]


@pytest.mark.parametrize("name", ["xpos_transformer", "gut", "gut_no_halt", "gut_siamese", "tlb", "gutlb"])
def test_blocks_compute_tokens_alone(name, monkeypatch):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    seen = []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    packed, packed_gradients = compute(model, variant, batch), gradients(model, batch)
    assert {states.dim() for states in seen} >= {2}
    if name in ("xpos_transformer", "gut", "gut_no_halt"):
        assert seen[0].shape[0] == batch["attention_mask"].sum()
    seen.clear()
    monkeypatch.setattr(packed_rows, "MIN_SHARE_TO_PACK", math.inf)
    assert_same(compute(model, variant, batch), packed)
    assert_same(gradients(model, batch), packed_gradients)
    assert {states.dim() for states in seen} == {3}


def test_batches_without_padding_are_not_packed():
    variant = BY_NAME["gut"]
    model, seen = make_model(variant), []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].dim()))
    with torch.no_grad():
        model(torch.full((3, 5), 4))
    assert set(seen) == {3}
