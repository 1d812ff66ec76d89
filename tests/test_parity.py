"""The reference implementation's recorded cases, reproduced: outputs, halting decisions and gradients."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file

from hf_recurrent.convert.dynamic_halt import ENCODERS
from hf_recurrent.models.base import base_model, shared_block
from hf_recurrent.models.base import chunk_model as chunk_loop
from hf_recurrent.models.depth import layouts, stick_breaking
from hf_recurrent.models.ops import memory
from hf_recurrent.models.ops.positions import rotate, xpos_rotations
from parity.reference import load_reference
from support.compare import assert_close
from support.golden import load_case

CASES = Path(__file__).parent / "parity" / "dynamic-halt"
NAMES = sorted(path.parent.name for path in CASES.glob("*/weights.safetensors"))
# recorded for every position, but meaningful at tokens only
PER_TOKEN = {"sequence", "block_in_0", "block_out_0"}
# recorded for every row of every chunk, but meaningful where the row has tokens in it
PER_CHUNK = {"halt_probs", "total_halt_probs", "update_flags", "n_layers_executed"}
OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 1e-4


def differences(name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Largest error of each output, and of each gradient relative to its largest value."""
    io, expected = load_case(CASES / name)
    actual = load_reference(CASES / name).run(io, gradients=bool(expected))
    assert {key[5:] for key in actual if key.startswith("grad.")} == expected.keys()
    inputs = {key for key in io if key.startswith("input_") or key in ("labels", "loss_mask", "full_sequence_ids")}
    outputs = {key: value for key, value in io.items() if key not in inputs}
    assert outputs.keys() <= actual.keys()
    mask = io["encoder_mask"].bool()
    errors = {}
    for key, value in outputs.items():
        ours = actual[key]
        assert ours.shape == value.shape, key
        if key in PER_TOKEN or (key == "logits" and value.dim() == 3):
            tokens = mask[:, : value.shape[1]]
            ours, value = ours[tokens], value[tokens]
        elif key in PER_CHUNK and "memory_per_chunk" in io:
            by_token = value.dim() == (3 if key == "n_layers_executed" else 4)
            cells = chunk_cells(mask, io["block_in_0"].shape[1], len(value), by_token)
            cells = cells.unsqueeze(1).expand_as(value) if key != "n_layers_executed" else cells
            ours, value = ours[cells], value[cells]
        elif value.dim() >= 2 and value.shape[-2:] == mask.shape:
            ours, value = ours[..., mask], value[..., mask]
        errors[key] = (ours.double() - value.double()).abs().max().item()
    relative = {
        key: ((actual[f"grad.{key}"] - value).abs().max() / value.abs().max().clamp_min(1e-12)).item()
        for key, value in expected.items()
    }
    return errors, relative


def chunk_cells(mask: torch.Tensor, size: int, num_chunks: int, by_token: bool) -> torch.Tensor:
    """Where there are tokens: (N, S) -> (chunks, N, size), or where a row has any: (chunks, N)."""
    padded = torch.nn.functional.pad(mask, (0, num_chunks * size - mask.shape[1]))
    cells = padded.unflatten(1, (num_chunks, size)).transpose(0, 1)
    return cells if by_token else cells.any(-1)


def architecture_of(name: str) -> str:
    return name.split("_")[0].replace("transformer", "xpos_transformer")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.architecture(architecture_of(name))) for name in NAMES]
)
def test_case_is_reproduced(name):
    errors, relative = differences(name)
    assert max(errors.values()) <= OUTPUT_TOLERANCE, errors
    assert max(relative.values(), default=0.0) <= GRADIENT_TOLERANCE, relative


def test_all_cases_are_here():
    assert len(NAMES) == 30
    cases = [json.loads((CASES / name / "case.json").read_text()) for name in NAMES]
    assert {case["framework"] for case in cases} == {"classifier", "sentence_pair", "flipflop"}
    assert {case["config"]["encoder_type"] for case in cases} == ENCODERS.keys()


def wrong_remainder(state):
    return state.weighted_steps + state.remaining * (state.steps + 1)


def without_carry(state, update, gate):
    return gate * update


def no_positions(positions, head_dim, scale_base, center):
    return xpos_rotations(torch.zeros_like(positions), head_dim, scale_base, 0)


def short_scale(positions, head_dim, scale_base, center):
    return xpos_rotations(positions, head_dim, 8, center)


def only_live(strategy, state, candidate):
    return torch.cat((state.hidden, torch.where(state.live[..., None], candidate, state.hidden)), dim=-1)


def own_state(states, mask, before=None):
    return states.float() * mask.cumsum(-1)[..., None]


def swapped(self, source):
    source = self.source_norm(source)
    return memory.KeyValue(self.heads(self.v_proj(source)), self.heads(self.k_proj(source)))


def as_long_as_asked(config, width):
    return config.chunk_size


