"""Checkpoints that an earlier version of this package saved go on loading and computing the same.

`tests/old_checkpoints/` holds one for each released architecture, saved by version 0.1.0 before checkpoints carried
generated files, and without its code: config, weights, inputs, and what the model computed then in double precision.
"""

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.base.exit_calibration import calibration_problem, exit_digest
from support.compare import assert_close, assert_same

ROOT = Path(__file__).parent / "old_checkpoints"
# the architectures of that version, which had none of these heads
FIRST = ("xpos_transformer", "ut", "gut", "tlb", "gutlb", "ndr", "rnn", "block_recurrent", "sut")
LATER_HEADS = [
    f"AutoModelFor{head}" for head in ("TokenClassification", "MaskedLM", "QuestionAnswering", "MultipleChoice")
]
HEADS = {"ForSequenceClassification": "AutoModelForSequenceClassification", "ForCausalLM": "AutoModelForCausalLM"}


def part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.iterdir()))
def test_old_checkpoint_computes_the_same(name):
    """The config names code files that are not there; the package needs none."""
    tensors, config = load_file(ROOT / name / "io.safetensors"), transformers.AutoConfig.from_pretrained(ROOT / name)
    later = LATER_HEADS if name in FIRST else []
    assert set(config.auto_map) == {"AutoConfig", *ARCHITECTURES[name].heads} - set(later)
    assert not list((ROOT / name).glob("*.py"))
    (architecture,) = config.architectures
    loader = getattr(transformers, next(auto for suffix, auto in HEADS.items() if architecture.endswith(suffix)))
    model, report = loader.from_pretrained(ROOT / name, output_loading_info=True)
    assert type(model).__module__.startswith("hf_recurrent.")
    assert not any(report.values()), report
    inputs, expected = part(tensors, "input."), part(tensors, "output.")
    options = {"output_halting": True} if "halting_probabilities" in expected else {}
    with torch.no_grad():
        found = {key: value for key, value in model(**inputs, **options).items() if isinstance(value, torch.Tensor)}
        found["states"] = model.model(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state
    if name == "ouro_recurrent":
        # which counted what stops before the last step as one step more
        probabilities, steps = expected["halting_probabilities"], expected["ponder_steps"]
        before_last = torch.arange(probabilities.shape[-1]) < steps[..., None]
        stopped, tokens = 1 - (1 - probabilities * before_last).prod(-1), inputs["attention_mask"]
        expected["ponder_cost"] = expected["ponder_cost"] - (stopped * tokens).sum(-1) / tokens.sum(-1)
    if "aux_loss" in expected:
        # of which the loss was a part in evaluation, too, and whose terms had no names
        expected["loss"] = expected["loss"] - expected["aux_loss"]
        terms = [found.pop(key) for key in ("ponder_loss", "router_loss") if key in found]
        assert_close(sum(terms), found["aux_loss"])
    assert_same(found, expected, tolerance=5e-6)
    if "generated" in tensors:
        prompt = {key: inputs[key] for key in ("input_ids", "attention_mask")}
        options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        assert torch.equal(model.generate(**prompt, **options), tensors["generated"])


def with_former_names(text: str) -> str:
    """Saved settings as versions wrote them that counted a depth in steps."""
    assert '_depth": ' in text
    return text.replace('"max_depth": ', '"max_steps": ').replace('"min_depth": ', '"min_steps": ')


def test_settings_that_were_saved_under_former_names(tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / "ut")
    fields = {"exit_criterion": "convergence", "exit_threshold": 0.3, "exit_patience": 1, "min_depth": 2}
    record = {"fields": fields, "weights": exit_digest(model, "convergence")}
    for name, value in {**fields, "exit_calibration": record, "label2id": {"min_steps": 0, "max_steps": 1}}.items():
        setattr(model.config, name, value)
    model.generation_config.max_depth = 3
    model.save_pretrained(tmp_path)
    for path in (tmp_path / "config.json", tmp_path / "generation_config.json"):
        path.write_text(with_former_names(path.read_text()))
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.config.to_diff_dict() == model.config.to_diff_dict()
    assert again.generation_config.to_diff_dict() == model.generation_config.to_diff_dict()
    assert calibration_problem(again) is None
    with pytest.raises(ValueError, match="no field `min_steps`: did you mean `min_depth`"):
        type(model.config)(min_steps=2)
