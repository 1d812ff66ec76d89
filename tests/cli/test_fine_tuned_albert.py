"""An ALBERT of transformers fine-tuned on a task of GLUE, then calibrated to stop early: the commands of the docs."""

import json

import pytest
from safetensors.torch import load_file

from hf_recurrent.data import loading
from hf_recurrent.hub import lint_card, read_results
from support.albert import glue_splits, save_albert
from support.compare import assert_close

pytestmark = pytest.mark.slow

QUICK = ("--use_cpu", "true", "--disable_tqdm", "true", "--per_device_train_batch_size", "8", "--learning_rate", "0.01")


@pytest.fixture
def albert(monkeypatch, tmp_path):
    """The folder of an ALBERT, beside which tasks of GLUE have a few examples."""
    monkeypatch.setattr(loading, "load_hub_dataset", lambda place, name, config, *_, **__: glue_splits(config, 96))
    monkeypatch.chdir(tmp_path)
    save_albert(tmp_path / "albert")
    return tmp_path / "albert"


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.filterwarnings("ignore:texts are cut to 32 tokens:UserWarning")
def test_pabee_and_its_calibration(succeed, albert, tmp_path):
    start = ("--model_name_or_path", albert, "--output_dir", "tuned")
    succeed("train", "glue/mrpc_albert_pabee", *start, *QUICK, "--num_train_epochs", "4")
    results, folder = read_results(tmp_path / "tuned"), tmp_path / "tuned"
    (table,) = results["splits"].values()
    assert table["accuracy"] > 0.9, "the first word tells the label"
    assert "It was fine-tuned from albert." in results["training"]["history"]
    base = dict.fromkeys(("license", "license_name", "license_link", "revision"))
    assert results["model"]["base"] == {"name": "albert", **base}, "its folder has no card"
    data = ("--dataset_name", "nyu-mll/glue", "--dataset_config_name", "mrpc", "--max_seq_length", "128")
    modest = ("--criterion", "stability", "--tolerance", "0.1", "--confidence", "0.9", "--repeats", "1")
    succeed("calibrate", "tuned", *data, *modest, "--only_exits", "--in_place")
    assert config_of(folder)["exit_criterion"] == "stability"
    assert 2 <= config_of(folder)["exit_patience"] + 1 < 4
    lint_card(folder)
    assert read_results(folder)["calibration"]["calibrated"]["mean_depth"] < 4


@pytest.mark.nightly
def test_a_probe_on_a_frozen_backbone(succeed, albert, tmp_path):
    before = load_file(albert / "model.safetensors")
    start = ("--model_name_or_path", albert, "--freeze_base_model", "true", "--output_dir", "frozen")
    once = ("--config", "{depth_objective: every_step}", "--task_name", "qnli")
    succeed("train", *start, *once, *QUICK, "--max_steps", "3")
    folder = tmp_path / "frozen"
    # a classifier of 16 features and 2 labels
    sentence = "Of its parameters 34 were trained, and the others kept as they were."
    assert sentence in read_results(folder)["training"]["history"]
    after = load_file(folder / "model.safetensors")
    assert_close(after["model.embed_tokens.weight"], before["albert.embeddings.word_embeddings.weight"], tolerance=0.0)
    assert_close(after["model.pooler.weight"], before["albert.pooler.weight"], tolerance=0.0)
    data = ("--dataset_name", "nyu-mll/glue", "--dataset_config_name", "qnli")
    succeed("fit-probe", "frozen", *data, "--size", "4", "--in_place")
    assert config_of(folder)["exit_probe_size"] == 4
