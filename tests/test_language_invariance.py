"""Results of causal language models do not depend on padding, batch mates, kernels, compaction or later tokens."""

import functools

import pytest
import torch

from support import flash_attention
from support.batches import right_padded, tokens_of, widened, with_other_padding
from support.compare import assert_close, assert_same, compute, gradients
from support.families import LANGUAGE_BY_NAME, VOCAB_SIZE, make_language_model, make_text, window_places

PADDINGS = {
    "other_content": with_other_padding,
    "right": right_padded,
    "wider_both": lambda text: widened(text, 3, 2),
}


def one_row(text):
    return tokens_of(text, 0)


@functools.cache
def computed(variant, change=None):
    text = make_text(variant)
    return compute(make_language_model(variant), variant, text if change is None else change(text))


@functools.cache
def computed_gradients(variant):
    return gradients(make_language_model(variant), make_text(variant))


@pytest.mark.parametrize("padding", PADDINGS)
def test_padding_changes_nothing(language_model, language_variant, text, padding):
    changed = PADDINGS[padding](text)
    assert_same(compute(language_model, language_variant, changed), computed(language_variant))
    if padding == "right":
        assert_same(gradients(language_model, changed), computed_gradients(language_variant))


def test_rows_alone_are_the_batch(language_model, language_variant, text):
    alone = [compute(language_model, language_variant, tokens_of(text, row)) for row in range(4)]
    together = computed(language_variant)
    names = [name for name in together if "loss" not in name]
    assert_same(
        {name: torch.cat([values[name] for values in alone]) for name in names},
        {name: together[name] for name in names},
    )


def test_later_tokens_change_nothing_earlier(language_variant, text):
    """With compaction too, where other tokens may halt and so share a matrix product."""
    text = {name: text[name] for name in ("input_ids", "attention_mask")}
    for place in (13, 10, 7):
        changed = text["input_ids"].clone()
        changed[:, place:] = 4 + (changed[:, place:] - 3) % (VOCAB_SIZE - 4)
        for compaction in (False, True):
            model = make_language_model(
                language_variant, **({"compaction": compaction} if language_variant.halts else {})
            )
            with torch.no_grad():
                before, after = (model(ids, text["attention_mask"]).logits for ids in (text["input_ids"], changed))
            tolerance = 1e-5 if compaction and language_variant.halts else 1e-6
            assert_close(after[:, :place], before[:, :place], tolerance)
            tokens = text["attention_mask"][:, place].bool()
            assert ((after[:, place] - before[:, place]).abs().amax(-1) > 1e-3)[tokens].all()


def test_a_prefix_says_what_it_says_in_the_whole(cached_variant):
    model, text = make_language_model(cached_variant), make_text(cached_variant)
    whole = {name: text[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = model(**whole)
        for length in (13, 12, 6):
            # rows of which only padding is left are dropped
            prefix = {
                name: value[whole["attention_mask"][:, :length].any(-1), :length] for name, value in whole.items()
            }
            rows = whole["attention_mask"][:, :length].any(-1)
            actual, tokens = model(**prefix), prefix["attention_mask"].bool()
            scale = expected.logits.abs().max().item()
            earlier = expected.logits[rows, :length][tokens]
            torch.testing.assert_close(actual.logits[tokens], earlier, rtol=0, atol=1e-5 * max(1.0, scale))
            if actual.ponder_steps is not None:
                assert torch.equal(actual.ponder_steps, expected.ponder_steps[rows, :length])


@pytest.mark.parametrize("timing", [{"compaction": False}, {"hard_stop": False}])
def test_compaction_changes_nothing(language_variant, text, timing):
    if not language_variant.halts:
        pytest.skip("nothing to compact")
    plain = make_language_model(language_variant, **timing)
    assert_same(computed(language_variant), compute(plain, language_variant, text))
    assert_same(computed_gradients(language_variant), gradients(plain, text))


def test_recording_changes_nothing(language_model, language_variant, text):
    recorded = compute(language_model, language_variant, text, output_hidden_states=True, output_gates=True)
    assert_same(recorded, computed(language_variant))


@pytest.mark.parametrize("implementation", ["eager", "flash_attention_2"])
def test_kernels_agree(language_variant, text, implementation):
    flash = implementation == "flash_attention_2"
    if "sdpa" not in language_variant.implementations or (flash and not language_variant.flash_attention):
        pytest.skip("has no such implementation")
    assert make_language_model(language_variant).config._attn_implementation == "sdpa"
    model = make_language_model(language_variant)
    with flash_attention.installed():
        model.set_attn_implementation(implementation)
        assert model.config._attn_implementation == implementation
        for change in (None, right_padded, one_row):
            batch = text if change is None else change(text)
            assert_same(compute(model, language_variant, batch), computed(language_variant, change))
        assert_same(gradients(model, text), computed_gradients(language_variant))
        assert bool(flash_attention.calls) == flash


def test_attention_looks_back_only(language_variant, text):
    if not language_variant.attends:
        pytest.skip("has no attention")
    model = make_language_model(language_variant)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**text, output_attentions=True)
    tokens = text["attention_mask"].bool()
    visible = (tokens[:, None] & tokens[..., None]).tril()
    visible = window_places(tokens) if language_variant.windowed else visible
    for weights in output.attentions:
        heads = 2 * (language_variant.experts_per_token or 1) * language_variant.layers_per_step
        assert weights.shape == (4, heads, *visible.shape[1:])
        weights = weights.permute(0, 2, 3, 1)[tokens]
        assert not weights[~visible[tokens]].any()
        if getattr(model.config, "attention", None) == "geometric":
            # what nothing matches stays unread, and nobody reads itself
            assert (weights.sum(1) <= 1 + 1e-5).all()
            assert torch.equal((weights > 0).all(-1), visible.tril(-1)[tokens])
            continue
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights), weights.shape[-1]), rtol=0, atol=1e-5)
        if not language_variant.chunked:
            assert (weights[visible[tokens]] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gut", "gutlb"])
def test_compiled_model_computes_the_same(name):
    variant = LANGUAGE_BY_NAME[name]
    # tracing unrolls the depth, and takes a second a step
    model = make_language_model(variant, num_hidden_layers=2)
    text = make_text(variant, length=6)
    expected = compute(model, variant, text)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert_same(compute(compiled, variant, text), expected)
    compiled(**text).loss.backward()
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert all("memory_norm" in name for name in unused)
