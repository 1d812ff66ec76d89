"""Linear layers of eight bits, as torch's dynamic quantisation makes them; decisions stay in float32."""

import copy

import pytest
import torch
from torch import nn
from torch.ao.nn.quantized.dynamic import Linear as EightBitLinear
from transformers import AutoModelForSequenceClassification
from transformers.quantizers.quantizers_utils import should_convert_module

from hf_recurrent.models.ops.layers import ReproducibleLinear
from support.exit_models import make_classifier
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    # torch's own class
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel:UserWarning"),
]

# one of each architecture and cell, and those whose linear layers are used otherwise than in its default
CLASSIFIERS = [
    *("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "sut", "block_recurrent"),
    *("ndr_relative", "ndr_absolute_relative", "ndr_act", "sut_dense", "block_recurrent_feedback", "gut_siamese"),
    *("rnn_lstm", "rnn_bilstm", "rnn_dnc"),
]
LANGUAGE = [
    *("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "sut", "block_recurrent"),
    *("ndr_act_universal", "rnn_lstm", "rnn_dnc"),
]


def quantized(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def modules_under(model: nn.Module, part: str) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if part in name.split(".")}


def check_decisions(model: nn.Module, before: nn.Module) -> None:
    """Heads that decide on halting and exits are as before, in float32; all other linear layers have eight bits."""
    for part in ("halting_head", "exit_probe"):
        found, expected = modules_under(model, part), modules_under(before, part)
        assert {name: type(module) for name, module in found.items()} == {
            name: type(module) for name, module in expected.items()
        }
        for name, module in found.items():
            for key, parameter in module.named_parameters(recurse=False):
                assert parameter.dtype == torch.float32
                assert torch.equal(parameter, expected[name].get_parameter(key))
    kinds = {type(module) for module in model.modules()}
    assert EightBitLinear in kinds
    assert nn.Linear not in kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    before = copy.deepcopy(model)
    model = quantized(model)
    check_decisions(model, before)
    with torch.no_grad():
        found, expected = model(**batch, output_halting=True), before(**batch, output_halting=True)
    # eight bits are a percent of a layer's range
    assert (found.logits - expected.logits).abs().mean() < 0.1 * expected.logits.abs().max()
    if variant.halts:
        assert found.halting_probabilities.dtype == torch.float32
        same = found.ponder_steps == expected.ponder_steps
        assert same.float().mean() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models(name):
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    before = copy.deepcopy(model)
    model = quantized(model)
    check_decisions(model, before)
    with torch.no_grad():
        assert model(**text).loss.isfinite()
    prompt = {key: text[key] for key in ("input_ids", "attention_mask")}
    options = {"do_sample": False, "max_new_tokens": 3}
    assert model.generate(**prompt, **options).shape == (4, 17)


def test_layers_that_decide_are_not_quantized():
    """Also where a caller lists all kinds of layers, as it does by default."""
    model = nn.Sequential(nn.Linear(4, 4), ReproducibleLinear(4, 1))
    for kinds in ({nn.Linear}, {nn.Linear, ReproducibleLinear}, None):
        assert type(torch.ao.quantization.quantize_dynamic(model, kinds)[1]) is ReproducibleLinear


CHANGES_HALTING = "quantised weights, which would change where the model stops: .*leave the modules `halting_head`"


@pytest.mark.parametrize("name", ["gut", "ndr_act", "sut"])
def test_heads_that_were_quantized_all_the_same_are_refused(name):
    model, batch = make_model(BY_NAME[name]), make_batch(BY_NAME[name])
    head = model.base_model.halting_head
    for part, layer in list(head.named_children()):
        if isinstance(layer, ReproducibleLinear):
            plain = nn.Linear(layer.in_features, layer.out_features)
            eight_bits = quantized(nn.Sequential(plain))[0]
            setattr(head, part, eight_bits)
            with pytest.raises(ValueError, match=CHANGES_HALTING):
                model(**batch)
            setattr(head, part, layer)
    assert model(**batch).logits.isfinite().all()


def test_a_probe_that_was_quantized_all_the_same_is_refused():
    model, batch = make_classifier(BY_NAME["gut"]), make_batch(BY_NAME["gut"])
    model.exit_probe.up_proj.weight = nn.Parameter(torch.zeros(8, 16, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ValueError, match=CHANGES_HALTING):
        model(**batch, exit_criterion="probe")


@pytest.mark.parametrize("name", ["gut", "sut"])
def test_quantizers_of_transformers_leave_heads_that_decide(name):
    # as they are loaded, the probe with them
    model = AutoModelForSequenceClassification.from_config(make_config(BY_NAME[name], exit_probe_size=8))
    kept = {
        part for part, _ in model.named_parameters() if not should_convert_module(part, model._keep_in_fp32_modules)
    }
    assert kept == {part for part, _ in model.named_parameters() if "halting_head" in part or "exit_probe" in part}
    assert any("halting_head" in part for part in kept)
    assert any("exit_probe" in part for part in kept)
