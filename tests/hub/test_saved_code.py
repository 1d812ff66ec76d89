"""`save_pretrained` and `push_to_hub` of a model, and of transformers' `Trainer`, carry the code that it needs."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer, TrainingArguments

from hf_recurrent import ARCHITECTURES
from hf_recurrent.hub import checkpoint
from hf_recurrent.hub.bundle import carried_heads, code_files
from hf_recurrent.models.gut.configuration_gut import GUTConfig
from hf_recurrent.models.gut.modeling_gut import GUTForCausalLM, GUTForSequenceClassification, GUTModel
from support.client import must_succeed, run_client
from support.compare import assert_close
from support.loopback_hub import LoopbackHub

CLASSIFIER = "AutoModelForSequenceClassification"
SIZES = {"vocab_size": 12, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
IDS = [[2, 5, 7, 4, 3], [2, 9, 3, 0, 0]]

# runs with this package; `sys.argv`: folder of a checkpoint, and one for everything else
PUSHER = """
import sys
from pathlib import Path
from hf_recurrent import GUTForSequenceClassification
from transformers import Trainer, TrainingArguments

source, place = sys.argv[1:]
model = GUTForSequenceClassification.from_pretrained(source)
model.push_to_hub("org/model")
for repo in ("org/first", "org/second"):
    # the second time, the code in the folder is not new
    model.save_pretrained(place + "/kept", push_to_hub=True, repo_id=repo)
arguments = TrainingArguments(place + "/trainer", hub_model_id="org/trainer", report_to=[], use_cpu=True)
Trainer(model, arguments).push_to_hub()
"""

# runs without
LOADER = """
import sys
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForSequenceClassification

ids = torch.tensor(eval(sys.argv[1]))
found = {}
for name in sys.argv[3:]:
    model = AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True)
    AutoModel.from_pretrained(name, trust_remote_code=True)
    with torch.no_grad():
        found[name] = model(ids, ids != 0).logits
