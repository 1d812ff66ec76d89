"""Checkpoints load in a process without this package, by the code that they carry."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub.checkpoint import save_checkpoint
from support.compare import assert_close
from support.families import BY_NAME, make_batch, make_model
from support.tokenizer import make_tokenizer

NAMES = ["xpos_transformer", "ut", "gut", "gut_siamese", "tlb", "gutlb", "ndr", "rnn_bilstm", "block_recurrent", "sut"]

# runs in another process; `sys.argv`: "with" or "without" the package, and folders of checkpoints
SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_recurrent":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

with_package, *folders = sys.argv[1:]
if with_package == "with":
    import hf_recurrent
    options = {}
else:
    sys.meta_path.insert(0, Absent())
    options = {"trust_remote_code": True}

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

for folder in folders:
    batch = load_file(folder + "/batch.safetensors")
    if with_package == "without" and folder == folders[0]:
        try:
            AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except ValueError as error:
            assert "trust_remote_code" in str(error), error
        else:
            raise AssertionError("loaded without its code")
    config = AutoConfig.from_pretrained(folder, **options)
    model = AutoModelForSequenceClassification.from_pretrained(folder, **options)
    base = AutoModel.from_pretrained(folder, **options)
    assert type(config).__name__ == type(model.config).__name__
    assert (type(model).__module__.startswith("hf_recurrent.")) == (with_package == "with")
    assert AutoTokenizer.from_pretrained(folder)("w4 w5").input_ids == [2, 4, 5, 3]
    with torch.no_grad():
        results = {"logits": model(**batch).logits}
        results["states"] = base(batch["input_ids"], batch["attention_mask"]).last_hidden_state.contiguous()
        if with_package == "without":
            model.save_pretrained(folder + "/again")
            again = AutoModelForSequenceClassification.from_pretrained(folder + "/again", **options)
            results["again"] = again(**batch).logits
    save_file(results, f"{folder}/{with_package}.safetensors")
assert ("hf_recurrent" in sys.modules) == (with_package == "with")
"""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folders, home = {}, tmp_path_factory.mktemp("checkpoints")
    for name in NAMES:
        folder = home / name
        assert save_checkpoint(make_model(BY_NAME[name]), folder, make_tokenizer()) == folder
        save_file(make_batch(BY_NAME[name]), folder / "batch.safetensors")
        folders[name] = folder
    return folders


@pytest.fixture(scope="module", params=["without", pytest.param("with", marks=pytest.mark.slow)])
def package(request, checkpoints, tmp_path_factory):
    """Whether the process that has loaded all checkpoints could import this package."""
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, request.param, *map(str, checkpoints.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_load_in_a_clean_process(checkpoints, package, name):
    batch, model = make_batch(BY_NAME[name]), make_model(BY_NAME[name])
    with torch.no_grad():
        expected = {"logits": model(**batch).logits}
        expected["states"] = model.model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    if package == "without":
        expected["again"] = expected["logits"]
    assert_close(load_file(checkpoints[name] / f"{package}.safetensors"), expected)


@pytest.mark.parametrize("name", NAMES)
def test_folder_is_complete(checkpoints, name):
    folder, architecture = checkpoints[name], ARCHITECTURES[BY_NAME[name].architecture]
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == architecture.auto_map
    assert set(config["auto_map"]) == {"AutoConfig", *architecture.heads}
    files = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json"} <= files
    assert {f"{reference.partition('.')[0]}.py" for reference in architecture.auto_map.values()} <= files
    assert not [file for file in files if file.endswith((".bin", ".pt", ".pkl"))]
    others = {f"modeling_{other}.py" for other in ARCHITECTURES if other != architecture.model_type}
    assert not others & files


def test_foreign_models_are_refused(tmp_path):
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1, vocab_size=9)
    with pytest.raises(ValueError, match="model_type is 'bert': expected one of"):
        save_checkpoint(BertModel(config), tmp_path / "bert")
    assert not (tmp_path / "bert").exists()
