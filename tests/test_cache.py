"""Caches in generation: sequences reordered, repeated, selected, cropped and given back; and their size."""

import copy
import functools

import pytest
import torch
from transformers import AutoConfig, AutoModel, Cache

from support.compare import assert_close, assert_same
from support.families import (
    BY_NAME,
    CHUNKS,
    LANGUAGE_BY_NAME,
    STEPS,
    Variant,
    make_config,
    make_language_model,
    make_model,
    make_text,
    slow,
)
from test_streaming import in_pieces, joined

BLOCK_FAMILIES = ["block_recurrent", "block_recurrent_feedback"]
DEPTH_FAMILIES = ["xpos_transformer", "ut", "gut", "gut_no_transition", "ndr", "sut"]
CROPPED = [*DEPTH_FAMILIES, "tlb", "gutlb", "gutlb_token", *BLOCK_FAMILIES]
ARCHITECTURES = [*CROPPED, "rnn_lstm", "rnn_dnc"]
CHUNK_FAMILIES = ["tlb", "gutlb"]
# one chunk and two tokens of the next, by the row without padding
READ = 6


def read(model, text, columns: int = READ, cache=None):
    """Read as far as `columns`, from where the cache ends."""
    begin = 0 if cache is None else cache.get_seq_length()
    ids, mask = text["input_ids"][:, begin:columns], text["attention_mask"][:, :columns]
    with torch.no_grad():
        return model(ids, mask, past_key_values=cache, use_cache=True)


def unpadded(variant):
    text = make_text(variant)
    return {"input_ids": text["input_ids"], "attention_mask": torch.ones_like(text["attention_mask"])}


def tensors_of(cache: Cache) -> list[torch.Tensor]:
    """Everything a cache holds."""
    found = []
    for layer in cache.layers:
        values = [*vars(layer).values(), *getattr(layer, "tensors", {}).values()]
        found += [value for value in values if isinstance(value, torch.Tensor)]
    return found


@pytest.fixture(params=ARCHITECTURES)
def setup(request):
    variant = LANGUAGE_BY_NAME[request.param]
    return make_language_model(variant), make_text(variant)


@functools.cache
def continued(name: str) -> torch.Tensor:
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    return read(model, text, 14, read(model, text).past_key_values).logits


@pytest.fixture
def expected(request):
    """What the model of `setup` says from column `READ` on."""
    return continued(request.node.callspec.params["setup"])


