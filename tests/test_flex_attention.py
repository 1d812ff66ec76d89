"""Flex attention through the attention switch: written out, as on any CPU, and by torch's own operator."""

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from hf_recurrent.models.ops import flex_attention
from hf_recurrent.models.sut.modeling_sut import SUTForConditionalGeneration
from support import flex_kernel
from support.batches import left_padded, right_padded, widened
from support.block_models import KINDS, make_block_model
from support.compare import assert_as_exact, assert_same, compute, gradients, recomputed_calls
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    LANGUAGE_VARIANTS,
    VARIANTS,
    make_batch,
    make_language_model,
    make_model,
    make_text,
    nightly,
)
from support.sut_models import KINDS as SUT_KINDS
from support.sut_models import make_rows, make_sut, padded

PADDINGS = {
    "both": lambda batch: widened(batch, 2, 1),
    "left": left_padded,
    "right": right_padded,
    "none": lambda batch: {**batch, "attention_mask": torch.ones_like(batch["attention_mask"])},
}


def softmax_variants(variants):
    return [variant for variant in variants if "sdpa" in variant.implementations]


CASES = [
    *((variant, make_model, make_batch) for variant in softmax_variants(VARIANTS)),
    *((variant, make_language_model, make_text) for variant in softmax_variants(LANGUAGE_VARIANTS)),
]
NAMES = [f"{variant.name}-{'text' if make is make_text else 'rows'}" for variant, _, make in CASES]


def case_parameters(core_marks=()):
    """All cases; those of variants outside the core only in `make nightly`."""
    return [
        pytest.param(*case, id=name, marks=core_marks if case[0].core else pytest.mark.nightly)
        for case, name in zip(CASES, NAMES, strict=True)
    ]


def with_implementation(make, variant, implementation):
    model = make(variant)
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation
    return model


def assert_as_eager(variant, make, batch):
    flex, eager = (with_implementation(make, variant, name) for name in ("flex_attention", "eager"))
    assert_same(compute(flex, variant, batch), compute(eager, variant, batch))
    assert_same(gradients(flex, batch), gradients(eager, batch))


@pytest.mark.parametrize(("variant", "make", "make_inputs"), case_parameters())
def test_flex_attention_is_eager(variant, make, make_inputs):
    # padding of a text is on the left
    padding = PADDINGS["both" if make_inputs is make_batch else "left"]
    assert_as_eager(variant, make, padding(make_inputs(variant)))


@pytest.mark.nightly
@pytest.mark.parametrize("padding", ["left", "right", "none"])
@pytest.mark.parametrize(("variant", "make", "make_inputs"), case_parameters())
def test_wherever_padding_is(variant, make, make_inputs, padding):
    assert_as_eager(variant, make, PADDINGS[padding](make_inputs(variant)))


@pytest.mark.nightly
@pytest.mark.parametrize(("variant", "make", "make_inputs"), case_parameters())
def test_torchs_operator_is_eager(variant, make, make_inputs):
    with flex_kernel.on_cpu():
        assert_as_eager(variant, make, make_inputs(variant))
    assert flex_kernel.calls


# those of the other tests are 16 wide; some are no power of two
HEAD_SIZES = (8, 24, 64, 80, 128)
# the first variant of each architecture
SIZED = {(variant.architecture, make): (variant, make, make_inputs) for variant, make, make_inputs in reversed(CASES)}


@pytest.mark.nightly
@pytest.mark.parametrize("size", HEAD_SIZES)
@pytest.mark.parametrize(
    ("variant", "make", "make_inputs"), SIZED.values(), ids=[f"{name}-{make.__name__}" for name, make in SIZED]
)
def test_heads_of_any_size(variant, make, make_inputs, size):
    sized = replace(variant, fields={**variant.fields, "head_dim": size})
    with flex_kernel.on_cpu():
        assert_as_eager(sized, make, make_inputs(sized))
    assert {of_head for *_, of_head in flex_kernel.calls} == {size}


def scores_of_distance(table):
    def scores(sequence, head, query, key):
        return table[head, (query - key).clamp(0, table.shape[1] - 1)]

    return scores


def test_operator_and_its_twin_agree():
    """Outputs and gradients, also of what a bias is computed from, with queries that see nothing."""
    torch.manual_seed(0)
    visible = torch.rand(3, 1, 5, 7) < 0.5
    visible[0, 0, 1] = False
    inputs = [*(torch.randn(3, 2, size, 8) for size in (5, 7, 7)), torch.randn(2, 4)]

    def results(attend, dtype, *options) -> list[torch.Tensor]:
        leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in inputs]
        *states, table = leaves
        with flex_kernel.on_cpu():
            attended = attend(*states, flex_attention.FlexMask(visible), 0.3, scores_of_distance(table), *options)
            attended.square().sum().backward()
        return [attended.detach(), *(leaf.grad for leaf in leaves)]

    fused = results(flex_attention.fused_attention, torch.float32, True)
    written_out = results(flex_attention.written_out_attention, torch.float32)
    exact = results(flex_attention.written_out_attention, torch.float64)
    assert not fused[0][0, :, 1].any()
    for found in zip(fused, written_out, exact, strict=True):
        assert_as_exact(*found)


