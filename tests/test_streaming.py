"""Sequences read in pieces of any size, with and without gradients, give the same as whole ones."""

import functools

import pytest
import torch
from transformers import AutoModel

from support.batches import right_padded
from support.compare import assert_close, assert_finite_gradients, assert_same, gradients
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_config, make_language_model, make_text, slow

LENGTH = 14
# one token, several chunks of four, the end of a chunk, and a piece that is padding only for some rows
CUTS = {"tokens": (1,) * LENGTH, "mixed": (7, 1, 1, 5), "long": (3, 11), "chunks": (4, 4, 4, 2), "last": (13, 1)}


def piece_of(text, begin, end):
    """Arguments for some columns after those before: the mask covers all of them."""
    inputs = {name: value[:, begin:end] for name, value in text.items() if name in ("input_ids", "token_type_ids")}
    return {**inputs, "attention_mask": text["attention_mask"][:, :end]}


def in_pieces(model, text, cut, **options):
    """Outputs of one piece after the other."""
    cache, begin, outputs = None, 0, []
    for size in cut:
        end = begin + size
        outputs.append(model(**piece_of(text, begin, end), past_key_values=cache, use_cache=True, **options))
        cache, begin = outputs[-1].past_key_values, end
        assert cache.get_seq_length() == end
    return outputs


def joined(outputs, mask) -> dict[str, torch.Tensor]:
    values = {"logits": torch.cat([output.logits for output in outputs], dim=1)[mask]}
    if outputs[0].ponder_steps is not None:
        values["ponder_steps"] = torch.cat([output.ponder_steps for output in outputs], dim=1)[mask]
    if outputs[0].halting_probabilities is not None:
        values["halting"] = torch.cat([output.halting_probabilities for output in outputs], dim=1)[mask]
    return values


def as_it_is(text):
    return text


@functools.cache
@torch.no_grad()
def whole(variant, pad) -> dict[str, torch.Tensor]:
    """What a model says of a text that it reads at once."""
    text = pad(make_text(variant))
    output = make_language_model(variant)(**piece_of(text, 0, LENGTH), output_halting=True)
    return joined([output], text["attention_mask"].bool())


@pytest.mark.parametrize("cut", ["tokens", "mixed", *map(slow, ("long", "chunks", "last"))])
def test_pieces_are_the_whole(cached_variant, cut):
    model = make_language_model(cached_variant)
    for pad in (as_it_is, right_padded):
        text = pad(make_text(cached_variant))
        with torch.no_grad():
            pieces = in_pieces(model, text, CUTS[cut], output_halting=True)
        assert_same(joined(pieces, text["attention_mask"].bool()), whole(cached_variant, pad))


@pytest.mark.parametrize("name", ["tlb", "gutlb", "rnn_lstm", "rnn_dnc", "block_recurrent"])
def test_models_of_constant_memory_need_the_mask_of_new_tokens_only(name):
    model, text = make_language_model(LANGUAGE_BY_NAME[name]), make_text(LANGUAGE_BY_NAME[name])
    ids, mask = text["input_ids"], text["attention_mask"]
    with torch.no_grad():
        expected = in_pieces(model, text, (5, 9))[1].logits
        cache = model(ids[:, :5], mask[:, :5], use_cache=True).past_key_values
        actual = model(ids[:, 5:], mask[:, 5:], past_key_values=cache).logits
    assert_close(actual, expected)


def test_pieces_may_be_padding_only(cached_variant):
    model, text = make_language_model(cached_variant), make_text(cached_variant)
    mask = text["attention_mask"]
    blank = torch.zeros(4, 5, dtype=torch.long)
    padded = {"input_ids": torch.cat((blank + 7, text["input_ids"]), 1), "attention_mask": torch.cat((blank, mask), 1)}
    if cached_variant.typed:
        padded["token_type_ids"] = torch.cat((blank + 1, text["token_type_ids"]), 1)
    with torch.no_grad():
        outputs = in_pieces(model, padded, (5, 6, 8), output_halting=True)
        whole = model(**text, output_halting=True)
    assert not outputs[0].logits.isnan().any()
    if cached_variant.halts:
        assert not outputs[0].ponder_cost.any()
    mask = mask.bool()
    assert_same(joined(outputs[1:], mask), joined([whole], mask))


