"""The Sparse Universal Transformer's recorded cases, reproduced: routing, attention, halting, losses and gradients."""

import json
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from hf_recurrent.models.depth.halting import FixedDepth
from hf_recurrent.models.depth.loop import DepthOptions
from hf_recurrent.models.ops.attention import KeyValue
from hf_recurrent.models.sut import block as sut_block
from hf_recurrent.models.sut import depth as sut_depth
from hf_recurrent.models.sut import experts as sut_experts
from hf_recurrent.models.sut import modeling_sut
from hf_recurrent.models.sut.configuration_sut import SUTConfig
from hf_recurrent.models.sut.depth import SparseLayout
from hf_recurrent.models.sut.experts import FeedForwardExperts
from hf_recurrent.models.sut.halting import TokenStickBreaking
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from hf_recurrent.models.sut.routed_attention import PositionBias, RoutedAttention
from hf_recurrent.models.sut.routing import Router, RouterStatistics
from parity.reference import load_reference
from parity.sparse_universal import statistics
from support.golden import load_case

pytestmark = pytest.mark.architecture("sut")

CASES = Path(__file__).parent / "parity" / "sparse-universal-transformer"
WHOLE = sorted(
    path.parent.name
    for path in CASES.glob("*/case.json")
    if json.loads(path.read_text())["config"]["kind"] not in ("att", "moe")
)
INPUTS = {
    "src_tokens",
    "src_padding_mask",
    "prev_output_tokens",
    "target",
    "tgt_padding_mask",
    "loss_weights",
    # of the recording itself; beams are compared below
    "check.total_from_parts_minus_official",
    "check.max_abs_full_minus_steps",
    "beam_tokens",
    "beam_scores",
}
TOLERANCE, GRADIENT_TOLERANCE = 2e-5, 1e-4


def at_tokens(name: str, tensor: torch.Tensor, io: dict[str, torch.Tensor]) -> torch.Tensor:
    """A recorded (..., B, S, ...) without what stands at padding, which nothing reads."""
    of_target = name.split("/")[-1].startswith(("dec", "logits"))
    padding = io["tgt_padding_mask" if of_target else "src_padding_mask"]
    for axis in range(tensor.dim() - 1):
        if tensor.shape[axis : axis + 2] == padding.shape:
            kept = ~padding.reshape(*[1] * axis, *padding.shape, *[1] * (tensor.dim() - axis - 2))
            return torch.where(kept, tensor, 0)
    return tensor


def error(name: str, actual: torch.Tensor, expected: torch.Tensor, io: dict[str, torch.Tensor]) -> float:
    """Largest difference, relative to the largest value where that is above one."""
    assert actual.shape == expected.shape, name
    if name.endswith(".idx"):
        # the ids of tokens that were not routed are arbitrary
        routed = io[name.rsplit(".", 1)[0] + ".gates"].sum(-1, keepdim=True) > 0
        return float(((actual != expected) & routed).any())
    difference = (at_tokens(name, actual.double(), io) - at_tokens(name, expected.double(), io)).abs().max()
    return (difference / expected.double().abs().max().clamp_min(1.0)).item()


def differences(name: str, implementation: str = "eager") -> tuple[dict[str, float], dict[str, float]]:
    io, expected = load_case(CASES / name)
    reference = load_reference(CASES / name)
    reference.model.set_attn_implementation(implementation)
    reference.model.set_experts_implementation("eager" if implementation == "eager" else "grouped_mm")
    actual = reference.run(io, gradients=bool(expected))
    outputs = {key: value for key, value in io.items() if key not in INPUTS}
    assert outputs.keys() <= actual.keys()
    assert expected.keys() <= {key.removeprefix("grad.") for key in actual}
    relative = {
        key: ((actual[f"grad.{key}"] - value).abs().max() / value.abs().max().clamp_min(1e-5)).item()
        for key, value in expected.items()
    }
    return {key: error(key, actual[key], value, io) for key, value in outputs.items()}, relative


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", WHOLE)
def test_case_is_reproduced(name, implementation, monkeypatch):
    if implementation == "eager":
        # without products of all experts with all tokens
        monkeypatch.setattr(sut_experts, "MAX_SPARE_PRODUCTS", -1)
    errors, relative = differences(name, implementation)
    assert max(errors.values()) <= TOLERANCE, {key: value for key, value in errors.items() if value > TOLERANCE}
    assert max(relative.values(), default=0.0) <= GRADIENT_TOLERANCE, relative


def test_all_cases_are_here():
    assert len(WHOLE) == 8
    assert len(list(CASES.iterdir())) == 12