# what is done to a cache of four rows, and which rows it then holds
CHANGES = {
    "reorder": (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 0, 3])), [2, 0, 0, 3]),
    "repeat": (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2, 3, 3]),
    "select": (lambda cache: cache.batch_select_indices(torch.tensor([3, 1])), [3, 1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_a_cache(setup, expected, change):
    model, text = setup
    act, rows = CHANGES[change]
    cache = read(model, text).past_key_values
    act(cache)
    moved = {name: value[rows] for name, value in text.items()}
    assert cache.num_rows == len(rows)
    tokens = moved["attention_mask"][:, READ:].bool()
    actual = read(model, moved, 14, cache).logits
    assert_same({"logits": actual[tokens]}, {"logits": expected[rows][tokens]})


@pytest.mark.parametrize(("columns", "removed"), [(6, 1), (6, 4), (8, 2), slow(6, 2), slow(8, 1), slow(8, 4)])
@pytest.mark.parametrize("setup", CROPPED, indirect=True)
def test_cropped_tokens_were_never_read(setup, columns, removed):
    """Also of a chunk that is complete, as long as nothing has come after it; not of a block that is."""
    model, text = setup[0], unpadded(LANGUAGE_BY_NAME["gut"])
    cache = read(model, text, columns).past_key_values
    begun = {"chunk_size": (columns - 1) % 4 + 1, "window_size": columns % 4}
    begun = next((tokens for name, tokens in begun.items() if hasattr(model.config, name)), columns)
    if begun < removed:
        with pytest.raises(ValueError, match=rf"crop\(-{removed}\): a sequence has only {columns % 4} tokens"):
            cache.crop(-removed)
        assert cache.get_seq_length() == columns
        removed = 0
    cache.crop(-removed)
    kept = columns - removed
    assert cache.get_seq_length() == kept
    other = {**text, "input_ids": text["input_ids"].clone()}
    other["input_ids"][:, kept:] = 23 - other["input_ids"][:, kept:] % 19
    assert not torch.equal(other["input_ids"], text["input_ids"])
    expected = read(model, other, 14, read(model, other, kept).past_key_values).logits
    # token by token, so that what was cropped would be found if it were still there
    actual = torch.cat([read(model, other, column, cache).logits for column in range(kept + 1, 15)], dim=1)
    assert_same({"logits": actual}, {"logits": expected})


def test_crop_takes_the_number_to_remove(setup):
    model, text = setup
    cache = read(model, text).past_key_values
    with pytest.raises(ValueError, match=r"crop\(3\): pass how many tokens to remove, as a negative number"):
        cache.crop(3)
    with pytest.raises(ValueError, match=r"crop\(1\.5\): pass how many tokens to remove, as a negative number"):
        cache.crop(1.5)
    with pytest.raises(ValueError, match=rf"crop\(-{READ + 1}\): the cache holds {READ} tokens; pass -{READ} for all"):
        cache.crop(-READ - 1)
    cache.crop(torch.tensor(0))
    assert cache.get_seq_length() == READ


@pytest.mark.parametrize("name", ["gut", "gut_no_transition"])
def test_crop_beyond_the_sums_that_are_kept(name):
    from hf_recurrent.models.depth.depth_cache import MAX_CACHED_SUMS

    model = make_language_model(LANGUAGE_BY_NAME[name])
    ids = torch.randint(4, 24, (2, MAX_CACHED_SUMS + 9))
    with torch.no_grad():
        cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(
        ValueError, match=rf"crop\(-{MAX_CACHED_SUMS}\): running sums are cached for the last {MAX_CACHED_SUMS} tokens"
    ):
        cache.crop(-MAX_CACHED_SUMS)
    # also of layers without sums
    assert {layer.tensors["keys"].shape[2] for layer in cache.layers} == {MAX_CACHED_SUMS + 9}
    cache.crop(1 - MAX_CACHED_SUMS)
    text = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    expected = read(model, text, 14).logits[:, 10:]
    assert_same({"logits": read(model, text, 14, cache).logits}, {"logits": expected})
    # nothing is left to have sums of
    cache.crop(-14)
    assert_same({"logits": read(model, text, 14, cache).logits[:, 10:]}, {"logits": expected})


def test_reset_is_a_new_cache(setup):
    model, text = setup
    expected = read(model, text, 14)
    cache = read(model, text).past_key_values
    cache.reset()
    assert cache.get_seq_length() == 0
    assert cache.num_rows is None
    other_rows = {name: value[:2] for name, value in text.items()}
    again = read(model, other_rows, 14, cache)
    tokens = other_rows["attention_mask"].bool()
    assert_same({"logits": again.logits[tokens]}, {"logits": expected.logits[:2][tokens]})


def test_copies_go_on_apart(setup):
    """A cache that is copied can be continued in two ways."""
    model, text = setup
    other = {**text, "input_ids": 23 - text["input_ids"] % 19}
    other["input_ids"][:, :READ] = text["input_ids"][:, :READ]
    cache = read(model, text, READ).past_key_values
    twin = copy.deepcopy(cache)
    for column in range(READ + 1, 15):
        # by turns, so that one would find what the other wrote
        mine, others = read(model, text, column, cache), read(model, other, column, twin)
    tokens = slice(0, 2)
    for last, whole in ((mine, text), (others, other)):
        expected = read(model, whole, 14).logits[tokens, -1]
        assert_same({"logits": last.logits[tokens, -1]}, {"logits": expected})
    assert not torch.allclose(mine.logits, others.logits)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("reorder_cache", torch.tensor([0, 4]), r"`beam_idx` is \[0, 4\]: the cache holds 4 sequences, from 0"),
        ("batch_select_indices", torch.tensor([-1]), r"`indices` is \[-1\]: the cache holds 4 sequences"),
        ("reorder_cache", [1, 0], r"`beam_idx` is \[1, 0\]"),
        ("batch_repeat_interleave", 0, "`repeats` is 0: pass a whole number, at least 1"),
    ],
)
@pytest.mark.parametrize("setup", ["gut", "tlb", "rnn_lstm"], indirect=True)
def test_rows_that_a_cache_has_not(setup, method, argument, message):
    cache = read(*setup).past_key_values
    before = cache.state_dict()
    with pytest.raises(ValueError, match=message):
        getattr(cache, method)(argument)
    assert_same(cache.state_dict(), before)


@pytest.mark.parametrize("setup", DEPTH_FAMILIES, indirect=True)
def test_what_was_saved_is_not_written_over(setup):
    model, text = setup
    cache = read(model, text).past_key_values
    cache = read(model, text, READ + 1, cache).past_key_values
    saved = cache.state_dict()
    before = {name: tensor.clone() for name, tensor in saved.items()}
    cache.crop(-2)
    read(model, {**text, "input_ids": 23 - text["input_ids"] % 19}, READ + 1, cache)
    assert_same(saved, before)


