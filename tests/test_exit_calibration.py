"""A calibration belongs to the weights that were calibrated: what else is loaded or saved says that it is void."""

import hashlib
import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, logging
from transformers.testing_utils import CaptureLogger

from hf_recurrent import GUTForCausalLM, NDRForSequenceClassification
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.models.base.exit_calibration import calibration_problem, weights_digest
from support.client import run_client
from support.families import BY_NAME, LANGUAGE_BY_NAME, make_batch, make_config, make_language_model, make_model

VOID = "its guarantee is void"


def calibrated(name, benchmark):
    """A tiny model with a calibration; warnings that name the same benchmark are given once."""
    model = make_model(BY_NAME[name])
    model.config.exit_calibration = {
        "benchmark": benchmark,
        "split": "validation",
        "fields": {"num_hidden_layers": model.config.num_hidden_layers},
        "weights": weights_digest(model),
    }
    return model


@pytest.fixture
def warned():
    """Runs a function -> the warnings that a module logs, and its result."""

    def run(function, *arguments, module="base.pretrained", **options):
        logger = logging.get_logger(f"hf_recurrent.models.{module}")
        logger.setLevel("WARNING")
        with CaptureLogger(logger) as found:
            result = function(*arguments, **options)
        return found.out, result

    return run


def stored(folder):
    return json.loads((folder / "config.json").read_text())["exit_calibration"]


def test_a_threshold_that_nobody_chose_is_told(warned):
    model, batch = make_model(BY_NAME["ndr"]), make_batch(BY_NAME["ndr"])
    logging.get_logger().warning_once.cache_clear()

    def told(**options):
        return warned(model, module="base.shared_block", **batch, **options)[0]

    found = told(exit_criterion="confidence")
    assert "exit_criterion='confidence' stops at its default threshold, 0.99, which may be far too low or high" in found
    for options in ({}, {"exit_criterion": "stability"}, {"exit_criterion": "entropy", "exit_threshold": 0.3}):
        assert told(**options) == ""
    model.config.exit_criterion, model.config.exit_threshold = "convergence", 0.2
    assert told() == ""
    assert "exit_criterion='agreement' stops at its default" in told(exit_criterion="agreement")
    model.config.exit_criterion = "entropy"
    assert "exit_criterion='entropy' stops at its default" in told(), "0.2 was of convergence"


def test_a_criterion_that_is_set_drops_the_settings_of_the_one_before():
    config = make_config(BY_NAME["ndr"])

    def settings():
        return config.exit_threshold, config.exit_patience

    config.exit_threshold, config.exit_patience = 0.4, 3
    config.exit_criterion = "entropy"
    assert settings() == (0.4, 3), "learned halting has none, so they are those of what comes"
    config.exit_criterion = "entropy"
    assert settings() == (0.4, 3)
    config.exit_criterion = "confidence"
    assert settings() == (None, None)
    config.update({"exit_criterion": "probe", "exit_threshold": 0.8})
    assert settings() == (0.8, None)
    config.exit_criterion = "learned"
    assert settings() == (None, None)


def test_digests_are_of_names_types_shapes_and_bytes():
    model = make_model(BY_NAME["ndr"])
    state, expected = model.state_dict(), hashlib.sha256()
    for name in sorted(state):
        expected.update(f"{name} torch.float32 {tuple(state[name].shape)}\n".encode())
        expected.update(state[name].numpy().tobytes())
    assert weights_digest(model) == expected.hexdigest()
    name = max(state, key=lambda name: state[name].dim())
    others = [
        {**state, name: state[name].reshape(-1)},
        {**state, name: state[name].to(torch.bfloat16)},
        {**state, name: -state[name]},
        {**{key: value for key, value in state.items() if key != name}, "renamed": state[name]},
    ]
    assert len({weights_digest(model), *(weights_digest(model, other) for other in others)}) == 5
    # nor do strides count
    assert weights_digest(model, {**state, name: state[name].T.contiguous().T}) == weights_digest(model)


def test_tied_weights_count_once():
    model = GUTForCausalLM(make_language_model(LANGUAGE_BY_NAME["gut"], tie_word_embeddings=True).config)
    state = model.state_dict()
    assert len(state) > len({tensor.data_ptr() for tensor in state.values()})
    # as where weights are gathered from several processes
    copied = {name: tensor.clone() for name, tensor in state.items()}
    saved = {name: tensor for name, tensor in state.items() if name not in model.all_tied_weights_keys}
    assert weights_digest(model) == weights_digest(model, copied) == weights_digest(model, saved)


def test_casting_is_said_when_it_is_loaded(tmp_path, warned):
    calibrated("ndr", "cast").save_pretrained(tmp_path)
    output, (model, report) = warned(
        AutoModelForSequenceClassification.from_pretrained, tmp_path, dtype=torch.bfloat16, output_loading_info=True
    )
    assert VOID in output
    assert "on cast (validation)" in output
    assert "the weights are others (fine-tuned, merged or cast)" in output
    assert not any(report.values())
    assert model.dtype == torch.bfloat16


def test_what_was_trained_further_is_saved_without_the_promise(tmp_path, warned):
    model = calibrated("ndr", "fine-tuned")
    with torch.no_grad():
        next(model.parameters()).mul_(1.001)
    output, _ = warned(model.save_pretrained, tmp_path)
    assert VOID in output
    assert stored(tmp_path) is None
    assert calibration_problem(model) is None


def test_weights_that_are_handed_over_are_judged(tmp_path, warned):
    model = calibrated("ndr", "gathered")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert warned(model.save_pretrained, tmp_path / "same", state_dict=state)[0] == ""
    assert stored(tmp_path / "same") is not None
    state = {name: tensor * 2 for name, tensor in state.items()}
    assert VOID in warned(model.save_pretrained, tmp_path / "other", state_dict=state)[0]
    assert stored(tmp_path / "other") is None


def test_settings_are_part_of_the_promise(tmp_path):
    calibrated("ndr", "settings").save_pretrained(tmp_path)
    model = NDRForSequenceClassification.from_pretrained(tmp_path)
    model.config.num_hidden_layers = 3
    assert "the config has num_hidden_layers=3 instead of 6" in calibration_problem(model)
    model.config.num_hidden_layers = 6
    assert calibration_problem(model) is None
    model.is_quantized = True
    assert "the weights are quantised" in calibration_problem(model)


CODE = """
import sys
import torch
from transformers import AutoModelForSequenceClassification

for dtype in (torch.float32, torch.float16):
    print("loading", dtype, file=sys.stderr)
    AutoModelForSequenceClassification.from_pretrained(sys.argv[1], dtype=dtype, trust_remote_code=True)
"""


@pytest.mark.slow
def test_checkpoints_check_themselves_without_the_package(tmp_path):
    folder = save_checkpoint(calibrated("ndr", "remote"), tmp_path / "checkpoint")
    environment = {"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    found = run_client(CODE, environment, folder, cwd=tmp_path, without_package=True)
    assert found.returncode == 0, found.stderr
    whole, cast = found.stderr.split("loading")[1:]
    assert VOID not in whole
    assert VOID in cast