save_file(found, sys.argv[2])
assert "hf_recurrent" not in sys.modules
"""

# runs without
SMOOTHER = """
import sys
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
ids = torch.tensor(eval(sys.argv[2]))
batch = {"input_ids": ids, "labels": ids}
arguments = TrainingArguments("trainer", label_smoothing_factor=1e-6, report_to=[], use_cpu=True)
print(Trainer(model, arguments).compute_loss(model, dict(batch)).item(), model(**batch).loss.item())
assert "hf_recurrent" not in sys.modules
"""


def make_model(kind=GUTForSequenceClassification):
    torch.manual_seed(0)
    return kind(GUTConfig(**SIZES, num_labels=3)).eval()


def logits_of(model) -> torch.Tensor:
    ids = torch.tensor(IDS)
    with torch.no_grad():
        return model(ids, ids != 0).logits


def code_in(folder) -> dict[str, str]:
    return {path.name: path.read_text() for path in Path(folder).glob("*.py")}


def loaded_without_package(names, environment, folder) -> dict[str, torch.Tensor]:
    """Logits of checkpoints that a process without this package loads by their own code."""
    results = folder / "logits.safetensors"
    done = run_client(LOADER, environment, json.dumps(IDS), results, *names, cwd=folder, without_package=True)
    must_succeed(done)
    return load_file(results)


@pytest.mark.parametrize("kind", [GUTModel, GUTForSequenceClassification])
@pytest.mark.parametrize("options", [{}, {"max_shard_size": "4KB"}, {"state_dict": True}])
def test_saved_model_has_its_code(tmp_path, kind, options):
    model = make_model(kind)
    if "state_dict" in options:
        options = {"state_dict": model.state_dict()}
    model.save_pretrained(tmp_path, **options)
    saved = "AutoModel" if kind is GUTModel else CLASSIFIER
    assert code_in(tmp_path) == code_files("gut", saved, GUTConfig().to_dict())
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["auto_map"] == ARCHITECTURES["gut"].auto_map(carried_heads("gut", saved))
    assert config["architectures"] == [kind.__name__]
    # nothing is left of how it was written
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_config_alone_has_none(tmp_path):
    GUTConfig(**SIZES).save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert "auto_map" not in json.loads((tmp_path / "config.json").read_text())


def test_other_processes_write_nothing(tmp_path):
    make_model().save_pretrained(tmp_path, is_main_process=False)
    assert list(tmp_path.iterdir()) == []


def test_code_of_an_earlier_version_is_replaced_as_a_whole(tmp_path, monkeypatch):
    old = dict.fromkeys(code_files("gut", CLASSIFIER, GUTConfig().to_dict()), "# of an earlier version\n")
    for name, text in old.items():
        (tmp_path / name).write_text(text)

    def fails(config, folder):
        (folder / "configuration_gut.py").write_text("")
        raise OSError(28, "No space left on device")

    model = make_model()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_code", fails)
        with pytest.raises(OSError, match="No space left"):
            model.save_pretrained(tmp_path)
    assert code_in(tmp_path) == old
    model.save_pretrained(tmp_path)
    assert code_in(tmp_path) == code_files("gut", CLASSIFIER, GUTConfig().to_dict())


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(OSError, match="model"):
        make_model().save_pretrained(tmp_path / "model")
    assert (tmp_path / "model").read_text() == "mine"


def test_trainer_checkpoints_and_saved_models_have_it(tmp_path):
    rows = [{"input_ids": torch.tensor(IDS[0]), "labels": 0}] * 4
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(make_model(), arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    for folder in ("checkpoint-1", "saved"):
        assert code_in(tmp_path / folder) == code_files("gut", CLASSIFIER, GUTConfig().to_dict())
        # safetensors writes files that nobody else can read
        modes = {path.stat().st_mode for path in (tmp_path / folder).iterdir()}
        assert modes == {(tmp_path / "saved" / "config.json").stat().st_mode}
    resumed = Trainer(make_model(), arguments, train_dataset=rows)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert resumed.state.global_step == 1


def test_a_subclass_that_is_registered_brings_its_own(tmp_path, monkeypatch):
    """As transformers has it: the file of the class, which imports this package."""
    (tmp_path / "modeling_mine.py").write_text(
        "from hf_recurrent import GUTForSequenceClassification\n\n\n"
        "class MineForSequenceClassification(GUTForSequenceClassification):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from modeling_mine import MineForSequenceClassification

    MineForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
    make_model(MineForSequenceClassification).save_pretrained(tmp_path / "saved")
    assert list(code_in(tmp_path / "saved")) == ["modeling_mine.py"]
    auto_map = json.loads((tmp_path / "saved" / "config.json").read_text())["auto_map"]
    assert auto_map == {"AutoModelForSequenceClassification": "modeling_mine.MineForSequenceClassification"}


def test_what_is_no_model_of_this_package_is_refused(tmp_path):
    with pytest.raises(ValueError, match="model is of class Linear: pass a model of this package"):
        checkpoint.save_checkpoint(torch.nn.Linear(2, 2), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


class OwnConfig(GUTConfig):
    model_type = "own_gut"


class OwnHead(GUTForSequenceClassification):
    def predict(self, features, steps=None):
        return -super().predict(features, steps)


class OwnModel(OwnHead):
    config_class = OwnConfig


@pytest.mark.parametrize("model_class", [OwnHead, OwnModel])
def test_classes_from_outside_are_saved_without_code(model_class, tmp_path):
    """The package's code would compute something else, and `trust_remote_code` would run it."""
    make_model().save_pretrained(tmp_path / "stock")
    stock = GUTConfig.from_pretrained(tmp_path / "stock").to_dict()
    del stock["model_type"]
    model = model_class(model_class.config_class.from_dict(stock)).eval()
    with pytest.warns(UserWarning, match="is a class of your own, and the checkpoint carries no code for it"):
        model.save_pretrained(tmp_path / "own")
    assert code_in(tmp_path / "own") == {}
    assert "auto_map" not in json.loads((tmp_path / "own" / "config.json").read_text())
    assert_close(logits_of(model_class.from_pretrained(tmp_path / "own").eval()), logits_of(model))


@pytest.mark.slow
def test_what_is_pushed_loads_without_this_package(tmp_path):
    model = make_model()
    model.save_pretrained(tmp_path / "source")
    repositories = ["org/model", "org/first", "org/second", "org/trainer"]
    package = str(Path(checkpoint.__file__).parents[2])
    with LoopbackHub() as hub:
        environment = hub.environment(tmp_path)
        with_package = {**environment, "PYTHONPATH": os.pathsep.join([package, environment.get("PYTHONPATH", "")])}
        must_succeed(run_client(PUSHER, with_package, tmp_path / "source", tmp_path / "made", cwd=tmp_path))
        for name in repositories:
            files = hub.repository(name).head().files
            assert {path for path in files if path.endswith(".py")} == set(
                code_files("gut", CLASSIFIER, GUTConfig().to_dict())
            ), name
            # in a single commit beside the weights
            assert "model.safetensors" in files
        found = loaded_without_package([*repositories, str(tmp_path / "made/trainer")], environment, tmp_path)
    for name, logits in found.items():
        torch.testing.assert_close(logits, logits_of(model), rtol=0, atol=1e-6, msg=name)


@pytest.mark.slow
def test_trainer_shifts_labels_for_smoothing_without_this_package(tmp_path):
    make_model(GUTForCausalLM).save_pretrained(tmp_path / "model")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    done = run_client(SMOOTHER, environment, tmp_path / "model", IDS[:1], cwd=tmp_path, without_package=True)
    smoothed, plain = map(float, must_succeed(done).split()[-2:])
    assert smoothed == pytest.approx(plain, rel=1e-4)
