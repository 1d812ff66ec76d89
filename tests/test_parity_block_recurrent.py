"""The Block-Recurrent Transformer's recorded segments, reproduced: outputs, caches and gradients, with boundaries."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_recurrent.models.block_recurrent import (
    blocks,
    external_memory,
    layer,
    modeling_block_recurrent,
    scaled_attention,
    state_cell,
)
from hf_recurrent.models.ops.positions import t5_buckets
from parity.reference import load_reference
from support.golden import load_case

pytestmark = pytest.mark.architecture("block_recurrent")

CASES = Path(__file__).parent / "parity" / "block-recurrent"
NAMES = sorted(path.parent.name for path in CASES.glob("*/weights.safetensors"))
INPUTS = {"input_ids", "start_of_sequence", "target_ids", "loss_mask"}
STATE_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 5e-5


def differences(name: str, implementation: str = "eager") -> tuple[dict[str, float], dict[str, float]]:
    """Largest error of each output, relative to values above one, and of each gradient relative to its largest."""
    io, expected = load_case(CASES / name)
    reference = load_reference(CASES / name)
    reference.model.set_attn_implementation(implementation)
    actual = reference.run(io, gradients=bool(expected))
    outputs = {key: value for key, value in io.items() if key.split(".")[1] not in INPUTS}
    assert outputs.keys() <= actual.keys()
    assert {key for key in actual if key.startswith("grad.")} == {f"grad.{key}" for key in expected}
    errors = {}
    for key, value in outputs.items():
        assert actual[key].shape == value.shape, key
        error = (actual[key].double() - value.double()).abs().max()
        errors[key] = (error / value.abs().max().clamp_min(1.0)).item()
    relative = {
        key: ((actual[f"grad.{key}"] - value).abs().max() / value.abs().max().clamp_min(1e-12)).item()
        for key, value in expected.items()
    }
    return errors, relative


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", NAMES)
def test_case_is_reproduced(name, implementation):
    errors, relative = differences(name, implementation)
    assert max(errors.values()) <= STATE_TOLERANCE, errors
    assert max(relative.values(), default=0.0) <= GRADIENT_TOLERANCE, relative


def test_all_cases_are_here():
    assert len(NAMES) == 20
    cases = [json.loads((CASES / name / "case.json").read_text())["config"] for name in NAMES]
    gates = {(case["gate_type"], case["gate_config"]) for case in cases if not case["feedback"]}
    kinds = {(gate, update) for gate in ("fixed", "lstm") for update in ("dual", "single", "skip")}
    assert gates == kinds | {(None, None)}
    assert sum(case["feedback"] for case in cases) == 3


def test_position_buckets_and_windows():
    io = load_case(CASES / "unit_positions")[0]
    assert torch.equal(t5_buckets(io["distance"].long(), 32, 128), io["bucket"].long())
    distances = torch.arange(1.0, 9.0).expand(2, -1)
    for bias in scaled_attention.window_bias(distances, 8)[0][0]:
        assert torch.equal(bias.isfinite(), io["mask"])
        assert torch.equal(-bias[io["mask"]], io["relative_positions"][io["mask"]].float())


def after_the_step(self, *args):
    """Tokens attend to the states after their own block."""
    _, states, forgotten = run_states(self, *args)
    return [self.state_cell.keys_values({"state": state}) for state in states], states, forgotten


def own_block_only(self, tokens, block):
    return window_of(self, tokens, block)[:, self.width :]


def including_itself(by_distance, num_queries):
    bias = window_bias(by_distance, num_queries)[0].clone()
    here = torch.arange(num_queries)
    bias[..., here, here + by_distance.shape[-1]] = 0.0
    return (bias,)


def of_the_first_block(self, past, number):
    """All blocks attend to the states before the first."""
    if not hasattr(self, "first_states"):
        self.first_states = state_keys_values(self, past, number)
    return self.first_states


run_states, state_keys_values = (
    getattr(layer.BlockRecurrentLayer, name) for name in ("run_states", "state_keys_values")
)
window_of, window_bias = blocks.RaggedBlocks.window, scaled_attention.window_bias
gate, nearest_slots = state_cell.StateGate.forward, external_memory.nearest_slots
# case, object and function to break, what to break it with
MUTATIONS = {
    "own token": ("slide", layer, "window_bias", including_itself),
    "new state": ("rec_fixed_skip", layer.BlockRecurrentLayer, "run_states", after_the_step),
    "one block": ("rec_fixed_dual", blocks.RaggedBlocks, "window", own_block_only),
    "no ids": ("rec_lstm_skip", state_cell.StateCell, "add_ids", lambda self, state: self.norm(state)),
    "gate": (
        "rec_fixed_single",
        state_cell.StateGate,
        "forward",
        lambda self, state, inputs: gate(self, gate(self, state, inputs)[0], inputs),
    ),
    "signed scales": ("xl", scaled_attention.ScaledAttention, "factors", lambda self, scales: scales()),
    "no feedback": ("feedback_fixed_skip", layer.BlockRecurrentLayer, "state_keys_values", of_the_first_block),
    "exact": (
        "memorizing_bucketed",
        external_memory,
        "nearest_slots",
        lambda scores, occupied, count, exact: nearest_slots(scores, occupied, count, True),
    ),
    "no boundary": (
        "rec_lstm_dual",
        modeling_block_recurrent.BlockRecurrentModel,
        "check_start",
        lambda *_: None,
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_comparison_notices(mutation):
    name, where, function, replacement = MUTATIONS[mutation]
    with mock.patch.object(where, function, replacement):
        errors, _ = differences(name)
    assert max(errors.values()) > 10 * STATE_TOLERANCE


def test_release_of_2022(tmp_path):
    """Logits by another root, scales with their sign: what the later release gives, converted."""
    case = json.loads((CASES / "rec_fixed_skip" / "case.json").read_text())
    weights = load_file(CASES / "rec_fixed_skip" / "weights.safetensors")
    io = load_case(CASES / "rec_fixed_skip")[0]
    case["commit"] = "e8af054"
    case["config"]["logits_divisor"] = "sqrt(vocab_size)"
    (tmp_path / "case.json").write_text(json.dumps(case))
    save_file(
        {n: t.abs() if "attention_scale" in n else t for n, t in weights.items()}, tmp_path / "weights.safetensors"
    )
    reference = load_reference(tmp_path)
    assert reference.model.config.attention_scale == "signed"
    logits = reference.run(io)["seg2.logits"] * (23 / 32) ** 0.5
    torch.testing.assert_close(logits, io["seg2.logits"], atol=1e-5, rtol=0)
    save_file(weights, tmp_path / "weights.safetensors")
    signed = load_reference(tmp_path).run(io)["seg2.logits"] * (23 / 32) ** 0.5
    assert (signed - io["seg2.logits"]).abs().max() > 1e-2


@pytest.fixture
def folder(tmp_path):
    for file in ("case.json", "weights.safetensors"):
        shutil.copy(CASES / "rec_lstm_single" / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: weights.pop("transformer1.recurrent_initial_state"),
            "missing model.layers.1.state_cell.initial_state.weight",
        ),
        (lambda weights: weights.update(stray=torch.ones(1)), "unexpected stray"),
        (
            lambda weights: weights.update({"transformer3.tbase.attention_scale2": torch.ones(2)}),
            "unexpected transformer3.tbase.attention_scale2",
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
        ({"position_bias": "rope"}, "config.position_bias is 'rope': expected 't5'"),
        ({"logits_divisor": "none"}, r"config.logits_divisor is 'none': expected one of 'sqrt\(embedding_size\)'"),
        ({"gate_type": "full"}, "does not describe a valid model"),
        ({"recurrent_layers": [7]}, "layers are numbered from -3 to 2"),
    ],
)
def test_configs_that_cannot_be_expressed(folder, fields, message):
    case = json.loads((folder / "case.json").read_text())
    case["config"] |= fields
    (folder / "case.json").write_text(json.dumps(case))
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_reference(folder)


def test_missing_inputs():
    io = load_case(CASES / "xl")[0]
    io.pop("seg3.start_of_sequence")
    with pytest.raises(ValueError, match=r"io lacks seg3\.start_of_sequence"):
        load_reference(CASES / "xl").run(io)
