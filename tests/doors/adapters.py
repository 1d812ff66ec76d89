"""Adapters of peft, and weights of eight bits."""

import copy

import torch
from torch import nn
from transformers import BitsAndBytesConfig, TorchAoConfig

from support.compare import assert_close

from .door import Room
from .models import CLASSIFIER, HALTING, LANGUAGE, batch_for, compute, has_head, live, refused

ROOM = Room("Adapters and eight bits")


@ROOM.door("LoRA", refused("no `target_modules`, and rnn has no queries", "rnn"), ["peft"])
def enter_lora(architecture, folder):
    """Without target modules; trained, saved, loaded and merged."""
    import peft

    head, task = (LANGUAGE, "CAUSAL_LM") if has_head(architecture, LANGUAGE) else (CLASSIFIER, "SEQ_CLS")
    model, batch = live(architecture, head), batch_for(architecture, head)
    before = copy.deepcopy(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type=task, r=4, init_lora_weights=False)).eval()
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


@ROOM.door("torchao, int8 weights", packages=["torchao"])
def enter_torchao(architecture, folder):
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model, batch = live(architecture), batch_for(architecture)
    expected = compute(model, batch)
    quantize_(model, Int8WeightOnlyConfig())
    check_eight_bits(model, batch, expected)


@ROOM.door(
    "torchao, int8 weights of all that is linear",
    refused("quantised weights, which would change where the model stops", *HALTING),
    packages=["torchao"],
)
def enter_torchao_everywhere(architecture, folder):
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model, batch = live(architecture), batch_for(architecture)
    expected = compute(model, batch)
    quantize_(model, Int8WeightOnlyConfig(), filter_fn=lambda module, name: isinstance(module, nn.Linear))
    check_eight_bits(model, batch, expected)


@ROOM.door("TorchAoConfig", packages=["torchao"])
def enter_torchao_config(architecture, folder):
    from torchao.quantization import Int8WeightOnlyConfig

    check_loaded(architecture, folder, TorchAoConfig(Int8WeightOnlyConfig()))


@ROOM.door("BitsAndBytesConfig, load_in_8bit", packages=["bitsandbytes"])
def enter_bitsandbytes(architecture, folder):
    check_loaded(architecture, folder, BitsAndBytesConfig(load_in_8bit=True))


def check_loaded(architecture, folder, config) -> None:
    model, batch = live(architecture), batch_for(architecture)
    model.save_pretrained(folder)
    loaded = type(model).from_pretrained(folder, quantization_config=config, device_map="cpu").eval()
    check_eight_bits(loaded, batch, compute(model, batch))