def failing_calls(model, text, cache):
    ids, mask = text["input_ids"][:, READ:], text["attention_mask"]
    yield lambda: model(ids + 30, mask, past_key_values=cache)
    yield lambda: model(ids, mask[:, :-1], past_key_values=cache)
    yield lambda: model(ids[:2], mask[:2], past_key_values=cache)
    yield lambda: model(ids, mask, past_key_values=cache, shift_labels=ids + 30)
    yield lambda: model(ids, mask, past_key_values=cache, labels=ids[:, :3])
    yield lambda: model(inputs_embeds=torch.full((4, 8, 32), torch.nan), attention_mask=mask, past_key_values=cache)


def test_a_failed_call_leaves_the_cache(setup, expected):
    model, text = setup
    cache = read(model, text).past_key_values
    before = [tensor.clone() for tensor in tensors_of(cache)]
    for number, call in enumerate(failing_calls(model, text, cache)):
        with torch.no_grad(), pytest.raises(ValueError, match=r"holds|has shape|NaN"):
            call()
        after = tensors_of(cache)
        assert cache.get_seq_length() == READ, number
        assert len(after) == len(before)
        assert all(torch.equal(*pair) for pair in zip(after, before, strict=True)), number
    assert_same({"logits": read(model, text, 14, cache).logits}, {"logits": expected})


def size_of(cache) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(cache))


@pytest.mark.parametrize("name", CHUNK_FAMILIES)
def test_chunk_caches_do_not_grow(name):
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), unpadded(variant)
    sizes, cache = [], None
    for column in (1, 3, 5, 9, 14):
        cache = read(model, text, column, cache).past_key_values
        sizes.append(size_of(cache))
    assert len(set(sizes)) == 1
    at_once = read(model, text, 14).past_key_values
    assert size_of(at_once) == sizes[0]
    # keys and values of a chunk and of the memory at each depth, at least
    heads_and_widths, slots = 2 * 16, CHUNKS["num_memory_slots"]
    assert sizes[0] > 4 * 4 * STEPS * 2 * (CHUNKS["chunk_size"] + slots) * heads_and_widths
    assert sizes[0] < 2 * 4 * 4 * STEPS * 2 * (CHUNKS["chunk_size"] + 1 + slots) * heads_and_widths


def test_depth_caches_grow_with_the_context():
    variant = LANGUAGE_BY_NAME["ut"]
    model, text = make_language_model(variant), unpadded(variant)
    for columns in (5, 10):
        cache = read(model, text, columns).past_key_values
        assert size_of(cache) == 4 * 4 * STEPS * 2 * columns * 2 * 16


@pytest.mark.parametrize("name", ["ut", "gut", "gutlb"])
def test_new_cache_has_room_for_the_steps_of_later_calls(name):
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    options = {"max_depth": STEPS + 2, "halting_threshold": 1.0}
    cache = model.model.new_cache(max_depth=STEPS + 2)
    assert cache.depth == STEPS + 2
    with torch.no_grad():
        whole = model(text["input_ids"], text["attention_mask"], **options)
        first = model(text["input_ids"][:, :6], text["attention_mask"][:, :6], past_key_values=cache, **options)
        second = model(text["input_ids"][:, 6:], text["attention_mask"], past_key_values=cache, **options)
        pieces = in_pieces(model, text, (6, 8), **options)
    mask = text["attention_mask"].bool()
    assert_same(joined([first, second], mask), joined([whole], mask))
    assert_same(joined(pieces, mask), joined([whole], mask))
    # fewer steps than there is room for
    shallow = {"max_depth": 2}
    with torch.no_grad():
        cache = model.model.new_cache(max_depth=STEPS)
        first = model(text["input_ids"][:, :6], text["attention_mask"][:, :6], past_key_values=cache, **shallow)
        second = model(text["input_ids"][:, 6:], text["attention_mask"], past_key_values=cache, **shallow)
        whole = model(text["input_ids"], text["attention_mask"], **shallow)
    assert_same(joined([first, second], mask), joined([whole], mask))


# a cache that does not fit -> who made it, what the error says
def other_width(variant):
    from transformers import AutoModelForCausalLM

    from support.families import make_config

    return AutoModelForCausalLM.from_config(make_config(variant, hidden_size=16)).model.new_cache()