@pytest.mark.parametrize("pooling", ["mean", "end", "cls"])
@pytest.mark.parametrize("name", ["gut", "block_recurrent", "rnn_lstm"])
def test_padding_only_is_pooled_to_zeros(name, pooling):
    variant = BY_NAME[name]
    model = AutoModel.from_config(make_config(variant, is_causal=True, pooling=pooling)).eval()
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[0, :2], mask[1, 4:] = 0, 0
    cache = None
    for begin in (0, 2, 4):
        with torch.no_grad():
            ids = torch.full((2, 2), 7)
            output = model(ids, mask[:, : begin + 2], past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        pads = ~mask[:, begin : begin + 2].bool().any(-1)
        assert not output.pooler_output[pads].any()
        assert output.pooler_output[~pads].all()


def loss_of_pieces(model, text, cut, **options) -> torch.Tensor:
    """Mean over the labelled tokens of all pieces."""
    mask, labels = text["attention_mask"], text["labels"]
    shifted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    cache, begin, total, count = None, 0, 0.0, 0
    for size in cut:
        end = begin + size
        output = model(
            **piece_of(text, begin, end),
            shift_labels=shifted[:, begin:end],
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        labelled = int(((shifted != -100) & (mask == 1))[:, begin:end].sum())
        total, count = total + output.loss * labelled, count + labelled
        cache, begin = output.past_key_values, end
    return total / count


def gradients_of(model, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def without_ponder_loss(variant):
    return make_language_model(variant, **({"ponder_loss_weight": 0.0} if variant.halts else {}))


@functools.cache
def training_on_the_whole(variant) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of the text, and its gradients."""
    model, text = without_ponder_loss(variant), make_text(variant)
    return model(**text).loss.detach(), gradients(model, text)


@pytest.mark.parametrize("cut", ["mixed", "long"])
def test_gradients_go_through_the_cache(cached_variant, cut):
    model, text = without_ponder_loss(cached_variant), make_text(cached_variant)
    loss = loss_of_pieces(model, text, CUTS[cut])
    whole_loss, whole_gradients = training_on_the_whole(cached_variant)
    torch.testing.assert_close(loss.detach(), whole_loss, rtol=1e-5, atol=1e-5)
    assert_same(gradients_of(model, loss), whole_gradients, tolerance=2e-5)


def test_detach_cuts_gradients(cached_variant):
    """Values stay, and what was read before gets no gradient."""
    model, text = make_language_model(cached_variant), make_text(cached_variant)
    mask = text["attention_mask"]
    reached = {}
    for detach in (False, True):
        embedded = model.get_input_embeddings()(text["input_ids"]).detach().requires_grad_()
        first = model(inputs_embeds=embedded[:, :6], attention_mask=mask[:, :6], use_cache=True)
        second = model(
            inputs_embeds=embedded[:, 6:], attention_mask=mask, past_key_values=first.past_key_values, detach=detach
        )
        (gradient,) = torch.autograd.grad(second.logits.square().sum(), embedded)
        reached[detach] = (
            gradient[:, :6].abs().sum().item(),
            gradient[:, 6:].abs().sum().item(),
            second.logits.detach(),
        )
    assert_close(reached[True][2], reached[False][2])
    assert reached[False][0] > 0
    assert reached[True][0] == 0
    assert reached[True][1] > 0


def test_detached_training_keeps_no_graph(cached_variant):
    """Truncated backpropagation: each piece's loss can be taken back by itself."""
    model, text = make_language_model(cached_variant).train(), make_text(cached_variant)
    ids, mask, cache = text["input_ids"], text["attention_mask"], None
    for begin in range(0, 12, 3):
        output = model(
            ids[:, begin : begin + 3],
            mask[:, : begin + 3],
            shift_labels=ids[:, begin + 1 : begin + 4],
            past_key_values=cache,
            use_cache=True,
            detach=True,
        )
        output.loss.backward()
        cache = output.past_key_values
    assert_finite_gradients(model)