# case, module and function to break, what to break it with
MUTATIONS = {
    "threshold": ("ut_classifier", shared_block, "check_halting_threshold", lambda threshold: 0.9),
    "remainder": ("gut_end_classifier", stick_breaking, "ponder_cost", wrong_remainder),
    "soft_state": ("ut_classifier", stick_breaking, "soft_state", lambda state: state.hidden),
    "gate": ("gut_end_classifier", torch, "lerp", without_carry),
    "positions": ("transformer_classifier", base_model, "xpos_rotations", no_positions),
    "xpos_scale": ("transformer_classifier", base_model, "xpos_rotations", short_scale),
    "halted_candidates": ("gut_end_flipflop", stick_breaking.StickBreaking, "features", only_live),
    "running_mean": ("gut_end_flipflop", layouts, "running_sums", own_state),
    "memory": ("tlb_classifier", memory.CrossAttention, "project", swapped),
    "chunk_size": ("tlb_classifier_balanced_chunks", chunk_loop, "chunk_size", as_long_as_asked),
    "chunk_positions": ("gutlb_classifier", chunk_loop, "xpos_rotations", no_positions),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_comparison_notices(mutation):
    """A comparison that cannot fail proves nothing: break one rule at a time."""
    name, module, function, replacement = MUTATIONS[mutation]
    tables = base_model.kept_column_rotations
    tables.cache_clear()
    with mock.patch.object(module, function, replacement):
        errors, _ = differences(name)
    tables.cache_clear()
    assert max(errors.values()) > 10 * OUTPUT_TOLERANCE


@pytest.mark.parametrize("unit", ["a", "b", "c"])
@pytest.mark.parametrize("center", [0, 5])
def test_xpos_scores(unit, center):
    """Rotated states depend on the centre, their scores do not."""
    io = load_case(CASES / "_extra_xpos")[0]
    options = json.loads((CASES / "_extra_xpos" / "case.json").read_text())["config"][unit]
    positions = io[f"{unit}_pos"].long()
    rotations = xpos_rotations(positions, options["head_dim"], options["scale_base"], center)
    query, key = (
        rotate(io[f"{unit}_{side}"].unsqueeze(-2), rotation).squeeze(-2)
        for side, rotation in zip("qk", rotations, strict=True)
    )
    scores = query @ key.transpose(-1, -2)
    torch.testing.assert_close(scores, io[f"{unit}_scores"], rtol=0, atol=1e-4)


def test_xpos_needs_no_position_for_itself():
    states = torch.randn(2, 3, 2, 8)
    query, key = xpos_rotations(torch.zeros(2, 3, dtype=torch.long), 8)
    torch.testing.assert_close(rotate(states, query), states)
    torch.testing.assert_close(rotate(states, key), states)


@pytest.fixture
def folder(tmp_path):
    for file in ("case.json", "weights.safetensors"):
        shutil.copy(CASES / "gut_end_classifier" / file, tmp_path / file)
    return tmp_path


def change_weights(folder, change):
    path = folder / "weights.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


def change_case(folder, **fields):
    path = folder / "case.json"
    case = json.loads(path.read_text())
    for name, value in fields.items():
        part, _, key = name.rpartition("__")
        (case[part] if part else case)[key] = value
    path.write_text(json.dumps(case))


WEIGHT = "encoder.TransformerLayer.FFN.0.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop(WEIGHT), "missing model.block.feed_forward.up_proj.weight"),
        (lambda weights: weights.pop("encoder.END"), "missing encoder.END"),
        (lambda weights: weights.update(stray=torch.ones(1)), "unexpected stray"),
        (
            lambda weights: weights.update({WEIGHT: weights[WEIGHT][:-1].clone()}),
            rf"{WEIGHT} is \(47, 32\), expected \(48, 32\)",
        ),
        (
            lambda weights: weights.update({k: v * 2 for k, v in weights.items() if k.endswith("xpos.scale")}),
            "xPos scale",
        ),
    ],
)
def test_weights_that_do_not_fit(folder, change, message):
    change_weights(folder, change)
    with pytest.raises(ValueError, match=message):
        load_reference(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"framework": "translation"}, "framework 'translation' is not one of"),
        ({"config__encoder_type": "RNNEncoder"}, "encoder_type is 'RNNEncoder'"),
        ({"config__causal": True}, "config.causal is True"),
        ({"config__embd_dim": 16}, "embd_dim is 16"),
        ({"config__heads": -1}, "num_attention_heads.* is -1"),
    ],
)
def test_configs_that_cannot_be_expressed(folder, fields, message):
    change_case(folder, **fields)
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        load_reference(folder)


@pytest.mark.parametrize("missing", ["case.json", "weights.safetensors"])
def test_missing_files(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no {missing}"):
        load_reference(folder)


def test_missing_inputs(folder):
    io = load_case(CASES / "gut_end_classifier")[0]
    io.pop("input_mask")
    with pytest.raises(ValueError, match="io lacks input_mask"):
        load_reference(folder).run(io)


def test_running_leaves_the_model_as_it_was(folder):
    reference = load_reference(folder)
    io = load_case(CASES / "gut_end_classifier")[0]
    first = reference.run(io)
    assert reference.model.config.compaction
    assert all(not module._forward_hooks for module in reference.model.modules())
    second = reference.run(io)
    assert_close(second, first)


def test_masked_memory_is_refused():
    """Where chunks are as long as the memory, the reference masks slots causally: better no result than another."""
    reference = load_reference(CASES / "tlb_flipflop")
    io = load_case(CASES / "tlb_flipflop")[0]
    reference.model.config.num_memory_slots = 5
    with pytest.raises(ValueError, match="chunks of 5 tokens for as many memory slots"):
        reference.run(io)