@pytest.mark.parametrize(("name", "most"), [("gut_no_halt", 1), nightly("gut", 6)])
def test_block_masks_are_made_once(name, most):
    """For all steps of a pass, and anew only for the sequences that go on after others have halted."""
    variant = BY_NAME[name]
    model = with_implementation(make_model, variant, "flex_attention")
    create = mock.Mock(side_effect=flex_attention.create_block_mask)
    attend = mock.Mock(side_effect=lambda query, key, value, **options: query)
    with (
        flex_kernel.on_cpu(),
        mock.patch.object(flex_attention, "create_block_mask", create),
        mock.patch.object(flex_attention, "compile_friendly_flex_attention", attend),
        torch.no_grad(),
    ):
        model(**make_batch(variant))
    assert 1 <= create.call_count <= most < attend.call_count + 1


OTHERS = ("xpos_transformer", "ut", "gut_token", "tlb", "gutlb", "gutlb_token", "ndr_act", "block_recurrent", "sut")
CACHED = ["gut", *map(nightly, OTHERS)]


def generated(model, inputs, **options):
    return model.generate(
        **inputs, max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True, **options
    )


def assert_generates_alike(flex, eager, inputs, **options):
    actual, expected = generated(flex, inputs, **options), generated(eager, inputs, **options)
    assert torch.equal(actual.sequences, expected.sequences)
    assert_same({"logits": torch.stack(actual.logits)}, {"logits": torch.stack(expected.logits)})


@pytest.mark.parametrize("operator", [False, nightly(True)])
@pytest.mark.parametrize("name", CACHED)
def test_generation_with_a_cache(name, operator):
    variant = LANGUAGE_BY_NAME[name]
    flex, eager = (with_implementation(make_language_model, variant, each) for each in ("flex_attention", "eager"))
    prompt = {name: value for name, value in make_text(variant).items() if name != "labels"}
    if operator:
        with flex_kernel.on_cpu():
            assert_generates_alike(flex, eager, prompt)
    else:
        assert_generates_alike(flex, eager, prompt)


@pytest.mark.parametrize("kind", [each if each == "lstm_dual" else nightly(each) for each in KINDS])
def test_every_kind_of_window(kind):
    """Keys of the block before, state vectors and external memory, whole and in pieces of cached blocks."""
    ids, mask = padded(make_rows([11, 4, 7]), "l")
    found = []
    for implementation in ("flex_attention", "eager"):
        model = make_block_model(kind)
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            first = model(ids[:, :5], mask[:, :5], use_cache=True)
            second = model(ids[:, 5:], mask, past_key_values=first.past_key_values, use_cache=True)
        whole = gradients(model, {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
        found.append({"pieces": torch.cat((first.logits, second.logits), dim=1)[mask.bool()], **whole})
    assert_same(*found, tolerance=1e-9)


@pytest.mark.parametrize("kind", [each if each == "t5" else nightly(each) for each in SUT_KINDS])
def test_both_stacks_of_routed_heads(kind):
    ids, mask = padded(make_rows([6, 2, 4]), "lr")
    targets, target_mask = padded(make_rows([3, 5, 1], seed=1))
    batch = {"input_ids": ids, "attention_mask": mask, "labels": targets.masked_fill(target_mask == 0, -100)}
    # eager attention weights are float32
    flex, sdpa = (make_sut(kind, SUTForConditionalGeneration) for _ in range(2))
    flex.set_attn_implementation("flex_attention")
    assert flex.model.decoder.config._attn_implementation == "flex_attention"
    assert_same(gradients(flex, batch), gradients(sdpa, batch), tolerance=1e-9)
    assert_generates_alike(flex, sdpa, {"input_ids": ids, "attention_mask": mask}, min_new_tokens=6)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("name", ["gut", nightly("block_recurrent"), nightly("sut")])
def test_recomputed_steps_have_their_masks(name, monkeypatch):
    """Of gradient checkpointing."""
    variant = LANGUAGE_BY_NAME[name]
    model = with_implementation(make_language_model, variant, "flex_attention").train()
    batch = make_text(variant)
    expected = gradients(model, batch)
    model.gradient_checkpointing_enable()
    calls = recomputed_calls(model, monkeypatch)
    assert_same(gradients(model, batch), expected)
    with_recomputation = len(calls)
    compute(model, variant, batch)
    assert with_recomputation > len(calls) - with_recomputation


@pytest.mark.parametrize("name", ["gut", "block_recurrent", "sut"])
def test_attention_dropout_is_refused_in_training(name):
    model = with_implementation(make_model, BY_NAME[name], "flex_attention")
    for module in (model, model.model):
        module.config.attention_dropout = 0.1
    batch = make_batch(BY_NAME[name])
    assert torch.isfinite(model(**batch).loss)
    message = "attention_dropout is 0.1 but flex attention has no dropout: train with attention_dropout=0.0"
    with pytest.raises(ValueError, match=message):
        model.train()(**batch)


def test_backends_of_sdpa_are_chosen_with_torch():
    """The kernel inside a context of torch is the one that the context names, on a CPU not cuDNN's."""
    variant = BY_NAME["gut"]
    model, batch = make_model(variant), make_batch(variant)
    expected = compute(model, variant, batch)
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(compute(model, variant, batch), expected)
    with (
        sdpa_kernel(SDPBackend.CUDNN_ATTENTION),
        pytest.raises(RuntimeError, match=r"No (viable backend|available kernel)"),
    ):
        compute(model, variant, batch)
