"""The core without the lab: `models` and the registry, copied into a package of their own."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import hf_recurrent
from support.client import must_succeed, run_client
from support.compare import assert_same
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_language_model, make_model, make_text

GENERATION = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
# `sys.argv`: the folder of the copy, and of checkpoints with their batches
SCRIPT = f"""
import json
import sys

place, folder = sys.argv[1:]
sys.path.insert(0, place)
from hf_recurrent.registry import ARCHITECTURES
from safetensors.torch import load_file, save_file
import torch

assert sys.modules["hf_recurrent"].__file__.startswith(place)
classifier = ARCHITECTURES["gut"].model_class("AutoModelForSequenceClassification")
model, batch = classifier.from_pretrained(folder + "/classifier"), load_file(folder + "/batch.safetensors")
with torch.no_grad():
    halted = model(**batch)
    exited = model(**batch, exit_criterion="convergence", exit_threshold=0.5)
found = {{"logits": halted.logits, "steps": halted.ponder_steps, "exit_steps": exited.ponder_steps}}
model.train()(**batch).loss.backward()
assert all(parameter.grad is not None for parameter in model.parameters())
model.save_pretrained(folder + "/again")
with torch.no_grad():
    found["again"] = classifier.from_pretrained(folder + "/again")(**batch).logits
writer = ARCHITECTURES["gutlb"].model_class("AutoModelForCausalLM").from_pretrained(folder + "/writer")
found["sequences"] = writer.generate(**load_file(folder + "/text.safetensors"), **{GENERATION!r})
save_file({{name: value.contiguous() for name, value in found.items()}}, folder + "/results.safetensors")
names = {{name.split(".")[1] for name in sys.modules if name.startswith("hf_recurrent.")}}
assert names == {{"models", "registry"}}, names
"""


@pytest.mark.slow
def test_models_load_run_generate_halt_exit_and_save_without_the_lab(tmp_path):
    source = Path(hf_recurrent.__file__).parent
    copy = tmp_path / "core" / "hf_recurrent"
    shutil.copytree(source / "models", copy / "models", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "registry.py", copy)
    (copy / "__init__.py").touch()
    model, writer = make_model(BY_NAME["gut"]), make_language_model(LANGUAGE_BY_NAME["gutlb"])
    model.save_pretrained(tmp_path / "classifier")
    writer.save_pretrained(tmp_path / "writer")
    batch, text = make_batch(BY_NAME["gut"]), make_text(LANGUAGE_BY_NAME["gutlb"])
    text = {name: text[name] for name in ("input_ids", "attention_mask")}
    save_file(batch, tmp_path / "batch.safetensors")
    save_file(text, tmp_path / "text.safetensors")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    must_succeed(run_client(SCRIPT, environment, copy.parent, tmp_path, cwd=tmp_path))
    with torch.no_grad():
        output = model(**batch)
        exited = model(**batch, exit_criterion="convergence", exit_threshold=0.5)
    found = load_file(tmp_path / "results.safetensors")
    expected = {"logits": output.logits, "again": output.logits, "steps": output.ponder_steps}
    expected |= {"exit_steps": exited.ponder_steps, "sequences": writer.generate(**text, **GENERATION)}
    assert_same(found, expected, tolerance=1e-6)
    assert len(set(output.ponder_steps.tolist())) > 1
    # the lab writes the code of checkpoints
    assert "auto_map" in json.loads((tmp_path / "classifier" / "config.json").read_text())
    assert not list((tmp_path / "again").glob("*.py"))
