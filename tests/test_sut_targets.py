"""Inputs of a decoder beside labels, wherever these are padded, and options that follow the whole model's config."""

import copy
import functools

import pytest
import torch

from hf_recurrent.models.heads.seq2seq import read_mask, shifted_right
from hf_recurrent.models.sut.modeling_sut import (
    SUTForCausalLM,
    SUTForConditionalGeneration,
    SUTForSequenceClassification,
)
from support.compare import assert_finite_gradients
from support.sut_models import make_rows, make_sut, padded

pytestmark = pytest.mark.architecture("sut")

make = functools.partial(make_sut, "plain", SUTForConditionalGeneration)
START, PAD = 2, 1
RIGHT = torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100]])
LEFT = torch.tensor([[5, 6, 7, 2], [-100, -100, 8, 2]])


def source() -> dict[str, torch.Tensor]:
    ids, mask = padded(make_rows([5, 3]), "l")
    return {"input_ids": ids, "attention_mask": mask}


def test_a_row_starts_at_its_first_label():
    assert shifted_right(RIGHT, START, PAD).tolist() == [[2, 5, 6, 7], [2, 8, 2, 1]]
    assert shifted_right(LEFT, START, PAD).tolist() == [[2, 5, 6, 7], [1, 1, 2, 8]]
    assert read_mask(RIGHT, None, PAD).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert read_mask(LEFT, None, PAD).tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]


def test_what_is_given_in_front_of_labels_is_read():
    ids = torch.tensor([[2, 9, 5, 6], [1, 2, 9, 5]])
    labels = torch.tensor([[-100, -100, 6, 2], [-100, -100, -100, 2]])
    assert read_mask(labels, ids, PAD).tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert read_mask(labels, ids, None).all()


@pytest.mark.parametrize("labels", [RIGHT, LEFT], ids=["right", "left"])
@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
def test_padding_of_labels_changes_nothing(labels, given):
    model = make()
    inputs = source() | {"labels": labels}
    if given:
        # as a collator that knows the model sends them
        inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    outputs, expected = model(**inputs), model(**source(), labels=RIGHT)
    torch.testing.assert_close(outputs.loss, expected.loss)
    torch.testing.assert_close(outputs.aux_loss, expected.aux_loss)
    assert torch.equal(outputs.ponder_steps >= 0, labels != -100)


def test_the_threshold_of_the_config_is_that_of_both_stacks():
    model = make(halting_threshold=0.99)
    before = model(**source(), labels=RIGHT)
    model.config.halting_threshold = 0.3
    changed, told = model(**source(), labels=RIGHT), make(halting_threshold=0.3)(**source(), labels=RIGHT)
    for name in ("encoder_ponder_steps", "ponder_steps"):
        assert torch.equal(changed[name], told[name])
    assert changed.encoder_ponder_steps.sum() < before.encoder_ponder_steps.sum()
    model.config.compaction, model.config.hard_stop = False, False
    torch.testing.assert_close(model(**source(), labels=RIGHT).logits, changed.logits)


def test_a_cache_knows_its_source():
    model = make()
    start = torch.full((2, 1), START)
    cache = model(**source(), decoder_input_ids=start, use_cache=True).past_key_values
    mask = source()["attention_mask"]
    outputs = model(attention_mask=mask, decoder_input_ids=start + 3, past_key_values=cache)
    whole = model(**source(), decoder_input_ids=torch.cat((start, start + 3), dim=1))
    torch.testing.assert_close(outputs.logits[:, 0], whole.logits[:, 1])
    with pytest.raises(ValueError, match="exactly one of `input_ids`"):
        model(decoder_input_ids=start)
    loaded, copied = copy.deepcopy(cache), copy.deepcopy(cache)
    loaded.reset()
    loaded.load_state_dict(cache.state_dict())
    for each in (cache, loaded, copied):
        with pytest.raises(
            ValueError, match="`attention_mask` is missing but `past_key_values` was filled from a source with"
        ):
            model(decoder_input_ids=start, past_key_values=each)
    loaded.reset()
    assert not loaded.layers[-1].tensors


def test_states_of_an_encoder_without_its_steps_cannot_train_them():
    model = make(halting="none", depth_objective="every_step").train()
    encoded = model.get_encoder()(**source())
    with pytest.raises(
        ValueError, match="`encoder_outputs` lacks the states of all steps, which depth_objective='every_s"
    ):
        model(encoder_outputs=encoded, attention_mask=source()["attention_mask"], labels=RIGHT)


def test_a_batch_without_labelled_tokens_has_a_finite_loss():
    model = make_sut("released", SUTForCausalLM).train()
    ids = torch.full((2, 3), 7)
    loss = model(ids, labels=torch.full_like(ids, -100)).loss
    loss.backward()
    assert loss.isfinite()
    assert_finite_gradients(model)


@pytest.mark.parametrize("halting", ["none", "token"])
def test_steps_of_pairs_are_in_the_columns_of_the_pairs(halting):
    fields = {"is_encoder_decoder": False, "pair_encoding": "siamese", "halting": halting}
    model = make_sut("plain", SUTForSequenceClassification, **fields).eval()
    ids, mask = torch.full((2, 6), 7), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    types = torch.tensor([[0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
    output = model(ids, mask, types, output_halting=True)
    assert torch.equal(output.ponder_steps >= 0, mask.bool())
    if halting == "none":
        assert (output.ponder_steps[mask.bool()] == model.config.num_hidden_layers).all()
