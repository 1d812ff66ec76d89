"""Adapters of peft: default modules of every architecture, saved, loaded and merged, on halting heads, with exits."""

import copy

import peft
import pytest
import torch
import transformers

from hf_recurrent import ARCHITECTURES
from support.compare import assert_close
from support.exit_models import make_classifier
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    make_batch,
    make_config,
    make_language_model,
    make_model,
    make_text,
    slow,
)

# peft asks transformers for it by its old name
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

ADAPTED = ("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "sut", "block_recurrent")
# as users name them, because there is no default
OF_CELLS = {
    "rnn_dnc": {"target_modules": ["interface_proj", "output_proj", "read_proj"]},
    "rnn_lstm": {"target_modules": [], "target_parameters": ["lstm.weight_ih_l0", "lstm.weight_hh_l0"]},
}


def lora(task: str, **options) -> peft.LoraConfig:
    """A LoRA that changes the model from the start, instead of once it is trained."""
    return peft.LoraConfig(task_type=task, r=4, init_lora_weights=False, **options)


def adapted_names(model) -> set[str]:
    """The last parts of the names of the modules that have an adapter."""
    return {
        name.rpartition(".lora_A.")[0].rpartition(".")[2] for name, _ in model.named_parameters() if "lora_A" in name
    }


def logits_of(model, batch) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch).logits


def check_round_trip(model, config, batch, folder) -> set[str]:
    """An adapter changes the model and nothing in it, is trained alone, saved, loaded and merged -> where it is."""
    before = copy.deepcopy(model)
    expected = logits_of(before, batch)
    adapted = peft.get_peft_model(model, config).eval()
    changed = logits_of(adapted, batch)
    assert not torch.allclose(changed, expected, atol=1e-3)
    with adapted.disable_adapter():
        assert_close(logits_of(adapted, batch), expected)

    adapted.train()(**batch).loss.backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert all("lora_" in name or "modules_to_save" in name for name in trained)

    adapted.eval().save_pretrained(folder)
    assert_close(logits_of(peft.PeftModel.from_pretrained(before, folder).eval(), batch), changed)
    names = adapted_names(adapted)
    merged = adapted.merge_and_unload()
    assert not adapted_names(merged)
    assert_close(logits_of(merged, batch), changed, 1e-5)
    return names


@pytest.mark.parametrize("name", ["gut", *map(slow, ADAPTED[:2] + ADAPTED[3:])])
def test_language_models_have_default_modules(name, tmp_path):
    variant = LANGUAGE_BY_NAME[name]
    names = check_round_trip(make_language_model(variant), lora("CAUSAL_LM"), make_text(variant), tmp_path)
    assert names == set(ARCHITECTURES[variant.architecture].adapted)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ADAPTED, "gut_siamese", "ndr_act"])
def test_classifiers_have_default_modules(name, tmp_path):
    variant = BY_NAME[name]
    names = check_round_trip(make_model(variant), lora("SEQ_CLS"), make_batch(variant), tmp_path)
    assert names == set(ARCHITECTURES[variant.architecture].adapted)


def test_classifiers_of_each_step_are_trained_along(tmp_path):
    variant = BY_NAME["albert_recurrent"]
    model = transformers.AutoModelForSequenceClassification.from_config(
        make_config(variant, step_classifiers="separate", initializer_range=0.5)
    )
    config = lora("SEQ_CLS", modules_to_save=["classifiers"])
    check_round_trip(model.eval(), config, make_batch(variant), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_CELLS)
def test_cells_are_adapted_by_name(name, tmp_path):
    variant = LANGUAGE_BY_NAME[name]
    check_round_trip(make_language_model(variant), lora("CAUSAL_LM", **OF_CELLS[name]), make_text(variant), tmp_path)


def test_cells_without_default_are_refused():
    message = (
        r"no `target_modules`, and rnn has no queries .*: pass target_modules=\['interface_proj'.* of a DNC, or .*"
    )
    for name, options in OF_CELLS.items():
        model = make_language_model(LANGUAGE_BY_NAME[name])
        with pytest.raises(ValueError, match=message) as refusal:
            peft.get_peft_model(model, lora("CAUSAL_LM"))
        # and what it says is what works
        assert all(f"{option}={value}" in str(refusal.value) for option, value in options.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ut", "gut", "gutlb", "ndr_act", "sut"])
def test_halting_heads_are_adapted_by_name(name, tmp_path):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    part = "proj" if name == "ndr_act" else "up_proj"
    before = model(**batch, output_halting=True).halting_probabilities
    adapted = peft.get_peft_model(copy.deepcopy(model), lora("SEQ_CLS", target_modules=[f"halting_head.{part}"])).eval()
    assert not torch.allclose(adapted(**batch, output_halting=True).halting_probabilities, before, atol=1e-3)
    config = lora("SEQ_CLS", target_modules=["q_proj" if name != "sut" else "k_proj", f"halting_head.{part}"])
    assert part in check_round_trip(model, config, batch, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gut", "ndr", "sut"])
def test_a_calibrated_exit_stays_in_effect(name, tmp_path):
    """Of an adapted model, of the merged one, and of the merged one that was saved; the promise does not."""
    variant = BY_NAME[name]
    model, batch = make_classifier(variant), make_batch(variant)
    model.config.exit_criterion, model.config.exit_threshold = "convergence", 0.4
    steps = model(**batch).ponder_steps
    assert not torch.equal(steps, model(**batch, exit_threshold=1e-6).ponder_steps)
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS")).eval()
    # without training LoRA changes nothing
    assert torch.equal(adapted(**batch).ponder_steps, steps)
    merged = adapted.merge_and_unload()
    assert torch.equal(merged(**batch).ponder_steps, steps)
    merged.save_pretrained(tmp_path)
    again = type(merged).from_pretrained(tmp_path).eval()
    assert (again.config.exit_criterion, again.config.exit_threshold) == ("convergence", 0.4)
    assert torch.equal(again(**batch).ponder_steps, steps)


@pytest.mark.parametrize("name", ["ut", "block_recurrent", "ouro_recurrent"])
def test_some_embeddings_are_trained(name):
    variant = LANGUAGE_BY_NAME[name]
    model, batch = make_language_model(variant), make_text(variant)
    adapted = peft.get_peft_model(model, lora("CAUSAL_LM", trainable_token_indices=[5, 6]))
    adapted.train()(**batch).loss.backward()
    (delta,) = (p for name, p in adapted.named_parameters() if "trainable_tokens_delta" in name and p.requires_grad)
    assert delta.shape[0] == 2
    assert delta.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:Position ids are not supported:UserWarning")
@pytest.mark.parametrize("kind", ["SEQ_CLS", "CAUSAL_LM"])
def test_prefix_tuning_is_refused_by_its_name(kind):
    """Of a classifier peft calls the base model, with all that `Trainer` passes to the classifier."""
    if kind == "SEQ_CLS":
        model, batch = make_model(BY_NAME["gut"]), make_batch(BY_NAME["gut"])
    else:
        model, batch = make_language_model(LANGUAGE_BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gut"])
    adapted = peft.get_peft_model(model, peft.PrefixTuningConfig(task_type=kind, num_virtual_tokens=3))
    with pytest.raises(ValueError, match=r"is a DynamicCache: .*peft's prefix tuning, use LoRA, prompt tuning"):
        adapted(**batch, num_items_in_batch=torch.tensor(4))
