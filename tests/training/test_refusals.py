"""Refused runs: one line says why, before the folder is claimed, and the folder is as it was."""

import re
import sys
from unittest import mock

import pytest
import torch
import yaml
from accelerate import ParallelismConfig
from tiny_run import TINY
from transformers.trainer_utils import IntervalStrategy

from hf_recurrent.training.arguments import (
    ARGUMENT_TYPES,
    DOCUMENT_ARGUMENT_TYPES,
    SEQ2SEQ_ARGUMENT_TYPES,
    RecurrentTrainingArguments,
)
from hf_recurrent.training.objectives import CLASSIFICATION, DOCUMENT_SCRIPT
from hf_recurrent.training.recipes import defaults_of
from hf_recurrent.training.run import as_command, run_and_print, run_class
from hf_recurrent.training.trainer_run import TrainerRun
from hf_recurrent.training.values import RANGES


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
        ({}, ["--config", "{a: ["], r"config is '\{a: \[', which is not valid YAML"),
        ({"thresholds": ["a"]}, [], r"thresholds is \['a'\], expected a list of float"),
        ({"gradient_accumulation_steps": 0}, [], "gradient_accumulation_steps is 0: expected an integer from 1"),
        ({"weight_decay": -1}, [], "weight_decay is -1: expected a finite number >= 0"),
        ({"num_train_epochs": -3}, [], "num_train_epochs is -3: expected a finite number > 0"),
        ({"max_steps": 0}, [], "max_steps is 0: expected an integer from 1"),
        ({"learning_rate": float("nan")}, [], "learning_rate is nan: expected a finite number"),
        ({"dataset_id": "none"}, [], "dataset_id='none': expected owner/name"),
        ({"license": "MIT License"}, [], "license is 'MIT License': expected what the Hub calls a licence"),
        ({"eval_strategy": "never"}, [], "eval_strategy is 'never', expected one of no, steps, epoch"),
        ({"fp16": True}, [], "fp16 is True, but training runs on a CPU: set it to False"),
        (
            {"eval_strategy": "no"},
            [],
            "load_best_model_at_end is True, but eval_strategy is 'no' and save_strategy 'steps': .*both to 'epoch'",
        ),
        ({"save_strategy": "epoch"}, [], "eval_strategy is 'steps' and save_strategy 'epoch'"),
        ({"eval_strategy": "no", "save_strategy": "no"}, [], "eval_strategy is 'no' and save_strategy 'no'"),
        (
            {"save_strategy": "best", "metric_for_best_model": None, "load_best_model_at_end": False},
            [],
            "save_strategy is 'best': set metric_for_best_model",
        ),
        (
            {"metric_for_best_model": "acuracy"},
            [],
            "metric_for_best_model is 'acuracy': expected one of accuracy, .* did you mean accuracy or ",
        ),
        ({"log_level": "loud"}, [], "log_level is 'loud', expected one of detail, debug"),
        ({"report_to": "nobody"}, [], "report_to is 'nobody': expected one of none, all"),
        ({"lr_scheduler_kwargs": "banana"}, [], "lr_scheduler_kwargs is 'banana': expected a mapping"),
        ({"label_names": ["x"]}, [], r"label_names is \['x'\]: these runs need None"),
        ({"save_only_model": True}, [], "save_only_model is True: these runs need False"),
        ({"label_smoothing_factor": 0.1}, [], "label_smoothing_factor is 0.1: it would replace the model's loss"),
        (
            {"lr_schedule": "linear", "lr_scheduler_type": "cosine"},
            [],
            "lr_schedule is 'linear' and lr_scheduler_type 'cosine': both choose the schedule",
        ),
        ({"accelerator_config": {"banana": 1}}, [], "accelerator_config is {'banana': 1}: .*banana"),
        ({"benchmark_params": {"num_train": -3}}, [], "num_train=-3: expected"),
        ({"benchmark": ["listops"]}, [], r"benchmark is \['listops'\], expected str"),
        ({"attn_implementation": "flash"}, [], "attn_implementation is 'flash': .*not supported"),
        ({"config": {"hidden_size": "x"}}, [], "config is {'hidden_size': 'x'}: .*hidden_size"),
        ({"config": {"dtype": "banana"}}, [], "config is {'dtype': 'banana'}: "),
        ({"model_type": None, "config": None}, ["--model_name_or_path", "/none"], "model_name_or_path='/none': there"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(refuse, monkeypatch, changes, flags, message):
    monkeypatch.setattr(TrainerRun, "prepare", lambda self: pytest.fail("it has claimed the folder"))

    assert re.search(message, refuse(changes, *flags))


@pytest.mark.parametrize("name", ["bf16", "bf16_full_eval"])
def test_a_missing_gpu_is_named(refuse, monkeypatch, name):
    monkeypatch.setattr("hf_recurrent.training.trainer_checks.is_torch_bf16_gpu_available", lambda: False)
    message = refuse({"use_cpu": False, name: True})
    assert message.startswith(f"{name} is True, but no GPU here computes in bfloat16: set it to False, or use_cpu to")


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
        assert f"output_dir is {str(place)!r}, which cannot be written" in refuse(output_dir=place)


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


@pytest.mark.parametrize("types", [ARGUMENT_TYPES, SEQ2SEQ_ARGUMENT_TYPES, DOCUMENT_ARGUMENT_TYPES])
def test_every_number_of_a_recipe_has_a_range(types):
    from typing import get_args, get_type_hints

    hints = {name: hint for cls in types for name, hint in get_type_hints(cls).items()}
    numbers = {name for name in defaults_of(types) if {int, float, list[float]} & {hints[name], *get_args(hints[name])}}
    assert numbers <= RANGES.keys()
    for name in numbers:
        value = defaults_of(types)[name]
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            RANGES[name](item)


def test_an_interrupted_command_says_so_in_one_line(capsys):
    def main(argv):
        raise KeyboardInterrupt("a repository was left")

    with mock.patch.object(sys, "argv", ["run"]), pytest.raises(SystemExit) as ended:
        as_command(main)
    assert (ended.value.code, capsys.readouterr().err) == (130, "a repository was left\ninterrupted\n")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "the launcher asks for DeepSpeed, .* set distributed_type to FSDP"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "the launcher asks for Megatron-LM, .* set distributed_type to FSDP"),
        ({"PARALLELISM_CONFIG_TP_SIZE": "2"}, "tp_size is 2: the models have no plan of tensor parallelism"),
        ({"PARALLELISM_CONFIG_CP_SIZE": "4"}, "cp_size is 4: a state goes from chunk to chunk"),
        ({"PARALLELISM_CONFIG_SP_SIZE": "2"}, "sp_size is 2: a state goes from chunk to chunk"),
    ],
)
@pytest.mark.parametrize("script", [CLASSIFICATION.script, DOCUMENT_SCRIPT])
def test_engines_that_runs_do_not_take_are_refused(tmp_path, monkeypatch, variables, message, script):
    for name, value in {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        run_class(script)(["--output_dir", str(tmp_path / "run")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"deepspeed": "zero2.json"}, "deepspeed is 'zero2.json', which these runs do not take"),
        ({"parallelism_config": ParallelismConfig(cp_size=2)}, "cp_size is 2: a state goes from chunk to chunk"),
    ],
)
def test_settings_that_ask_for_such_engines_are_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        RecurrentTrainingArguments(output_dir=str(tmp_path), **settings)