def test_beams_are_the_references():
    io = load_case(CASES / "encdec_incremental")[0]
    reference = load_reference(CASES / "encdec_incremental")
    # theirs never ends before the first token
    beams = reference.model.generate(
        io["src_tokens"],
        attention_mask=~io["src_padding_mask"],
        num_beams=3,
        num_return_sequences=3,
        length_penalty=0.4,
        min_new_tokens=2,
        max_new_tokens=13,
        suppress_tokens=[1],
        output_scores=True,
        return_dict_in_generate=True,
    )
    # the two best of each row end by themselves; of the third theirs enforces the end
    best, expected = beams.sequences.unflatten(0, (-1, 3))[:, :2, 1:], io["beam_tokens"][:, :2]
    width = best.shape[-1]
    assert torch.equal(best, expected[..., :width])
    scores = beams.sequences_scores.unflatten(0, (-1, 3))[:, :2]
    torch.testing.assert_close(scores, io["beam_scores"][:, :2], atol=1e-4, rtol=0)


def config_of(name: str) -> SUTConfig:
    theirs = json.loads((CASES / name / "case.json").read_text())["config"]
    return SUTConfig(
        vocab_size=17,
        hidden_size=theirs["d_model"],
        attention_experts=theirs["attn_num_experts"],
        attention_experts_per_token=theirs["attn_top_k"],
        num_attention_heads=theirs["heads_per_expert"],
        head_dim=theirs["head_dim"],
        feed_forward_experts=theirs["ffd_num_experts"],
        feed_forward_experts_per_token=theirs["ffd_top_k"],
        intermediate_size=theirs["ffd_expert_dim"],
        relative_window=theirs["max_positions_const"] - 1,
    )


