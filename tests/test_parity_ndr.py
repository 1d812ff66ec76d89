"""The Neural Data Router's recorded cases, reproduced: outputs of every step, halting decisions and gradients."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_recurrent.models.depth.act import ACT
from hf_recurrent.models.ndr import attention as ndr_attention
from parity.reference import load_reference
from support.compare import assert_close
from support.golden import load_case

pytestmark = pytest.mark.architecture("ndr")

CASES = Path(__file__).parent / "parity" / "neural-data-router"
NAMES = sorted(path.parent.name for path in CASES.glob("*/weights.safetensors"))
INPUTS = {"input_ids", "lengths", "labels"}
LOGITS_TOLERANCE, STATE_TOLERANCE, GRADIENT_TOLERANCE = 2e-6, 1e-5, 1e-4


def at_tokens(name: str, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values of tokens; what is recorded of padding means nothing."""
    if name == "attention":
        return values[mask[None, :, None, :, None].expand_as(values)]
    for first in range(2):
        if values.shape[first : first + 2] == mask.shape:
            return values[mask] if first == 0 else values[:, mask]
    return values


def differences(name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Largest error of each output, and of each gradient relative to its largest value."""
    io, expected = load_case(CASES / name)
    actual = load_reference(CASES / name).run(io, gradients=bool(expected))
    outputs = {key: value for key, value in io.items() if key not in INPUTS}
    assert outputs.keys() | {f"grad.{key}" for key in expected} == actual.keys()
    mask = io["attention_mask"].bool()
    errors = {}
    for key, value in outputs.items():
        assert actual[key].shape == value.shape, key
        ours, theirs = (at_tokens(key, tensor.double(), mask) for tensor in (actual[key], value))
        errors[key] = (ours - theirs).abs().max().item()
    relative = {
        key: ((actual[f"grad.{key}"] - value).abs().max() / value.abs().max().clamp_min(1e-12)).item()
        for key, value in expected.items()
    }
    return errors, relative


@pytest.mark.parametrize("name", NAMES)
def test_case_is_reproduced(name):
    errors, relative = differences(name)
    assert errors["logits"] <= LOGITS_TOLERANCE
    assert max(errors.values()) <= STATE_TOLERANCE, errors
    assert max(relative.values(), default=0.0) <= GRADIENT_TOLERANCE, relative


def test_all_cases_are_here():
    assert len(NAMES) == 23
    cases = [json.loads((CASES / name / "case.json").read_text())["config"] for name in NAMES]
    assert {case["positions"] for case in cases} == {
        "absolute_sinusoidal",
        "relative",
        "absrel_gated",
        "geometric+direction",
    }
    assert {case.get("act_variant") for case in cases} == {None, "A", "U"}


def after_the_step(strategy, state, candidate, step):
    return state._replace(hidden=candidate, output=state.output + state.weights[..., None] * state.hidden)


def as_graves(strategy, state, candidate, step):
    strategy.universal = False
    return act_commit(strategy, state, candidate, step)


def never_forced(strategy, state, features, step):
    return act_decide(strategy, state, features, 0)


def swapped(content, value, left, right, *options):
    return geometric(content, value, right, left, *options)


act_commit, act_decide, geometric = ACT.commit, ACT.decide, ndr_attention.attend_nearest
by_distance, lerp = ndr_attention.by_distance, torch.lerp
# case, module and function to break, what to break it with
MUTATIONS = {
    "distance": (
        "02_rel",
        ndr_attention,
        "by_distance",
        lambda scores, num_keys: by_distance(scores.flip(-1), num_keys),
    ),
    "direction": ("06_ndr", ndr_attention, "attend_nearest", swapped),
    "gate": ("06_ndr", torch, "lerp", lambda start, end, weight: lerp(start, end, weight**2)),
    "universal": ("07_act_u_rel", ACT, "commit", as_graves),
    "weights": ("07_act_a_rel", ACT, "commit", after_the_step),
    "forced": ("07_act_a_rel", ACT, "decide", never_forced),
    "places": ("04_absrel_gate", torch, "lerp", lambda start, end, weight: start + (1 - weight) * (end - start)),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_comparison_notices(mutation):
    name, module, function, replacement = MUTATIONS[mutation]
    with mock.patch.object(module, function, replacement):
        errors, _ = differences(name)
    assert max(errors.values()) > 10 * STATE_TOLERANCE


@pytest.fixture
def folder(tmp_path):
    for file in ("case.json", "weights.safetensors"):
        shutil.copy(CASES / "07_act_a_geom" / file, tmp_path / file)
    return tmp_path


KEYS_VALUES = "trafo.layer.self_attn.data_to_kv.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("trafo.p_map.bias"), "missing model.halting_head.proj.bias"),
        (lambda weights: weights.pop(KEYS_VALUES), "missing model.block.attention.k_proj.weight"),
        (lambda weights: weights.update(stray=torch.ones(1)), "unexpected stray"),
        (
            lambda weights: weights.update({KEYS_VALUES: weights[KEYS_VALUES][:-1].clone()}),
            r"trafo.layer.self_attn.data_to_v.weight is \(31, 32\), expected \(32, 32\)",
        ),
    ],
)
def test_weights_that_do_not_fit(folder, change, message):
    weights = load_file(folder / "weights.safetensors")
    change(weights)
    save_file(weights, folder / "weights.safetensors")
    with pytest.raises(ValueError, match=message):
        load_reference(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positions": "rotary"}, "config.positions is 'rotary': expected one of 'absolute_sinusoidal'"),
        ({"act_variant": "B"}, "config.act_variant is 'B'"),
        ({"activation": "gelu"}, "config.activation is 'gelu': expected 'relu'"),
        ({"copy_gate": True}, "does not describe a valid model.*set copy_gate=False"),
    ],
)
def test_configs_that_cannot_be_expressed(folder, fields, message):
    case = json.loads((folder / "case.json").read_text())
    case["config"] |= fields
    (folder / "case.json").write_text(json.dumps(case))
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_reference(folder)


def test_missing_inputs():
    io = load_case(CASES / "06_ndr")[0]
    io.pop("lengths")
    with pytest.raises(ValueError, match="io lacks lengths"):
        load_reference(CASES / "06_ndr").run(io)


def test_running_leaves_the_model_as_it_was():
    reference = load_reference(CASES / "01_transformer")
    io = load_case(CASES / "01_transformer")[0]
    first = reference.run(io)
    assert reference.model.config._attn_implementation == "sdpa"
    second = reference.run(io)
    assert_close(second, first)