@pytest.mark.parametrize("name", ["gut", "gutlb", "tlb", "block_recurrent"])
def test_caches_that_do_not_fit(name):
    from transformers import DynamicCache

    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    foreign = make_language_model(LANGUAGE_BY_NAME["ut"]).model.new_cache()
    cases = [
        (DynamicCache(), "`past_key_values` is a DynamicCache: pass what this model returned"),
        ("cache", "`past_key_values` is a str: pass what this model returned"),
        (foreign, rf"was made for ut \(.*\) but this model is {variant.architecture} \(.*\): start a new cache"),
        (other_width(variant), rf"was made for {variant.architecture} \(.*width 16.*but this model is .*width 32"),
        (read(model, {k: v[:2] for k, v in text.items()}).past_key_values, "holds 2 sequences but the inputs have 4"),
    ]
    if variant.chunked:
        other = make_language_model(variant, chunk_size=7).model.new_cache()
        cases.append((other, "chunks of 7, .*but this model is .*chunks of 4"))
    if variant.windowed:
        other = make_language_model(variant, window_size=7).model.new_cache()
        cases.append((other, "windows of 7, .*but this model is .*windows of 4"))
    for cache, message in cases:
        with pytest.raises(ValueError, match=message):
            model(text["input_ids"], text["attention_mask"], past_key_values=cache)
        if not isinstance(cache, str):
            with pytest.raises(ValueError, match=message):
                model.generate(
                    text["input_ids"], attention_mask=text["attention_mask"], past_key_values=cache, max_new_tokens=2
                )


@pytest.mark.parametrize("name", ["gut", "tlb", "gutlb_count"])
def test_encoders_take_no_cache(name):
    model = make_model(BY_NAME[name]).model
    ids = torch.full((2, 5), 7)
    with pytest.raises(ValueError, match=r"config.is_causal=False|`chunking` is 'count'"):
        model(ids, use_cache=True)
    if name != "gutlb_count":
        cache = make_language_model(LANGUAGE_BY_NAME[name]).model.new_cache()
        with pytest.raises(ValueError, match="only a causal model can read a row in pieces"):
            model(ids, past_key_values=cache)


@pytest.mark.parametrize("name", ["gut", "gutlb"])
def test_more_steps_than_the_cache_has_room_for(name):
    model, text = make_language_model(LANGUAGE_BY_NAME[name]), make_text(LANGUAGE_BY_NAME[name])
    cache = read(model, text).past_key_values
    with pytest.raises(ValueError, match=r"max_depth is 9 but `past_key_values` has room for 6 steps: .*max_depth=9"):
        model(text["input_ids"][:, READ:], text["attention_mask"], past_key_values=cache, max_depth=9)


@pytest.mark.parametrize("pooling", ["mean", "end", "cls"])
@pytest.mark.parametrize("architecture", ["xpos_transformer", "ut", "gut", "ndr", "rnn", "sut", "block_recurrent"])
def test_a_piece_without_tokens_is_pooled_to_zeros(architecture, pooling):
    """The second row has ended before the last piece."""
    config = make_config(Variant("causal", architecture, {"is_causal": True, "pooling": pooling}))
    model = AutoModel.from_config(config).eval()
    ids, mask = torch.arange(4, 16).view(2, 6), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    with torch.no_grad():
        cache = model(ids[:, :4], use_cache=True).past_key_values
        pooled = model(ids[:, 4:], mask, past_key_values=cache).pooler_output
        alone = model(ids[:1, :4], use_cache=True).past_key_values
        expected = model(ids[:1, 4:], past_key_values=alone).pooler_output
    assert_close(pooled[:1], expected)
    assert pooled[1].count_nonzero() == 0


@pytest.mark.parametrize("name", ["ut", "gut", "xpos_transformer"])
def test_prompts_are_computed_without_padding(name):
    model = make_language_model(BY_NAME[name]).eval()
    mask = (torch.arange(40) >= torch.tensor([[0], [25], [30]])).long()
    ids, sizes = torch.randint(4, 20, mask.shape), []
    first = model.model.block if hasattr(model.model, "block") else model.model.layers[0]
    first.register_forward_pre_hook(lambda _, arguments: sizes.append(arguments[0].shape[:-1].numel()))
    with torch.no_grad():
        model(input_ids=ids, attention_mask=mask, use_cache=True)
    assert 0 < max(sizes, default=0) <= mask.sum()


@pytest.mark.parametrize("name", ["ut", "gut"])
def test_tokens_that_all_halt_before_a_step_leave_keys(name):
    """The first piece takes no step at all, and later ones attend to its embeddings."""
    torch.manual_seed(0)
    fields = {"halting": "global", "transition_aware": False, "halted_candidates": False, "depth_objective": "mixture"}
    config = AutoConfig.for_model(name, vocab_size=16, hidden_size=8, num_attention_heads=2, is_causal=True, **fields)
    model = AutoModel.from_config(config).double().eval()
    model.halting_head.requires_grad_(False)[-1].bias.fill_(30.0)
    ids = torch.randint(4, 16, (3, 9))
    with torch.no_grad():
        whole = model(ids)
        first = model(ids[:, :5], use_cache=True)
        model.halting_head[-1].bias.fill_(-30.0)
        second = model(ids[:, 5:], past_key_values=first.past_key_values)
    assert not whole.ponder_steps.any()
    assert second.ponder_steps.all()
    assert_close(first.last_hidden_state, whole.last_hidden_state[:, :5], 1e-6)
    assert second.last_hidden_state.isfinite().all()
