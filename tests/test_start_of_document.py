"""Rows that begin a new document in a batch that goes on, and caches that are saved and loaded."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.compare import assert_close, assert_same
from support.families import CACHED_VARIANTS, LANGUAGE_BY_NAME, make_language_model, make_text, tiered

streaming = pytest.mark.parametrize("variant", tiered([each for each in CACHED_VARIANTS if each.constant_cache]))
growing = pytest.mark.parametrize("variant", tiered([each for each in CACHED_VARIANTS if not each.constant_cache]))


def batch(variant, seed: int, columns: int):
    ids = make_text(variant, columns, seed)["input_ids"]
    return ids, torch.ones_like(ids)


@streaming
def test_rows_that_start_forget_and_the_others_go_on(variant):
    model = make_language_model(variant)
    (first, mask), (second, _), (third, _) = (batch(variant, seed, 10) for seed in range(3))
    # rows stand at different places of their chunks or blocks
    mask = torch.arange(10) < torch.tensor([[10], [7], [4], [0]])
    start = torch.tensor([True, False, True, False])
    with torch.no_grad():
        cache = model(first, mask, use_cache=True).past_key_values
        actual = [model(second, past_key_values=cache, start_of_document=start), model(third, past_key_values=cache)]
        cache = model(first, mask, use_cache=True).past_key_values
        going_on = [model(second, past_key_values=cache), model(third, past_key_values=cache)]
        cache = model(second, use_cache=True)
        starting = [cache, model(third, past_key_values=cache.past_key_values)]
    for output, old, new in zip(actual, going_on, starting, strict=True):
        expected = torch.where(start[:, None, None], new.logits, old.logits)
        assert_same({"logits": output.logits}, {"logits": expected})
    assert not torch.allclose(going_on[0].logits[start], starting[0].logits[start], atol=1e-3)


@streaming
def test_a_row_that_starts_on_padding_has_read_nothing(variant):
    model = make_language_model(variant)
    (first, mask), (second, _) = (batch(variant, seed, 9) for seed in range(2))
    start = torch.tensor([True, False, False, False])
    with torch.no_grad():
        cache = model(first, mask, use_cache=True).past_key_values
        model(second, mask * ~start[:, None], past_key_values=cache, start_of_document=start)
        actual = model(second, past_key_values=cache).logits[:1]
        expected = model(second).logits[:1]
    assert_same({"logits": actual}, {"logits": expected})


@streaming
def test_gradients_reach_the_start_of_rows_that_begin_anew(variant):
    """As they do in a batch of their own, where nothing else is in the graph."""
    model = make_language_model(variant)
    (first, mask), (second, _) = (batch(variant, seed, 12) for seed in range(2))
    cache = model(first, mask, use_cache=True).past_key_values
    start = torch.ones(4, dtype=torch.bool)

    def gradients(**options):
        model.zero_grad()
        model(second, shift_labels=second.roll(-1, 1), **options).loss.backward()
        return {n: torch.zeros(()) if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}

    actual = gradients(past_key_values=cache, detach=True, start_of_document=start)
    assert_same(actual, gradients(use_cache=True))


def test_starting_without_a_past_changes_nothing():
    model, text = (make(LANGUAGE_BY_NAME["tlb"]) for make in (make_language_model, make_text))
    with torch.no_grad():
        expected = model(text["input_ids"], text["attention_mask"]).logits
        start = torch.ones(4, dtype=torch.bool)
        for cache in (None, model.model.new_cache()):
            logits = model(
                text["input_ids"], text["attention_mask"], past_key_values=cache, start_of_document=start
            ).logits
            assert_same({"logits": logits}, {"logits": expected})


@growing
def test_growing_caches_cannot_forget_a_row(variant):
    model = make_language_model(variant)
    ids, mask = batch(variant, 0, 8)
    cache = model(ids, mask, use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"`start_of_document` is True for sequence 2, .*start a new cache"):
        model(ids, past_key_values=cache, start_of_document=torch.tensor([False, False, True, True]))
    assert cache.get_seq_length() == 8
    model(ids, past_key_values=cache, start_of_document=torch.zeros(4, dtype=torch.bool))
    assert cache.get_seq_length() == 16


@pytest.mark.parametrize("start", [torch.ones(4), torch.ones(3, dtype=torch.bool), torch.ones(4, 1, dtype=torch.bool)])
def test_starts_that_do_not_fit(start):
    model = make_language_model(LANGUAGE_BY_NAME["tlb"])
    ids, _ = batch(LANGUAGE_BY_NAME["tlb"], 0, 8)
    with pytest.raises(ValueError, match=r"`start_of_document` .* shape .*: pass one bool for each of the 4 sequences"):
        model(ids, start_of_document=start)


def test_saved_caches_go_on(cached_variant, tmp_path):
    model, text = make_language_model(cached_variant), make_text(cached_variant)
    ids, mask = text["input_ids"], text["attention_mask"]
    with torch.no_grad():
        cache = model(ids[:, :9], mask[:, :9], use_cache=True).past_key_values
        save_file({n: t.contiguous() for n, t in cache.state_dict().items()}, tmp_path / "cache.safetensors")
        expected = model(ids[:, 9:], mask, past_key_values=cache).logits
        loaded = model.model.new_cache()
        loaded.load_state_dict(load_file(tmp_path / "cache.safetensors"))
        assert loaded.get_seq_length() == 9
        assert_close(model(ids[:, 9:], mask, past_key_values=loaded).logits, expected)
        empty = model.model.new_cache()
        empty.load_state_dict(model.model.new_cache().state_dict())
        assert (empty.get_seq_length(), empty.num_rows) == (0, None)
    state = cache.state_dict() | {"layers.99.key": torch.zeros(len(ids))}
    with pytest.raises(ValueError, match=r"layers.99.key: this cache has .* layers"):
        empty.load_state_dict(state)
    other = make_language_model(LANGUAGE_BY_NAME["ut" if cached_variant.name != "ut" else "gut"]).model.new_cache()
    message = rf"saved of a cache for {cached_variant.architecture} .* but this one is for .*ut "
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(cache.state_dict())
