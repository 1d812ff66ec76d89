"""Config fields are checked by their declarations, those that transformers declares included."""

import json

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForSequenceClassification

from hf_recurrent import ARCHITECTURES, GUTConfig, SUTConfig
from hf_recurrent.hub.checkpoint import read_config
from hf_recurrent.models.config.fields import SIZE_LIMITS, declared_fields
from support.families import BY_NAME, make_model

CONFIG_ERRORS = (ValueError, StrictDataclassError)
WRONG = [
    ({"problem_type": "guess"}, "`problem_type` is 'guess': it must be one of 'regression', .*, or None"),
    ({"num_labels": 0}, "`num_labels` is 0: it must be at least 1"),
    ({"is_encoder_decoder": True}, "`is_encoder_decoder` is True: it must be False"),
    ({"output_hidden_states": "yes"}, "`output_hidden_states` is 'yes': it must be True or False, or None"),
    ({"initializer_range": 1e300}, "`initializer_range` is 1e.300: it must be a number that float32 can hold"),
    ({"depth_range": [1, "two"]}, r"`depth_range` is \[1, 'two'\]: each item must be a whole number, or None"),
    ({"per_layer_config": {0: {"dropout": 0.0}}}, "`per_layer_config` is .*: all layers have the same fields"),
    (
        {"hidden_size": torch.ones(2)},
        r"`hidden_size` is a Tensor of torch.float32 with shape \(2,\): it must be a whole",
    ),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_wrong_fields(fields, message):
    with pytest.raises(CONFIG_ERRORS, match=message):
        GUTConfig(**fields)


def test_two_stacks_are_declared_where_there_are_two():
    assert SUTConfig(is_encoder_decoder=True).is_encoder_decoder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_size_is_limited(architecture, monkeypatch):
    """By a limit that whoever trusts a config can raise."""
    config_class = ARCHITECTURES[architecture].config_class
    with pytest.raises(
        CONFIG_ERRORS, match=r"`num_hidden_layers` is 1000000000: it must be at most 10000, .*MAX_LAYERS"
    ):
        config_class(num_hidden_layers=10**9)
    monkeypatch.setenv("HF_RECURRENT_MAX_LAYERS", "20000")
    assert config_class(num_hidden_layers=15_000).num_hidden_layers == 15_000
    monkeypatch.setenv("HF_RECURRENT_MAX_LAYERS", "many")
    with pytest.raises(CONFIG_ERRORS, match="HF_RECURRENT_MAX_LAYERS='many': expected a whole number above 0"):
        config_class(num_hidden_layers=2)
    whole = [name for name, declared in declared_fields(config_class).items() if declared is int]
    assert whole == []
    assert min(SIZE_LIMITS.values()) == SIZE_LIMITS["LAYERS"]


def test_fields_of_a_loader_are_checked_with_the_stored_ones(tmp_path):
    make_model(BY_NAME["gut"], exit_criterion="convergence", exit_threshold=0.3).save_pretrained(tmp_path)
    load = AutoModelForSequenceClassification.from_pretrained
    assert load(tmp_path, exit_threshold=0.2).config.exit_criterion == "convergence"
    other = load(tmp_path, exit_criterion="confidence").config
    assert (other.exit_threshold, other.exit_patience) == (None, None), "they were those of convergence"
    assert load(tmp_path, exit_criterion="convergence").config.exit_threshold == 0.3
    given = load(tmp_path, exit_patience=2, exit_threshold=0.7, exit_criterion="confidence").config
    assert (given.exit_threshold, given.exit_patience) == (0.7, 2), "in any order"
    for fields, message in (
        ({"exit_criterion": "learned", "exit_threshold": 0.9}, "reads halting_threshold"),
        ({"pad_token_id": 999}, "`pad_token_id` is 999"),
    ):
        with pytest.raises(CONFIG_ERRORS, match=message):
            load(tmp_path, **fields)


@pytest.mark.parametrize("model_type", ["guess", None, ["gut"]])
def test_nobody_is_told_to_trust_code(tmp_path, model_type):
    """As transformers does for an architecture that it does not know."""
    config = {"model_type": model_type, "auto_map": {"AutoConfig": "configuration_guess.GuessConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"has model_type .*: expected one of xpos_transformer, ") as refused:
        read_config(tmp_path)
    assert "trust_remote_code" not in str(refused.value)
