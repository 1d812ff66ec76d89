"""The campaign of invariances finds nothing; it finds what is planted."""

import collections
import random
import re
from unittest import mock

import pytest
import torch

from fuzz.comparing.cases import SINGLE
from fuzz.comparing.configs import NOT_DRAWN, drawn_fields, drawn_value, own_fields
from fuzz.comparing.properties import FIRST_CALL
from fuzz.invariances import HEADS, Comparisons, campaign, drawn_case, usable_bench
from hf_recurrent import ARCHITECTURES
from hf_recurrent.models.base import base_model
from hf_recurrent.models.base.pretrained import RecurrentPreTrainedModel
from hf_recurrent.models.depth import depth_cache, layouts, stick_breaking
from hf_recurrent.models.heads import generation
from hf_recurrent.models.ops import attention, masks
from hf_recurrent.models.rnn import cache as rnn_cache
from support.families import nightly

# transformers has other names for gradient checkpointing
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [name if name in ("gut", "tlb", "sut") else nightly(name) for name in ARCHITECTURES]
)
def test_no_disagreement(architecture):
    heads = [pair for pair in HEADS if pair[0] == architecture]
    found = campaign(seed=1, count=60, heads=heads)
    assert not found.faults, found
    assert found.total >= 60


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_field_of_a_config_is_drawn_by_its_type(architecture):
    config_class = ARCHITECTURES[architecture].config_class
    kinds, rng = own_fields(config_class), random.Random(0)
    for name in kinds.keys() - NOT_DRAWN:
        assert len({str(drawn_value(name, kinds[name], rng)) for _ in range(40)}) > 1, name
    drawn, refused = collections.Counter(), collections.Counter()
    for _ in range(30):
        drawn.update(drawn_fields(config_class, rng, refused, {}).keys())
    assert drawn.keys() >= kinds.keys() - NOT_DRAWN - refused.keys()


@pytest.mark.parametrize(("architecture", "head"), [("gut", "ForCausalLM"), ("sut", "ForConditionalGeneration")])
def test_float64_is_float64(architecture, head):
    case = drawn_case(random.Random(0), Comparisons(), architecture, head).but(precise=True)
    bench = usable_bench(case, Comparisons())
    (comparison,) = bench.comparisons(FIRST_CALL)
    result = bench.result(comparison.actual)
    parts = [part for row in result.rows.values() for part in row] + [result.batch]
    dtypes = {value.dtype for part in parts for value in part.values() if value.is_floating_point()}
    assert dtypes == {torch.float64}
    assert torch.get_default_dtype() is torch.float32


def without_padding_mask(states, mask):
    return states.mean(1)


def every_key(config, states, mask, cache=None):
    return masks.key_mask(config, states, mask)


def reversed_rows(compact):
    def planted(self, state, keep, drop):
        layout, state = compact(self, state, keep, drop)
        layout.tokens, layout.rows = layout.tokens.flip(0), layout.rows.flip(0)
        return layout, state

    return planted


def losing_a_weight(save):
    def planted(self, *args, **kwargs):
        state = {name: value + 1.0 * name.endswith("embed_tokens.weight") for name, value in self.state_dict().items()}
        return save(self, *args, **{**kwargs, "state_dict": state})

    return planted


def forget_but_sums(self, number):
    for layer in self.layers:
        kept = {name: each if name == "sums" else each[:, :, :-number] for name, each in layer.tensors.items()}
        layer.replace(kept if number < self.length else {})


def steps_of_other_beams(generated, calls, end, pad, num_new):
    return torch.cat(calls, dim=1)[:, : generated.beam_indices.shape[1]]


def coarse_mean(states, mask):
    return MEAN(states, mask) * (1.5 if states.dtype is torch.float16 else 1.0)


QUICK = ("a mean over padding", "rows in another order", "a weight that is not saved")
EAGER, DECIDE = attention.eager_attention_forward, stick_breaking.StickBreaking.decide
MEAN = layouts.masked_mean
COMPACT, SAVE = layouts.PackedLayout.compact, RecurrentPreTrainedModel.save_pretrained
# name -> what is replaced, by what, and which heads and properties find it
PLANTED = {
    "a mean over padding": (layouts, "masked_mean", without_padding_mask, "gut Model", "padding"),
    "no causal mask": (base_model, "visible_keys", every_key, "xpos_transformer ForCausalLM", "later tokens"),
    "rows in another order": (layouts.PackedLayout, "compact", reversed_rows(COMPACT), "gut Model", "compaction"),
    "a weight that is not saved": (
        RecurrentPreTrainedModel,
        "save_pretrained",
        losing_a_weight(SAVE),
        "rnn Model",
        "saving and loading",
    ),
    "sums that cropping leaves": (
        depth_cache.DepthCache,
        "forget",
        forget_but_sums,
        "gut ForCausalLM",
        "cropping a cache",
    ),
    "steps of other beams": (
        generation,
        "steps_of_new_tokens",
        steps_of_other_beams,
        "gut ForCausalLM",
        "beam search",
    ),
    "a mean that is wrong in float16": (
        base_model,
        "masked_mean",
        coarse_mean,
        "gut Model",
        "half precision",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name if name in QUICK else nightly(name) for name in PLANTED])
def test_a_planted_fault_is_found(name):
    owner, attribute, replacement, where, found_by = PLANTED[name]
    with mock.patch.object(owner, attribute, replacement):
        found = campaign(seconds=60, seed=3, heads=[tuple(where.split())], properties=[found_by], faults=1)
    fault = found.faults[0]
    assert fault.property == found_by
    assert fault.verdict.kind == "different"
    assert str(fault.case) in str(found)


def unclear(self, number):
    raise ValueError("no")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forget", "message"),
    [(lambda self, number: None, "was not refused"), (unclear, "is not refused clearly: no")],
)
def test_a_refusal_that_is_missing_or_unclear_is_found(forget, message):
    with mock.patch.object(rnn_cache.StateCache, "forget", forget):
        found = campaign(seconds=60, seed=3, heads=[("rnn", "ForCausalLM")], properties=["cropping a cache"], faults=1)
    assert found.faults[0].verdict.kind == "failed"
    assert re.search(rf"crop\(-\d+\) {message}", found.faults[0].verdict.message)


def imprecise(*args, **kwargs):
    attended, weights = EAGER(*args, **kwargs)
    return attended + 1e-2 * (attended.dtype is SINGLE[0]), weights


def chaotic(self, state, features, step):
    """Halting by digits that rounding alone decides."""
    after = DECIDE(self, state, features, step)
    return after._replace(live=state.live & ((features.sum(-1) * 1e15).long() % 2 == 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "attribute", "replacement", "kind"),
    [
        (attention, "eager_attention_forward", imprecise, "rounded"),
        (stick_breaking.StickBreaking, "decide", chaotic, "undecided"),
    ],
)
def test_rounding_is_no_fault(owner, attribute, replacement, kind):
    with mock.patch.object(owner, attribute, replacement):
        found = campaign(count=40, seed=7, heads=[("ut", "ForCausalLM")], properties=["the attention kernel"])
    assert found.counts["the attention kernel"][kind] > 0
    assert not found.faults
