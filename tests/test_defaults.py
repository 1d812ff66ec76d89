"""Configs without choices supervise every step, the papers' halting has names, and saved configs load as they were."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification
from transformers.configuration_utils import PreTrainedConfig

from hf_recurrent import ARCHITECTURES, GUTConfig
from support.families import TINY

ROOT = Path(__file__).parents[1]
SAVED = sorted(
    path.parent for folder in ("model_cards", "tests/old_checkpoints") for path in ROOT.glob(f"{folder}/*/config.json")
)
# what these configs meant, when the default was still the papers' halting, by fields that their files do not hold
MEANT = {
    "type_vocab_size": 0,
    "classifier": "mlp",
    "halting_threshold": 0.999,
    "exit_criterion": "learned",
    "exit_threshold": None,
    "exit_patience": None,
    "min_depth": 1,
    "exit_probe_size": 0,
    "exit_calibration": None,
    "depth_objective": "mixture",
    "step_weights": "linear",
    "depth_prior": "geometric",
    "depth_prior_rate": 0.2,
    "depth_prior_weight": 0.01,
    "depth_sampling": "fixed",
    "depth_range": None,
    "backprop_steps": None,
}
TRAINS_EVERY_STEP = ("ut", "gut", "gutlb", "sut", "albert_recurrent")
PAPERS = [(name, paper) for name, found in ARCHITECTURES.items() for paper in found.config_class.papers]
every_step = pytest.mark.parametrize("architecture", TRAINS_EVERY_STEP)


def default(architecture: str, **fields):
    return ARCHITECTURES[architecture].config_class(**fields)


@every_step
def test_a_config_without_choices_trains_every_step_and_runs_at_full_depth(architecture):
    config = default(
        architecture, **{name: TINY[name] for name in ("hidden_size", "num_attention_heads", "num_labels")}
    )
    assert (config.halting, config.depth_objective, config.exit_criterion) == ("none", "every_step", "learned")
    model = AutoModelForSequenceClassification.from_config(config)
    batch = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "labels": torch.tensor([1])}
    assert model.supervises_steps
    assert model.eval()(**batch).ponder_steps.unique().tolist() == [config.num_hidden_layers]


@pytest.mark.parametrize(
    ("architecture", "objective"), [("ndr", "mixture"), ("ouro_recurrent", "expected"), ("huginn_recurrent", "final")]
)
def test_other_architectures_keep_the_objective_of_their_paper(architecture, objective):
    assert default(architecture).depth_objective == objective


def test_a_choice_of_halting_chooses_the_objective():
    assert GUTConfig(halting="token").depth_objective == "mixture"
    assert GUTConfig(halting="token", depth_objective="expected").depth_objective == "expected"
    with pytest.raises(Exception, match="it trains no halting head, but halting is 'global'; set halting='none'"):
        GUTConfig(halting="global", depth_objective="every_step")


@pytest.mark.parametrize(("architecture", "paper"), PAPERS)
def test_the_halting_of_a_paper_has_its_name(architecture, paper):
    config = ARCHITECTURES[architecture].config_class.preset(paper, hidden_size=32)
    assert config.depth_objective == "mixture"
    assert config.halting == {"ut": "token", "sut": "token"}.get(architecture, "global")
    assert config.hidden_size == 32


def test_the_papers_are_those_of_the_recipes():
    assert {paper for _, paper in PAPERS} == {"dynamic_halt", "sparse_universal"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_saved_configs_hold_the_fields_of_halting(architecture, tmp_path):
    config = default(architecture, hidden_size=32)
    config.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored.keys() >= {"halting", "depth_objective"} & type(config).__dataclass_fields__.keys()
    loaded = AutoConfig.from_pretrained(tmp_path).to_dict()
    assert {name: value for name, value in loaded.items() if name != "_name_or_path"} == {
        name: value for name, value in config.to_dict().items() if name != "_name_or_path"
    }


@every_step
def test_saved_configs_of_before_mean_the_defaults_of_before(architecture, tmp_path):
    stored = {"model_type": architecture, "hidden_size": 32, "transformers_version": "5.17.0"}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    halting = {"ut": "token", "sut": "token", "albert_recurrent": "none"}.get(architecture, "global")
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert (loaded.halting, loaded.depth_objective) == (halting, "mixture")
    (tmp_path / "config.json").write_text(json.dumps({**stored, "halting": "none"}))
    assert AutoConfig.from_pretrained(tmp_path).depth_objective == "mixture"
    # what somebody writes by hand has today's
    (tmp_path / "config.json").write_text(json.dumps({"model_type": architecture, "hidden_size": 32}))
    assert AutoConfig.from_pretrained(tmp_path).depth_objective == "every_step"


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_saved_configs_load_as_they_were(folder):
    stored, config = json.loads((folder / "config.json").read_text()), AutoConfig.from_pretrained(folder)
    ours = {each.name for each in dataclasses.fields(config)} - {
        each.name for each in dataclasses.fields(PreTrainedConfig)
    }
    assert stored.keys() & ours
    loaded = config.to_dict()
    expected = {name: stored[name] if name in stored else MEANT[name] for name in ours}
    assert {name: loaded[name] for name in ours} == expected
