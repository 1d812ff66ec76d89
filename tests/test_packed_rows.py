"""Rows are packed: blocks compute tokens alone, and nothing else changes."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from gpu import imitation
from hf_recurrent.models.depth import layouts
from hf_recurrent.models.ops import row_groups
from support.compare import assert_close, assert_same, compute, gradients
from support.families import (
    BY_NAME,
    LANGUAGE_BY_NAME,
    USUAL_PRODUCTS_ON_ACCELERATOR,
    make_batch,
    make_language_model,
    make_model,
    make_text,
)


def first_block(base):
    return base.block if hasattr(base, "block") else base.layers[0]


WHOLE_ROWS = ("xpos_transformer", "gut", "gut_no_halt", "ndr", "ndr_relative", "ndr_absolute_relative", "ndr_act")
ROUTERS = ("ndr", "ndr_relative", "ndr_absolute_relative", "ndr_act", "ndr_act_universal", "ndr_siamese")


@pytest.mark.parametrize(
    "name", [*WHOLE_ROWS, "gut_siamese", "ut", "gut_token", "ndr_act_universal", "ndr_siamese", "tlb", "gutlb"]
)
def test_blocks_compute_tokens_alone(name, monkeypatch):
    variant = BY_NAME[name]
    # with compaction live tokens are packed by another layout, or those of rows
    fields = {"compaction": False} if variant.token_units and variant.architecture != "ndr" else {}
    model, batch = make_model(variant, **fields), make_batch(variant)
    seen = []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    packed, packed_gradients = compute(model, variant, batch), gradients(model, batch)
    assert {states.dim() for states in seen} >= {2}
    if name in WHOLE_ROWS:
        assert seen[0].shape[0] == batch["attention_mask"].sum()
    seen.clear()
    monkeypatch.setattr(layouts, "MIN_SHARE_TO_PACK", math.inf)
    assert_same(compute(model, variant, batch), packed)
    assert_same(gradients(model, batch), packed_gradients)
    assert {states.dim() for states in seen} == {3}


def test_batches_without_padding_are_not_packed():
    variant = BY_NAME["gut"]
    model, seen = make_model(variant), []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].dim()))
    with torch.no_grad():
        model(torch.full((3, 5), 4))
    assert set(seen) == {3}


def test_packing_waits_until_it_spares_enough_products(monkeypatch):
    variant = BY_NAME["gut"]
    model, batch, seen = make_model(variant), make_batch(variant), []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].dim()))
    spared = int((batch["attention_mask"] == 0).sum()) * model.config.hidden_size**2
    for least, dims in ((spared, 2), (spared + 1, 3)):
        monkeypatch.setattr(layouts, "MIN_PRODUCTS_TO_PACK", least)
        compute(model, variant, batch)
        assert set(seen) == {dims}
        seen.clear()


@pytest.mark.parametrize("name", ["gut", "ut", "ndr_act"])
@pytest.mark.parametrize("is_small", [False, True])
def test_small_steps_are_not_made_smaller_on_an_accelerator(name, is_small, monkeypatch):
    variant = BY_NAME[name]
    batch = make_batch(variant)
    expected, expected_gradients = compute(make_model(variant), variant, batch), gradients(make_model(variant), batch)
    monkeypatch.setattr(layouts, "MIN_PRODUCTS_ON_ACCELERATOR", USUAL_PRODUCTS_ON_ACCELERATOR if is_small else 0)
    shapes = set()
    with imitation.installed():
        model = make_model(variant).to("cuda")
        there = {key: value.to("cuda") for key, value in batch.items()}
        first_block(model.model).register_forward_pre_hook(lambda _, arguments: shapes.add(arguments[0].shape))
        found, found_gradients = compute(model, variant, there), gradients(model, there)
        found, found_gradients = (
            {key: value.cpu() for key, value in each.items()} for each in (found, found_gradients)
        )
    assert_same(found, expected)
    assert_same(found_gradients, expected_gradients)
    assert (shapes == {(*batch["input_ids"].shape, model.config.hidden_size)}) == is_small


def steps_of_rows(model, batch, **options) -> torch.Tensor:
    """Steps that rows take (R,), which go on until their last token stops."""
    with torch.no_grad():
        steps = model(**batch, **options).ponder_steps
    return steps if steps.dim() == 1 else steps.amax(-1)


def exits_at_several_steps(model, batch) -> dict[str, object]:
    for threshold in torch.logspace(-3, 0, 40).tolist():
        options = {"exit_criterion": "convergence", "exit_threshold": threshold}
        if len(set(steps_of_rows(model, batch, **options).tolist())) > 2:
            return options
    raise AssertionError("no threshold tells rows apart")


@pytest.mark.parametrize("exits", [False, True], ids=["trained", "exits"])
@pytest.mark.parametrize("name", ROUTERS)
def test_compacted_routers_compute_the_tokens_of_live_rows(name, exits, monkeypatch):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    options = exits_at_several_steps(model, batch) if exits and not variant.siamese else {}
    seen = []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[0]))
    packed = compute(model, variant, batch, **options)
    if not variant.siamese:
        steps, lengths = steps_of_rows(model, batch, **options), batch["attention_mask"].sum(-1)
        live = [int(lengths[steps > step].sum()) for step in range(int(steps.max()))]
        # a few halted rows stay until dropping them pays
        assert sum(live) <= sum(seen[: len(live)]) <= 1.1 * sum(live)
    monkeypatch.setattr(layouts, "MIN_SHARE_TO_PACK", math.inf)
    assert_same(compute(model, variant, batch, **options), packed)
    monkeypatch.undo()
    model.config.compaction = False
    assert_same(compute(model, variant, batch, **options), packed)


@pytest.mark.parametrize("name", ROUTERS)
def test_attention_of_routers_is_as_wide_as_the_longest_row_of_a_group(name, monkeypatch):
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant, rows=6, length=24)
    # columns that no row uses
    batch = {
        name: values if values.dim() == 1 else torch.nn.functional.pad(values, (0, 7), value=0)
        for name, values in batch.items()
    }
    block, areas = model.model.block.attention, []
    compute_attention = block.compute_attention

    def counted(query, key, *others):
        areas.append(query.shape[0] * query.shape[2] * key.shape[2])
        return compute_attention(query, key, *others)

    monkeypatch.setattr(block, "compute_attention", counted)
    whole, whole_gradients = compute(model, variant, batch), gradients(model, batch)
    longest, num_rows = int(batch["attention_mask"].sum(-1).max()), len(batch["input_ids"])
    if not variant.siamese:
        assert max(areas) <= num_rows * longest**2
    before = sum(areas)
    areas.clear()
    monkeypatch.setattr(row_groups, "MIN_SAVED_PAIRS", 1)
    assert_same(compute(model, variant, batch), whole)
    assert_same(gradients(model, batch), whole_gradients)
    assert sum(areas) < before


@pytest.mark.parametrize("causal_lm", [False, True], ids=["classifies", "language"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        *({"state_gate": gate, "state_update": update} for gate in ("fixed", "lstm") for update in ("dual", "single")),
        {"feedback": True, "recurrent_layers": [0, -1]},
        {"recurrent_layers": [], "pooling": "end"},
        {"recurrent_layers": [], "pooling": "end", "window_size": 40},
        {"memory_layers": [0], "memory_size": 8, "num_neighbors": 4, "recurrent_layers": [1]},
        {"pooling": "mean"},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_layers_of_blocks_compute_tokens_alone(fields, causal_lm, monkeypatch):
    variant = BY_NAME["block_recurrent"]
    model, batch = make_model(variant, **fields), make_batch(variant)
    lengths = (13, 4, 9, 8)
    mask = torch.arange(13) < torch.tensor(lengths)[:, None]
    kind = AutoModelForCausalLM if causal_lm else AutoModelForSequenceClassification
    torch.manual_seed(0)
    model = kind.from_config(model.config).eval()
    ids = torch.randint(3, 9, (4, 13)).masked_fill(~mask, 0)
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    batch["labels"] = ids.masked_fill(~mask, -100) if causal_lm else torch.tensor([0, 1, 1, 0])
    seen = []
    layer = model.model.layers[0]
    for projection in (layer.attention.q_proj, layer.attention.k_proj, layer.attention.o_proj, layer.up_proj):
        projection.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[:-1]))
    packed, packed_gradients = compute(model, variant, batch), gradients(model, batch)
    assert all(len(shape) == 1 for shape in seen)
    # the passes of both, four projections each; with feedback block by block
    assert sum(shape.numel() for shape in seen) == 2 * 4 * sum(lengths)
    monkeypatch.setattr(layouts, "MIN_SHARE_TO_PACK", math.inf)
    assert_same(compute(model, variant, batch), packed)
    assert_same(gradients(model, batch), packed_gradients)


@pytest.mark.parametrize("feedback", [False, True])
def test_ended_sequences_leave_the_loop_over_blocks(feedback):
    config = make_model(BY_NAME["block_recurrent"], feedback=feedback).config
    model, seen = AutoModelForCausalLM.from_config(config).eval(), []
    model.model.layers[model.config.recurrent_indices[-1]].state_cell.q_proj.register_forward_pre_hook(
        lambda _, arguments: seen.append(len(arguments[0]))
    )
    width = config.window_size
    lengths = torch.tensor([width, 3 * width + 1, width - 1, 2 * width])
    mask = (torch.arange(3 * width + 1) < lengths[:, None]).long()
    with torch.no_grad():
        model(mask * 4, mask)
    assert seen == [3, 2, 1]


@pytest.mark.parametrize("name", ["xpos_transformer", "ndr", "tlb", "gutlb"])
def test_the_first_tokens_of_a_cache_are_computed_alone(name, monkeypatch):
    variant = LANGUAGE_BY_NAME[name]
    model, text = make_language_model(variant), make_text(variant)
    inputs, seen = {key: text[key] for key in ("input_ids", "attention_mask")}, []
    first_block(model.model).register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))

    def read(first: int) -> torch.Tensor:
        """Logits of the last tokens, after the others have been cached."""
        with torch.no_grad():
            cache = model(**{key: values[:, :first] for key, values in inputs.items()}, use_cache=True).past_key_values
            return model(inputs["input_ids"][:, first:], inputs["attention_mask"], past_key_values=cache).logits

    packed = read(-2)
    first = [states for states in seen if states.dim() == 2]
    assert first
    assert len(first[0]) <= inputs["attention_mask"][:, :-2].sum()
    monkeypatch.setattr(layouts, "MIN_SHARE_TO_PACK", math.inf)
    assert_close(read(-2), packed)
