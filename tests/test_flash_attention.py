"""FlashAttention-2 through the attention switch, with its package replaced by plain torch."""

import pytest
import torch

from support import flash_attention
from support.batches import left_padded, widened
from support.compare import assert_same, compute, gradients
from support.families import BY_NAME, make_batch, make_model, nightly, slow

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
    assert flash_attention.calls


def test_flash_attention_without_compaction_is_sdpa(flash_model, model, variant, batch):
    if not variant.halts:
        pytest.skip("nothing to compact")
    flash_model.config.compaction = False
    assert_same(compute(flash_model, variant, batch), compute(model, variant, batch))
    assert flash_attention.calls


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


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("gut", "kernels-community/flash-attn2"),
        nightly("ut", "kernels-community/vllm-flash-attn3"),
        nightly("gutlb", "kernels-community/flash-attn2@v1"),
        nightly("xpos_transformer", "kernels-community/flash-attn4"),
    ],
)
def test_kernels_of_the_hub_are_loaded_by_transformers(name, kernel):
    variant = BY_NAME[name]
    batch, expected = make_batch(variant), make_model(variant)
    with flash_attention.on_the_hub() as get_kernel:
        model = make_model(variant)
        model.set_attn_implementation(kernel)
        assert model.config._attn_implementation == kernel
        assert [call.args[0] for call in get_kernel.mock_calls] == [kernel.partition("@")[0]]
        assert_same(compute(model, variant, batch), compute(expected, variant, batch))
        assert_same(gradients(model, batch), gradients(expected, batch))
        assert flash_attention.calls


def test_a_missing_package_is_named():
    model = make_model(BY_NAME["gut"])
    with pytest.raises(ImportError, match=r"FlashAttention2 .*installed"):
        model.set_attn_implementation("flash_attention_2")
    assert model.config._attn_implementation == "sdpa"
