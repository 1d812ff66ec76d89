"""Arguments of a call, on a classifier or a language model."""

import torch

from hf_recurrent import ARCHITECTURES
from support.compare import assert_close

from .door import Room
from .models import CLASSIFIER, ENCODERS, LANGUAGE, STACKED, batch_for, compute, live, refused

ROOM = Room("Calls")


def called(architecture, head=CLASSIFIER, **options):
    return compute(live(architecture, head), batch_for(architecture, head), **options)


COUNTED = tuple(name for name in ARCHITECTURES if name not in ("albert_recurrent", *STACKED))


@ROOM.door("position_ids", refused("`position_ids` is a Tensor .*leave it out", *COUNTED))
def enter_position_ids(architecture, folder):
    called(architecture, position_ids=torch.arange(9)[None])


@ROOM.door("head_mask", refused("`head_mask` is a Tensor .*leave it out"))
def enter_head_mask(architecture, folder):
    called(architecture, head_mask=torch.ones(6, 2))


@ROOM.door("inputs_embeds")
def enter_embeddings(architecture, folder):
    model, batch = live(architecture), batch_for(architecture)
    expected = compute(model, batch).logits
    embedded = model.get_input_embeddings()(batch.pop("input_ids"))
    assert_close(compute(model, batch, inputs_embeds=embedded).logits, expected, 1e-5)


@ROOM.door("return_dict=False")
def enter_tuples(architecture, folder):
    assert_close(called(architecture, return_dict=False), called(architecture).to_tuple())


@ROOM.door("logits_to_keep", ENCODERS)
def enter_kept_logits(architecture, folder):
    model, prompt = live(architecture, LANGUAGE), batch_for(architecture, LANGUAGE)
    del prompt["labels"]
    assert_close(compute(model, prompt, logits_to_keep=2).logits, compute(model, prompt).logits[:, -2:])


@ROOM.door("output_hidden_states")
def enter_hidden_states(architecture, folder):
    assert len(called(architecture, output_hidden_states=True).hidden_states) > 1


@ROOM.door("output_attentions", refused("has no attention", "rnn"))
def enter_attentions(architecture, folder):
    model = live(architecture)
    model.set_attn_implementation("eager")
    attentions = compute(model, batch_for(architecture), output_attentions=True).attentions
    assert attentions
    assert all(each.isfinite().all() for each in attentions)