def fill_router(router: Router, weights: dict[str, torch.Tensor], prefix: str) -> None:
    router.load_state_dict(
        {
            "hidden.weight": weights[prefix + "w_gate.0.weight"],
            "hidden.bias": weights[prefix + "w_gate.0.bias"],
            "output.weight": weights[prefix + "w_gate.3.weight"],
        }
    )


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("spare", [-1, 1 << 30], ids=["sorted", "all experts"])
def test_mixture_of_feed_forward_networks(implementation, spare, monkeypatch):
    monkeypatch.setattr(sut_experts, "MAX_SPARE_PRODUCTS", spare)
    io, weights = (load_file(CASES / "moe_ffd" / f"{name}.safetensors") for name in ("io", "weights"))
    config = config_of("moe_ffd")
    config._experts_implementation = implementation
    experts = FeedForwardExperts(config).eval()
    names = {"up_proj": "experts.w", "up_proj_bias": "experts.b"}
    names |= {"down_proj": "output_experts.w", "down_proj_bias": "output_experts.b"}
    experts.load_state_dict({ours: weights[theirs] for ours, theirs in names.items()})
    router = Router(config.hidden_size, 4, 2, 0.0).eval()
    fill_router(router, weights, "")
    total = None
    for call, inputs, mask in (("call1", "x1", "mask_binary"), ("call2", "x2", "mask_soft")):
        states, token_weights = io[inputs].flatten(0, 1), io[mask].flatten()
        index, gates, sums = router(states, token_weights, statistics=True)
        result = experts(states, index, gates)
        torch.testing.assert_close(result.unflatten(0, (3, 10)), io[f"{call}.y"], atol=2e-6, rtol=0)
        routed = token_weights > 0
        assert torch.equal(index[routed], io[f"{call}.topk_idx"].flatten(0, 1)[routed])
        total = sums if total is None else RouterStatistics(*map(torch.add, total, sums))
        after = "after_call1" if call == "call1" else "after_both_calls"
        for name, value in statistics(total).items():
            torch.testing.assert_close(value, io[f"{after}.{name}"], atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("name", ["momha_self", "momha_self_shipped_window", "momha_cross"])
@pytest.mark.parametrize("spare", [-1, 1 << 30], ids=["sorted", "all experts"])
def test_mixture_of_attention_heads(name, implementation, spare, monkeypatch):
    monkeypatch.setattr(sut_experts, "MAX_SPARE_PRODUCTS", spare)
    io, weights = (load_file(CASES / name / f"{part}.safetensors") for part in ("io", "weights"))
    config = config_of(name)
    config._experts_implementation, config._attn_implementation = implementation, "eager"
    attention = RoutedAttention(config, "none" if name == "momha_cross" else "window").eval()
    fill_router(attention.router, weights, "q_proj.")
    with torch.no_grad():
        attention.query_map.weight.copy_(weights["q_proj.experts.w"])
        attention.output_map.weight.copy_(weights["q_proj.output_experts.w"])
        attention.k_proj.weight.copy_(weights["k_proj.weight"])
        attention.v_proj.weight.copy_(weights["v_proj.weight"])
        if name != "momha_cross":
            attention.position_bias.table.weight.copy_(weights["rel_pos_emb"][..., 1:-1])
    shape = io["query"].shape[:2]
    block, mask = SimpleNamespace(attention=attention), torch.ones(shape, dtype=torch.bool)
    layout = SparseLayout(block, FixedDepth(), mask, mask, None, DepthOptions(max_depth=1), None, (False, False))
    keys = ~io["key_padding_mask"][:, None, None]
    causal = keys & torch.ones(shape[1], keys.shape[-1]).tril().bool()
    for kind, mask, visible in (("binary", "mask_binary", keys), ("soft", "mask_soft", keys), ("causal", None, causal)):
        if f"{kind}.y" not in io:
            continue
        token_weights = io[mask or "mask_binary"].flatten()
        keys_values = KeyValue(*(each.transpose(1, 2) for each in attention.keys_values(io["kv_source"])))
        masked = layout.as_implemented(visible)
        result, *_ = attention(io["query"].flatten(0, 1), token_weights, keys_values, masked, layout)
        torch.testing.assert_close(result.unflatten(0, shape), io[f"{kind}.y"], atol=2e-6, rtol=0)
        assert (result[token_weights == 0] == 0).all()


def decided_too_late(strategy, state, features, step):
    return decide(strategy, state, features, step + 1)


def with_frozen_states(strategy, state, candidate, step):
    return commit(
        TokenStickBreaking(strategy.head, strategy.threshold, strategy.max_depth, True), state, candidate, step
    )


def all_heads_equal(self, states):
    return states.topk(self.per_token).indices * 0


decide, commit = TokenStickBreaking.decide, TokenStickBreaking.commit
index = PositionBias.index
# case, object and function to break, what to break it with
MUTATIONS = {
    "layer numbers": ("encdec_full", TokenStickBreaking, "decide", decided_too_late),
    "copied states": (
        "encoder_halting",
        TokenStickBreaking,
        "commit",
        with_frozen_states,
    ),
    "running keys": (
        "encoder_halting",
        sut_block.SUTBlock,
        "forward",
        lambda self, hidden, weights, layout, source: block(self, hidden, weights, layout, hidden),
    ),
    "experts": ("encoder_no_halting", Router, "choose", all_heads_equal),
    "distances": (
        "encoder_no_halting",
        PositionBias,
        "index",
        lambda self, distances: index(self, -distances),
    ),
    "weightless statistics": (
        "encdec_full",
        sut_depth,
        "token_weights",
        lambda state: state.live.float(),
    ),
    "first position": ("encoder_no_halting", modeling_sut, "FIRST_POSITION", 0),
}
block = sut_block.SUTBlock.forward


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_change_of_the_semantics_is_noticed(mutation):
    name, owner, attribute, broken = MUTATIONS[mutation]
    with mock.patch.object(owner, attribute, broken):
        errors, relative = differences(name)
    assert max(*errors.values(), *relative.values()) > 1e-3


@pytest.mark.parametrize(("experts", "millions"), [(24, 46.85), (48, 91.00)])
def test_bodies_have_the_papers_sizes(experts, millions):
    config = SUTConfig(
        vocab_size=100,
        attention_experts=experts,
        feed_forward_experts=experts,
        is_encoder_decoder=True,
        halting="token",
    )
    with torch.device("meta"):
        model = SUTForConditionalGeneration(config)
    embeddings = 100 * config.hidden_size
    # theirs have two columns of positions more, which nothing reads
    unread = 2 * 2 * config.num_attention_heads * config.head_dim
    count = sum(parameter.numel() for parameter in model.parameters()) - embeddings + unread
    assert round(count / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_fn": "relu"}, "activation_fn"),
        ({"decoder_halting": False}, "halting"),
        ({"attn_top_k": 5}, "attention_experts_per_token"),
        ({"relative_window_W": 1, "max_positions_const": 0}, "max_positions_const"),
    ],
)
def test_a_config_that_cannot_be_expressed_is_refused(change, message, tmp_path):
    source = CASES / "encdec_full"
    case = json.loads((source / "case.json").read_text())
    case["config"] |= change
    (tmp_path / "case.json").write_text(json.dumps(case))
    (tmp_path / "weights.safetensors").write_bytes((source / "weights.safetensors").read_bytes())
    with pytest.raises(ValueError, match=message):
        load_reference(tmp_path)
