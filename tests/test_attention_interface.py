"""Attention that a user registers with transformers gets masks in the form that it was registered for."""

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask, sdpa_mask

from support.compare import assert_close
from support.families import LANGUAGE_BY_NAME, make_language_model, make_text


def attend(query, key, value, scaling, bias):
    """Attention (B, S, H, D) with a sum or a choice of scores."""
    repeats = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(repeats, dim=1) for states in (key, value))
    scores = query @ key.transpose(-1, -2) * scaling
    if bias is not None:
        scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias
    weights = scores.softmax(-1).nan_to_num()
    return (weights @ value).transpose(1, 2).contiguous(), weights


def adding(module, query, key, value, attention_mask, scaling, **_):
    assert attention_mask is None or attention_mask.is_floating_point()
    return attend(query, key, value, scaling, attention_mask)


def choosing(module, query, key, value, attention_mask, scaling, is_causal=None, **_):
    assert attention_mask is None or attention_mask.dtype == torch.bool
    causal = module.is_causal if is_causal is None else is_causal
    if attention_mask is None and causal and query.shape[2] > 1:
        # such masks are left out
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    return attend(query, key, value, scaling, attention_mask)


FORMS = {"adding": (adding, eager_mask), "choosing": (choosing, sdpa_mask)}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for name, (attention, mask) in FORMS.items():
        monkeypatch.setitem(AttentionInterface._global_mapping, name, attention)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, name, mask)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["xpos_transformer", "ut", "gut", "tlb", "gutlb", "ouro_recurrent", "ouro_computed", "huginn_recurrent"]
)
def test_masks_have_the_form_that_was_registered(name, form):
    variant = LANGUAGE_BY_NAME[name]
    model, batch = make_language_model(variant), make_text(variant)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**batch).logits[mask]
        model.set_attn_implementation(form)
        assert_close(model(**batch).logits[mask], expected, tolerance=2e-5)
        # read in two pieces, by a cache
        ids, whole = batch["input_ids"], batch["attention_mask"]
        first = model(ids[:, :-3], attention_mask=whole[:, :-3], use_cache=True)
        last = model(ids[:, -3:], attention_mask=whole, past_key_values=first.past_key_values)
        assert_close(torch.cat((first.logits, last.logits), dim=1)[mask], expected, tolerance=2e-5)
