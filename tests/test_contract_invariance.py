"""Results do not depend on padding, batch mates, the kernel, compaction or checkpointing."""

import functools

import pytest
import torch

from hf_recurrent.models.depth import loop
from support.batches import left_padded, rows, widened, with_other_padding
from support.compare import (
    assert_close,
    assert_same,
    block_call_sizes,
    comparable,
    compute,
    gradients,
    recomputed_calls,
)
from support.families import ONE_CHUNK, STEPS, make_batch, make_model, slow

PADDINGS = {
    "other_content": with_other_padding,
    "left": left_padded,
    "wider_right": lambda batch: widened(batch, 0, 4),
    "wider_left": lambda batch: widened(left_padded(batch), 3, 0),
    "wider_both": lambda batch: widened(batch, 2, 3),
}


@functools.cache
def computed(variant):
    return compute(make_model(variant), variant, make_batch(variant))


@functools.cache
def computed_gradients(variant):
    return gradients(make_model(variant), make_batch(variant))


def skip_if_padding_counts(variant, padding):
    if variant.chunking == "balanced" and padding.startswith("wider"):
        pytest.skip("balanced chunks depend on the width of the batch, as in the reference implementation")


@pytest.mark.parametrize("padding", PADDINGS)
def test_padding_changes_nothing(model, variant, batch, padding):
    skip_if_padding_counts(variant, padding)
    assert_same(compute(model, variant, PADDINGS[padding](batch)), computed(variant))


@pytest.mark.parametrize("padding", ["left", "wider_both"])
def test_padding_changes_no_gradient(model, variant, batch, padding):
    skip_if_padding_counts(variant, padding)
    assert_same(gradients(model, PADDINGS[padding](batch)), computed_gradients(variant))


def per_row(model, variant, batch):
    """Results of one sequence after the other; losses are their means."""
    computed = [compute(model, variant, rows(batch, slice(row, row + 1))) for row in range(len(batch["labels"]))]
    joined = {name: torch.cat([values[name] for values in computed]) for name in computed[0] if "loss" not in name}
    means = {name: torch.stack([values[name] for values in computed]).mean() for name in computed[0] if "loss" in name}
    return joined | means


def test_batch_mates_change_nothing(model, variant, batch):
    assert_same(per_row(model, variant, batch), computed(variant))


def test_row_order_changes_nothing(model, variant, batch):
    order = torch.randperm(len(batch["labels"]))
    permuted = per_row(model, variant, rows(batch, order))
    assert_same(compute(model, variant, rows(batch, order)), permuted)
    straight = computed(variant)
    torch.testing.assert_close(permuted["logits"], straight["logits"][order], rtol=0, atol=1e-5)
    torch.testing.assert_close(permuted["loss"], straight["loss"], rtol=0, atol=1e-5)


def test_eager_is_sdpa(variant, batch):
    if "sdpa" not in variant.implementations:
        with pytest.raises(ValueError, match=r"attn_implementation is 'sdpa' but .* use 'eager'"):
            make_model(variant).set_attn_implementation("sdpa")
        assert make_model(variant).config._attn_implementation == ("triton" if torch.cuda.is_available() else "eager")
        return
    eager, sdpa = (make_model(variant) for _ in range(2))
    eager.set_attn_implementation("eager")
    assert sdpa.config._attn_implementation == "sdpa"
    assert eager.config._attn_implementation == "eager"
    assert_same(compute(eager, variant, batch), compute(sdpa, variant, batch))
    assert_same(gradients(eager, batch), gradients(sdpa, batch))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("timing", [{"compaction": False}, slow({"hard_stop": False})])
def test_compaction_changes_nothing(halting_variant, timing, training):
    batch = make_batch(halting_variant, rows=13, length=11, seed=3)
    compact = make_model(halting_variant, hard_stop=True).train(training)
    plain = make_model(halting_variant, **{"hard_stop": True, **timing}).train(training)
    expected = compute(plain, halting_variant, batch)
    assert_same(compute(compact, halting_variant, batch), expected)
    assert_same(compute(compact, halting_variant, left_padded(batch)), expected)
    assert_same(gradients(compact, batch), gradients(plain, batch))


@pytest.mark.parametrize("products", [1 << 13, 1 << 16, 1 << 40])
def test_late_compaction_changes_nothing(halting_variant, products, monkeypatch):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    expected, expected_gradients = compute(model, halting_variant, batch), gradients(model, batch)
    monkeypatch.setattr(loop, "PRODUCTS_PER_COMPACTION", products)
    assert_same(compute(model, halting_variant, batch), expected)
    assert_same(gradients(model, batch), expected_gradients)


@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.slow
def test_compaction_changes_nothing_without_padding(halting_variant, num_rows):
    batch = make_batch(halting_variant, rows=num_rows, seed=5)
    batch["attention_mask"].fill_(1)
    if halting_variant.siamese:
        batch["token_type_ids"].copy_(torch.arange(9) >= 4)
    compact, plain = make_model(halting_variant), make_model(halting_variant, compaction=False)
    assert_same(compute(compact, halting_variant, batch), compute(plain, halting_variant, batch))
    assert_same(gradients(compact, batch), gradients(plain, batch))


def test_compaction_gathers_live_units_only(halting_variant):
    batch = make_batch(halting_variant)
    chunks = ONE_CHUNK if halting_variant.chunked else {}
    sizes = block_call_sizes(make_model(halting_variant, hard_stop=True, **chunks), batch)
    whole = block_call_sizes(make_model(halting_variant, compaction=False, **chunks), batch)
    assert sorted(sizes, reverse=True) == sizes
    assert sizes[-1] < sizes[0]
    assert len(set(whole)) == 1


def test_loop_ends_with_the_last_live_unit(halting_variant):
    model = make_model(halting_variant, hard_stop=True, **(ONE_CHUNK if halting_variant.chunked else {}))
    batch = make_batch(halting_variant)
    with torch.no_grad():
        steps = model(**batch).ponder_steps
    # the row that stops first; a transition-aware head computes the step it throws away
    while steps.dim() > 1:
        steps = steps.amax(-1)
    row = int(steps.argmin())
    alone = rows(batch, slice(row, row + 1))
    discarded = int(getattr(model.config, "transition_aware", False))
    assert len(block_call_sizes(model, alone)) == min(int(steps[row]) + discarded, STEPS)
    model.config.hard_stop = False
    assert len(block_call_sizes(model, alone)) == STEPS


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_gradient_checkpointing_changes_nothing(model, variant, batch, monkeypatch):
    model.train()
    calls = recomputed_calls(model, monkeypatch)
    expected, num_calls = gradients(model, batch), len(calls)
    loss = comparable(model(**batch, output_halting=True), variant, batch["attention_mask"].bool())
    calls.clear()
    model.gradient_checkpointing_enable()
    assert_same(gradients(model, batch), expected)
    # not for a last step that all units have thrown away
    discarded = int(getattr(model.config, "transition_aware", False))
    assert 2 * num_calls - discarded <= len(calls) <= 2 * num_calls, "the block was not recomputed"
    checkpointed = comparable(model(**batch, output_halting=True), variant, batch["attention_mask"].bool())
    assert_same(checkpointed, loss)


def test_dropout_differs_between_calls_only_in_training(variant, batch):
    model = make_model(variant, dropout=0.5)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    first, second = (model(**batch).logits for _ in range(2))
    assert_close(first, second)
    model.train()
    first, second = (model(**batch).logits for _ in range(2))
    assert not torch.allclose(first, second)
