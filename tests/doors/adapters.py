"""Adapters of peft, and weights of eight bits."""

import copy

import torch
from torch import nn

from support.compare import assert_close

from .door import Room
from .models import LANGUAGE, batch_for, compute, live, refused

ROOM = Room("Adapters and eight bits")


@ROOM.door("LoRA", refused("no `target_modules`, and rnn has no queries", "rnn"), ["peft"])
def enter_lora(architecture, folder):
    """Without target modules; trained, saved, loaded and merged."""
    import peft

    model, batch = live(architecture, LANGUAGE), batch_for(architecture, LANGUAGE)
    before = copy.deepcopy(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=4, init_lora_weights=False)).eval()
    changed = compute(adapted, batch).logits
    assert not torch.allclose(changed, compute(before, batch).logits, atol=1e-3)
    adapted(**batch).loss.backward()
    assert all(parameter.grad is not None for parameter in adapted.parameters() if parameter.requires_grad)
    adapted.save_pretrained(folder)
    assert_close(compute(peft.PeftModel.from_pretrained(before, folder).eval(), batch).logits, changed)
    assert_close(compute(adapted.merge_and_unload(), batch).logits, changed, 1e-5)


@ROOM.door("quantize_dynamic", packages=["torch"])
def enter_dynamic_quantisation(architecture, folder):
    model, batch = live(architecture), batch_for(architecture)
    expected = compute(model, batch)
    check_eight_bits(torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8), batch, expected)


def check_eight_bits(model: nn.Module, batch: dict[str, torch.Tensor], expected) -> None:
    """A quantised model computes nearly what it did, and decides on halting in float32."""
    found = compute(model, batch)
    assert not torch.equal(found.logits, expected.logits)
    assert (found.logits - expected.logits).abs().mean() < 0.1 * expected.logits.abs().max()
    heads = [parameter for name, parameter in model.named_parameters() if "halting_head" in name]
    assert all(type(parameter) is nn.Parameter and parameter.dtype == torch.float32 for parameter in heads)
    if expected.get("ponder_steps") is not None:
        assert (found.ponder_steps == expected.ponder_steps).float().mean() > 0.8
