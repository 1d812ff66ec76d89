"""Auto classes: models are made, trained, saved and loaded by them, also without this package."""

import functools

import torch
import transformers

from hf_recurrent import ARCHITECTURES
from support.compare import assert_close
from test_export import Case, check

from .door import Room
from .models import (
    ALWAYS_CAUSAL,
    BASE,
    ENCODERS,
    LANGUAGE,
    MASKED,
    TOKENS,
    TRANSLATION,
    batch_for,
    compute,
    fresh,
    live,
    refused,
)

ROOM = Room("Auto classes")
HEADS = list(dict.fromkeys(head for row in ARCHITECTURES.values() for head in row.heads))
WITHOUT = {
    LANGUAGE: ENCODERS,
    MASKED: refused(f"{MASKED} has no model for .*: load it with one of", *ALWAYS_CAUSAL),
    TRANSLATION: refused(
        f"{TRANSLATION} has no model for .*: load it with one of", *(name for name in ARCHITECTURES if name != "sut")
    ),
}


def enter_auto_class(head, architecture, folder):
    model, batch = fresh(architecture, head), batch_for(architecture, head)
    assert type(model) is ARCHITECTURES[architecture].model_class(head)
    output = model.train()(**batch)
    (output.last_hidden_state.square().mean() if head == BASE else output.loss).backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    model.eval().save_pretrained(folder)
    again, report = getattr(transformers, head).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    first = "last_hidden_state" if head == BASE else next(name for name in output if name.endswith("logits"))
    assert_close(compute(again.eval(), batch)[first], compute(model, batch)[first])


for auto_class in HEADS:
    ROOM.door(auto_class, WITHOUT.get(auto_class))(functools.partial(enter_auto_class, auto_class))


@ROOM.door("trust_remote_code without this package")
def enter_remote_code(architecture, folder):
    check([Case(architecture, TOKENS)], folder)


@ROOM.door("dtype=torch.bfloat16")
def enter_half_precision(architecture, folder):
    """Decisions on halting stay in float32."""
    model, batch = live(architecture), batch_for(architecture)
    model.save_pretrained(folder)
    half = type(model).from_pretrained(folder, dtype=torch.bfloat16).eval()
    found, expected = compute(half, batch), compute(model, batch)
    assert found.logits.dtype == torch.bfloat16
    # of the largest logit, as eight bits of a mantissa through several steps may leave it; few decisions fall otherwise
    assert (found.logits.float() - expected.logits).abs().median() < 0.1 * expected.logits.abs().max()
    heads = [parameter for name, parameter in half.named_parameters() if "halting_head" in name]
    assert all(parameter.dtype == torch.float32 for parameter in heads)
