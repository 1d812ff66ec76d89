"""Corners of language models: what must be refused, and what must not depend on where padding or a cache is."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_recurrent.models.base.base_model import check_length
from support.families import LANGUAGE_BY_NAME, make_language_model

ATTENDING = ("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "block_recurrent")
ARCHITECTURES = (*ATTENDING, "rnn_lstm")
CHUNKED = ("tlb", "gutlb")
CROPPED_WITHIN = (*CHUNKED, "block_recurrent")
# what they keep of a row says nothing of its columns
STATEFUL = (*CROPPED_WITHIN, "rnn_lstm")
LENGTH = 12


@pytest.fixture
def ids():
    return torch.randint(4, 24, (2, LENGTH), generator=torch.Generator().manual_seed(3))


def model_of(name, **changes):
    return make_language_model(LANGUAGE_BY_NAME[name], **changes)


@torch.no_grad()
@pytest.mark.parametrize("name", ATTENDING)
def test_attention_of_a_piece_is_that_of_the_whole(name, ids):
    model = model_of(name)
    model.set_attn_implementation("eager")
    whole = model(ids, output_attentions=True).attentions
    cache = model(ids[:, :7], use_cache=True).past_key_values
    pieces = model(ids[:, 7:], past_key_values=cache, output_attentions=True).attentions
    assert len(pieces) == len(whole)
    for piece, full in zip(pieces, whole, strict=True):
        if getattr(model.config, "attention", None) != "geometric":
            torch.testing.assert_close(piece.sum(-1), torch.ones_like(piece.sum(-1)), rtol=0, atol=1e-5)
        # to tokens in another order, or to places in a chunk: the same weights
        ours, theirs = (rows.sort(-1, descending=True).values for rows in (piece, full[:, :, 7:]))
        width = min(ours.shape[-1], theirs.shape[-1])
        torch.testing.assert_close(ours[..., :width], theirs[..., :width], rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", CROPPED_WITHIN)
def test_crop_behind_padding_is_refused(name, ids):
    model = model_of(name)
    # a block that is complete could not be cropped at all
    ids = ids[:, :-1]
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0
    cache = model(ids, mask, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="trailing padding"):
        cache.crop(-1)
    cache.batch_select_indices(torch.tensor([0]))
    cache.crop(-1)
    torch.testing.assert_close(model(ids[:1, -1:], past_key_values=cache).logits, model(ids[:1]).logits[:, -1:])


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_padding_is_not_forgotten(name, ids):
    model = model_of(name)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    cache = model(ids[:, :8], mask[:, :8], use_cache=True).past_key_values
    if name in STATEFUL:
        piece = model(ids[:, 8:], past_key_values=cache).logits
        torch.testing.assert_close(piece, model(ids, mask).logits[:, 8:], rtol=0, atol=1e-5)
        return
    with pytest.raises(ValueError, match="`attention_mask` is missing"):
        model(ids[:, 8:], past_key_values=cache)
    assert cache.get_seq_length() == 8
    cache.reset()
    model(ids, past_key_values=cache)


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_loss_does_not_depend_on_the_padding_side(name, ids):
    model = model_of(name)
    losses = []
    for side in ("left", "right"):
        padded, mask = ids.clone(), torch.ones_like(ids)
        text = ids[1, :8]
        padded[1], mask[1] = 0, 0
        place = slice(4, None) if side == "left" else slice(0, 8)
        padded[1, place], mask[1, place] = text, 1
        losses.append(model(padded, mask, labels=padded).loss)
    torch.testing.assert_close(*losses)


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_generate_takes_what_tokenizers_return(name, ids):
    model = model_of(name)
    expected = model.generate(ids, max_new_tokens=3, do_sample=False)
    types = torch.zeros_like(ids)
    assert torch.equal(model.generate(ids, token_type_ids=types, max_new_tokens=3, do_sample=False), expected)
    chosen = model.generate(ids, cache_implementation="dynamic", max_new_tokens=3, do_sample=False)
    assert torch.equal(chosen, expected)


# newer transformers call it activation_checkpointing_enable
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("name", ["gut"])
def test_reentrant_checkpointing_is_refused(name):
    with pytest.raises(ValueError, match="use_reentrant=True"):
        model_of(name).gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})


def test_half_precision_knows_its_longest_row():
    config = model_of("gut").config
    hidden = torch.zeros(1, 1, 4)
    check_length(config, hidden, 7_000)
    check_length(config, hidden.bfloat16(), 7_000)
    for other in (hidden, hidden.bfloat16(), hidden.double()):
        with pytest.raises(
            ValueError, match=r"80000 tokens, but (float32|bfloat16|float64) holds .* at most 7\d{4}: read"
        ):
            check_length(config, other, 80_000)
    with pytest.raises(ValueError, match="7000 tokens, but float16"):
        check_length(config, hidden.half(), 7_000)
    with torch.autocast("cpu", torch.float16), pytest.raises(ValueError, match="but float16 holds"):
        check_length(config, hidden, 7_000)


def test_half_precision_knows_its_longest_chunk():
    config = copy.deepcopy(model_of("tlb").config)
    config.xpos_scale_base, config.chunk_size = 1, 50
    model = AutoModelForCausalLM.from_config(config).half()
    with pytest.raises(ValueError, match=r"spans 50 tokens, but float16 .* at most 13: .*make chunks smaller"):
        model(torch.full((1, 4), 7))


@torch.no_grad()
def test_longest_half_precision_row_is_finite():
    model = model_of("xpos_transformer").half()
    assert model(torch.randint(4, 24, (1, 6_500)), logits_to_keep=1).logits.isfinite().all()
