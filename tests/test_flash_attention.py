"""FlashAttention-2 through the attention switch, with its package replaced by plain torch."""

import pytest
import torch

from support import flash_attention
from support.batches import left_padded, widened
from support.compare import assert_same, compute, gradients
from support.families import BY_NAME, make_batch, make_model, slow

PADDINGS = {
    "right": lambda batch: batch,
    "left": left_padded,
    "both": lambda batch: widened(batch, 2, 1),
    "none": lambda batch: {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])},
}


@pytest.fixture
def flash_model(variant):
    if not variant.flash_attention:
        pytest.skip("has no such implementation")
    with flash_attention.installed():
        model = make_model(variant)
        model.set_attn_implementation("flash_attention_2")
        assert model.config._attn_implementation == "flash_attention_2"
        yield model


@pytest.mark.parametrize("padding", [name if name == "both" else slow(name) for name in PADDINGS])
def test_flash_attention_is_sdpa(flash_model, model, variant, batch, padding):
    batch = PADDINGS[padding](batch)
    assert_same(compute(flash_model, variant, batch), compute(model, variant, batch))
    assert_same(gradients(flash_model, batch), gradients(model, batch))


def test_flash_attention_without_compaction_is_sdpa(flash_model, model, variant, batch):
    if not variant.halts:
        pytest.skip("nothing to compact")
    flash_model.config.compaction = False
    assert_same(compute(flash_model, variant, batch), compute(model, variant, batch))


@pytest.mark.parametrize("name", ["ut", "gut_token"])
def test_token_halting_asks_live_queries_only(name):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    with flash_attention.installed():
        model = make_model(variant)
        model.set_attn_implementation("flash_attention_2")
        compute(model, variant, batch)
        num_queries, num_keys = zip(*flash_attention.calls, strict=True)
    assert num_queries[-1] < num_queries[0] <= int(batch["attention_mask"].sum())
    assert list(num_queries) == sorted(num_queries, reverse=True)
    assert all(keys > queries for queries, keys in flash_attention.calls[2:])
    assert num_keys[0] == int(batch["attention_mask"].sum())


@pytest.mark.parametrize("implementation", ["flash_attention_2", "flex_attention"])
def test_unavailable_implementations_are_refused(implementation):
    model = make_model(BY_NAME["gut"])
    error, message = {
        "flash_attention_2": (ImportError, "FlashAttention2 .*installed"),
        "flex_attention": (ValueError, "does not support .*flex_attention"),
    }[implementation]
    with pytest.raises(error, match=message):
        model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == "sdpa"
