"""Refused runs: one line says why, before the folder is claimed, and the folder is as it was."""

import re
import sys
from unittest import mock

import pytest
import torch
import yaml
from tiny_run import TINY
from transformers.trainer_utils import IntervalStrategy

from hf_recurrent.training.arguments import (
    RecurrentTrainingArguments,
)
from hf_recurrent.training.run import as_command, run_and_print
from hf_recurrent.training.trainer_run import TrainerRun


@pytest.fixture
def refuse(tmp_path):
    """Runs a recipe, with changes of which None removes a key, and flags -> the one line it is refused with."""

    def refuse(changes=(), *flags, output_dir=tmp_path / "new" / "run", text=""):
        recipe = {key: value for key, value in {**TINY, **dict(changes)}.items() if value is not None}
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe) + text)
        before = sorted(tmp_path.rglob("*"))
        command = ["run", str(path), "--output_dir", str(output_dir), *map(str, flags)]
        with mock.patch.object(sys, "argv", command), pytest.raises(SystemExit) as refused:
            as_command(run_and_print)
        assert sorted(tmp_path.rglob("*")) == before
        assert refused.value.code.startswith("error: ")
        assert len(refused.value.code.splitlines()) == 1
        return refused.value.code.removeprefix("error: ")

    return refuse


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({}, ["--config", "{halting: act}"], "config is {'halting': 'act', .* one of"),
        ({}, ["--config", "[1]"], r"config is '\[1\]': expected a mapping"),
        ({"learning_rate": float("nan")}, [], "learning_rate is nan: expected a number"),
        ({"dataset_id": "none"}, [], "dataset_id='none': expected owner/name"),
        ({"license": "MIT License"}, [], "license is 'MIT License': expected what the Hub calls a licence"),
        ({"fp16": True}, [], "fp16 is True, but training runs on a CPU: set it to False"),
        (
            {"metric_for_best_model": "acuracy"},
            [],
            "metric_for_best_model is 'acuracy': expected one of accuracy, .* did you mean accuracy or ",
        ),
        ({"lr_scheduler_kwargs": "banana"}, [], "lr_scheduler_kwargs is 'banana': expected a mapping"),
        ({"label_smoothing_factor": 0.1}, [], "label_smoothing_factor is 0.1: it would replace the model's loss"),
        (
            {"lr_schedule": "linear", "lr_scheduler_type": "cosine"},
            [],
            "lr_schedule is 'linear' and lr_scheduler_type 'cosine': both choose the schedule",
        ),
        ({"accelerator_config": {"banana": 1}}, [], "banana"),
        ({"benchmark_params": {"num_train": -3}}, [], "num_train=-3: expected"),
        ({"attn_implementation": "flash"}, [], "attn_implementation is 'flash': .*not supported"),
        ({"config": {"hidden_size": "x"}}, [], "config is {'hidden_size': 'x'}: .*hidden_size"),
        ({"config": {"dtype": "banana"}}, [], "config is {'dtype': 'banana'}: "),
        ({"model_type": None, "config": None}, ["--model_name_or_path", "/none"], "model_name_or_path='/none': there"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(refuse, monkeypatch, changes, flags, message):
    monkeypatch.setattr(TrainerRun, "prepare", lambda self: pytest.fail("it has claimed the folder"))

    assert re.search(message, refuse(changes, *flags))


@pytest.mark.parametrize("evaluates", ["epoch", IntervalStrategy.STEPS])
def test_the_best_checkpoint_is_that_of_least_loss_unless_a_metric_is_named(tmp_path, evaluates):
    saves = {"save_strategy": "best", "eval_strategy": evaluates, "load_best_model_at_end": True}
    args = RecurrentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **saves)
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


def test_a_missing_flash_attention_is_named(refuse, monkeypatch):
    monkeypatch.setattr("transformers.modeling_utils.is_flash_attn_2_available", lambda: False, raising=False)
    message = refuse({"attn_implementation": "flash_attention_2"})
    assert message.startswith("attn_implementation is 'flash_attention_2': ")


def test_a_kernel_with_wrong_gradients_is_left_out():
    torch.backends.cuda.enable_cudnn_sdp(True)
    TrainerRun(["listops_gut", "--output_dir", "unused", "--bf16", "false", "--use_cpu", "true"])
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_key_that_is_there_twice(refuse):
    assert "the key 'max_steps' is there twice" in refuse(text="max_steps: 3\n")
    assert "the key 'dropout' is there twice" in refuse({}, "--config", "{dropout: 0.1, dropout: 0.2}")


def test_another_architecture_is_not_fine_tuned(refuse, tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
    message = refuse({"model_type": None, "config": None}, "--model_name_or_path", tmp_path / "bert")
    assert "bert has model_type 'bert': expected one of xpos_transformer, ut, gut" in message


def test_places_where_no_folder_can_be(refuse, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "run"):
        assert f"output_dir {place} cannot be written" in refuse(output_dir=place)


def test_a_full_disk_claims_nothing(refuse, monkeypatch, tmp_path):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hf_recurrent.training.run_folder.write_json", full)
    assert "No space left on device" in refuse()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # the embeddings are too few for the tokenizer, known at the first step
        ({"config": {**TINY["config"], "vocab_size": 5}}, "`input_ids` holds ids from"),
        (
            {"lr_schedule": "cosine", "lr_scheduler_kwargs": {"banana": 1}},
            "lr_scheduler_kwargs {'banana': 1} is refused",
        ),
        ({"optim_args": "banana"}, "optim_args 'banana' is refused"),
        ({"metric_for_best_model": ""}, "metric_for_best_model is ''"),
        (
            {"config": {**TINY["config"], "halting": "none"}, "metric_for_best_model": "ponder_cost"},
            "metric_for_best_model is 'ponder_cost': this run is validated on validation, so expected one of accuracy, "
            "loss, ponder_steps",
        ),
        ({"resume_from_checkpoint": "/none"}, "resume_from_checkpoint /none"),
    ],
)
def test_a_run_that_fails_before_its_first_step_gives_the_folder_back(refuse, changes, message, tmp_path):
    assert message in refuse(changes)
    (tmp_path / "kept").mkdir()
    assert message in refuse(changes, output_dir=tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())


def test_an_interrupted_command_says_so_in_one_line(capsys):
    def main(argv):
        raise KeyboardInterrupt("a repository was left")

    with mock.patch.object(sys, "argv", ["run"]), pytest.raises(SystemExit) as ended:
        as_command(main)
    assert (ended.value.code, capsys.readouterr().err) == (130, "a repository was left\ninterrupted\n")
