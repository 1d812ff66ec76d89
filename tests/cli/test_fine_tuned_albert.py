"""An ALBERT of transformers fine-tuned on a task of GLUE, then calibrated to stop early: the commands of the docs."""

import json

import pytest
from safetensors.torch import load_file

from hf_recurrent.hub import lint_card
from hf_recurrent.hub.base_model import BaseModel
from hf_recurrent.hub.card import read_card
from hf_recurrent.text_data.source import TextSource
from support.albert import glue_splits, save_albert
from support.compare import assert_close

pytestmark = pytest.mark.slow

QUICK = ("--use_cpu", "true", "--disable_tqdm", "true", "--per_device_train_batch_size", "8", "--learning_rate", "0.01")


@pytest.fixture
def albert(monkeypatch, tmp_path):
    """The folder of an ALBERT, beside which tasks of GLUE have a few examples."""
    splits = lambda source: glue_splits(source.task_name or source.dataset_config_name, 96)  # noqa: E731
    monkeypatch.setattr(TextSource, "load_data_set", splits)
    monkeypatch.chdir(tmp_path)
    save_albert(tmp_path / "albert")
    return tmp_path / "albert"


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def test_pabee_and_its_calibration(succeed, albert, tmp_path):
    start = ("--model_name_or_path", albert, "--output_dir", "tuned")
    succeed("train", "glue/mrpc_albert_pabee", *start, *QUICK, "--num_train_epochs", "4")
    card, folder = read_card(tmp_path / "tuned"), tmp_path / "tuned"
    assert card.results[0].table["accuracy"] > 0.9, "the first word tells the label"
    assert "It was fine-tuned from albert." in card.limitations
    assert card.base_model == BaseModel("albert"), "its folder has no card"
    data = ("--dataset-name", "nyu-mll/glue", "--config", "mrpc", "--max-seq-length", "128")
    modest = ("--criterion", "stability", "--tolerance", "0.1", "--confidence", "0.9", "--repeats", "1")
    succeed("calibrate", "tuned", *data, *modest, "--only_exits", "--in_place", "--card")
    assert config_of(folder)["exit_criterion"] == "stability"
    assert 2 <= config_of(folder)["exit_patience"] + 1 < 4
    lint_card(folder)
    steps = read_card(folder).results[0].table["steps"]
    assert steps["mean"] < 4


@pytest.mark.nightly
def test_a_probe_on_a_frozen_backbone(succeed, albert, tmp_path):
    before = load_file(albert / "model.safetensors")
    start = ("--model_name_or_path", albert, "--freeze_base_model", "true", "--output_dir", "frozen")
    once = ("--config", "{depth_objective: every_step}", "--task_name", "qnli")
    succeed("train", *start, *once, *QUICK, "--max_steps", "3")
    folder = tmp_path / "frozen"
    # a classifier of 16 features and 2 labels
    sentence = "Of its parameters 34 were trained, and the others kept as they were."
    assert sentence in read_card(folder).limitations
    after = load_file(folder / "model.safetensors")
    assert_close(after["model.embed_tokens.weight"], before["albert.embeddings.word_embeddings.weight"], tolerance=0.0)
    assert_close(after["model.pooler.weight"], before["albert.pooler.weight"], tolerance=0.0)
    data = ("--dataset-name", "nyu-mll/glue", "--config", "qnli")
    succeed("fit-probe", "frozen", *data, "--size", "4", "--in_place")
    assert config_of(folder)["exit_probe_size"] == 4
