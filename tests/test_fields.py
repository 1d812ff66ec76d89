"""Config fields are checked by their declarations, those that transformers declares included."""

import dataclasses
import inspect
import json
import re
from typing import Literal, get_args

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForSequenceClassification

from hf_recurrent import ARCHITECTURES, GUTConfig, SUTConfig
from hf_recurrent.hub.checkpoint import read_config
from hf_recurrent.models.config.fields import PROPERTIES, SIZE_LIMITS, declarations
from support.families import BY_NAME, make_model

CONFIG_ERRORS = (ValueError, StrictDataclassError)
WRONG = [
    ({"problem_type": "guess"}, "`problem_type` is 'guess': it must be 'regression' or .* or None"),
    ({"num_labels": 0}, "`num_labels` is 0: it must be at least 1"),
    ({"is_encoder_decoder": True}, "`is_encoder_decoder` is True: it must be False"),
    ({"output_hidden_states": "yes"}, "`output_hidden_states` is 'yes': it must be bool or None"),
    ({"initializer_range": 1e300}, "`initializer_range` is 1e.300: it must be a finite number that float32 can hold"),
    ({"depth_range": [1, "two"]}, r"`depth_range` is \[1, 'two'\]: it must be list\[int\] or .* or None"),
    ({"per_layer_config": {0: {"dropout": 0.0}}}, "`per_layer_config` is .*: all layers have the same fields"),
    ({"depth_range": [0, 2]}, r"`depth_range` is \[0, 2\]: it must be at least 1"),
    ({"hidden_size": torch.ones(2)}, r"`hidden_size` is a Tensor of torch.float32 with shape \(2,\): it must be int"),
    ({"hidden_size": True}, "`hidden_size` is True: it must be int"),
    ({"dropout": True}, "`dropout` is True: it must be float"),
    ({"dropout": float("nan")}, r"`dropout` is nan: it must be in \[0, 1\)"),
    ({"ponder_loss_weight": float("inf")}, "`ponder_loss_weight` is inf: it must be a finite number"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_wrong_fields(fields, message):
    """In a new config, and when they are set later."""
    with pytest.raises(CONFIG_ERRORS, match=message):
        GUTConfig(**fields)
    config = GUTConfig()
    with pytest.raises(CONFIG_ERRORS, match=message):
        setattr(config, *fields.popitem())


def test_a_whole_number_does_for_a_float():
    config = GUTConfig(dropout=0, halting_threshold=1)
    assert config.to_dict()["dropout"] == config.dropout == 0
    assert GUTConfig.from_dict(config.to_dict()).halting_threshold == 1


def test_a_subclass_keeps_ranges_and_descriptions():
    class Mine(GUTConfig):
        """My config.

        Args:
            hidden_size: my width.
            mine: my field.
        """

        hidden_size: int = 32
        dropout: float = 0.2
        mine: bool = False

    for fields, message in (
        ({"hidden_size": 0}, "`hidden_size` is 0: it must be at least 1"),
        ({"dropout": 1}, r"`dropout` is 1: it must be in \[0, 1\)"),
        ({"mine": 1}, "`mine` is 1: it must be bool"),
    ):
        with pytest.raises(CONFIG_ERRORS, match=message):
            Mine(**fields)
    assert "    hidden_size (int, at least 1, default 32):\n        my width.\n" in Mine.__doc__
    assert "    mine (bool, default False):\n        my field.\n" in Mine.__doc__
    assert "    dropout (float, in [0, 1), default 0.2):\n        dropout probability" in Mine.__doc__


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_docstrings_describe_every_field_once(architecture):
    config_class = ARCHITECTURES[architecture].config_class
    section = config_class.__doc__.partition("\nArgs:\n")[2]
    found = re.findall(r"^    (\w+) \(.*, default (.*)\):\n        (.*)$", section, flags=re.MULTILINE)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    assert sorted(name for name, _, _ in found) == sorted({*fields, *PROPERTIES})
    assert all(meaning.strip() for _, _, meaning in found)
    assert all(default == repr(fields[name].default) for name, default, _ in found if name in fields)


def test_signatures_have_plain_types():
    parameters = inspect.signature(GUTConfig).parameters
    expected = {
        "hidden_size": (int, 512),
        "dropout": (float, 0.1),
        "pooling": (Literal["mean", "end", "cls"], "end"),
        "exit_patience": (int | None, None),
    }
    for name, (kind, default) in expected.items():
        assert (parameters[name].annotation, parameters[name].default) == (kind, default)


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
    for name, (kind, allowed, _) in declarations(config_class).items():
        assert int not in (kind, *get_args(kind)) or allowed.limit, name
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
