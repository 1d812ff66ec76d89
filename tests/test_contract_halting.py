"""Halting as callers observe and set it: records of every step, thresholds and depth limits per call."""

import itertools

import pytest
import torch

from support.compare import assert_close, assert_same, block_call_sizes, compute
from support.families import (
    BLOCKS,
    BY_NAME,
    CHUNKS,
    LABELS,
    STEPS,
    chunk_numbers,
    make_batch,
    make_model,
    per_token,
    window_places,
)


def sentences(variant, batch):
    """Batch size of the base model, and its longest sequence."""
    if not variant.siamese:
        return len(batch["labels"]), batch["input_ids"].shape[1]
    types, mask = batch["token_type_ids"], batch["attention_mask"]
    return 2 * len(batch["labels"]), int(torch.stack([(mask * (types == side)).sum(-1) for side in (0, 1)]).max())


def test_recording_changes_nothing(model, variant, batch):
    recorded = compute(model, variant, batch, output_hidden_states=True, output_gates=True)
    assert_same(recorded, compute(model, variant, batch))


def test_hidden_states_have_a_state_per_step(model, variant, batch):
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    rows, width = sentences(variant, batch)
    assert len(output.hidden_states) == STEPS + 1
    assert all(state.shape == (rows, width, 32) for state in output.hidden_states)
    assert output.attentions is None
    assert output.gates is None


def test_states_stay_once_halted(halting_variant):
    if halting_variant.siamese:
        pytest.skip("states are per sentence, tested through the base model of the other rows")
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True, output_halting=True)
    tokens = batch["attention_mask"].bool()
    steps = per_token(halting_variant, output.ponder_steps, tokens)
    # states go on under adaptive computation time, only their weights end
    for step in range(1, STEPS + 1) if not halting_variant.act else ():
        same = (output.hidden_states[step] == output.hidden_states[step - 1]).all(-1)
        assert same[tokens & (steps < step)].all()
        assert not same[tokens & (steps >= step)].any()
    recorded = output.halting_probabilities
    unit_steps = output.ponder_steps
    step = torch.arange(STEPS)
    shown = step < unit_steps[..., None] + (not halting_variant.act)
    if halting_variant.routed or halting_variant.stacked:
        # the first step is never judged
        shown = shown & (step > 0)
    assert torch.equal(recorded > 0, shown & (unit_steps[..., None] >= 0))


def test_soft_state_is_the_mass_weighted_sum(halting_variant):
    if halting_variant.siamese:
        pytest.skip("states are per sentence, tested through the base model of the other rows")
    if halting_variant.act:
        pytest.skip("adaptive computation time weighs states in its own way, tested against its naive twin")
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        output = model.model(**inputs, output_hidden_states=True, output_halting=True)
    tokens = batch["attention_mask"].bool()
    probabilities = torch.stack(
        [per_token(halting_variant, output.halting_probabilities[..., step], tokens) for step in range(STEPS)], dim=-1
    )
    accepted = torch.arange(STEPS) < per_token(halting_variant, output.ponder_steps, tokens)[..., None]
    survival = torch.where(accepted, 1 - probabilities, 1.0).cumprod(-1)
    before = torch.cat((torch.ones_like(survival[..., :1]), survival[..., :-1]), dim=-1)
    mass = torch.cat((torch.where(accepted, before * probabilities, 0.0), survival[..., -1:]), dim=-1)
    states = torch.stack(output.hidden_states, dim=-2)  # (B, S, L + 1, E)
    # what is left over belongs to the last state, which the record repeats to the end
    mixed = (mass[..., None] * states).sum(-2)
    torch.testing.assert_close(mixed[tokens], output.last_hidden_state[tokens], rtol=0, atol=2e-5)
    assert not output.last_hidden_state[~tokens].any()


def test_attentions_are_distributions_over_tokens(model, variant, batch):
    if not variant.attends:
        pytest.skip("has no attention")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    rows, width = sentences(variant, batch)
    assert len(output.attentions) == STEPS
    keys = 2 * BLOCKS["window_size"] if variant.windowed else width
    for weights in output.attentions:
        heads = 2 * (variant.experts_per_token or 1) * variant.layers_per_step
        assert weights.shape == (rows, heads, width, keys)
    if variant.siamese:
        return
    tokens = batch["attention_mask"].bool()
    visible = window_places(tokens) if variant.windowed else tokens[:, None].expand(-1, width, -1)
    visible = visible.tril() if variant.stacked else visible
    if variant.chunked:
        chunks = chunk_numbers(variant, tokens)
        visible = visible & (chunks[:, None] == chunks[..., None])
    by_nearest_match = getattr(model.config, "attention", None) == "geometric"
    if by_nearest_match:
        visible = visible & ~torch.eye(width, dtype=torch.bool)
    for weights in output.attentions:
        sums = weights.sum(-1).transpose(1, 2)[tokens]
        if by_nearest_match and not model.config.normalize_attention:
            assert (sums <= 1 + 1e-5).all()
        else:
            torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
        weights = weights.permute(0, 2, 3, 1)
        assert not weights[~visible & tokens[..., None]].any()
        assert (weights[visible & tokens[..., None]] > 0).all()


def test_memory_is_read_and_written(variant, batch):
    if not variant.attends:
        pytest.skip("has no attention; what a DNC reads of its memory is tested apart")
    model = make_model(variant)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**batch, output_attentions=True, output_hidden_states=True)
    if not variant.chunked and not variant.state_vectors:
        assert output.read_attentions is None
        assert output.memory_states is None
        return
    rows, width = sentences(variant, batch)
    slots = BLOCKS["num_state_vectors"] if variant.windowed else CHUNKS["num_memory_slots"]
    assert len(output.read_attentions) == (1 if variant.windowed and not model.config.feedback else STEPS)
    for weights in output.read_attentions:
        assert weights.shape == (rows, 2, width, slots)
    assert all(memory.shape == (rows, slots, 32) for memory in output.memory_states)
    initial = (
        model.model.layers[model.config.recurrent_indices[-1]].state_cell.initial_state
        if variant.windowed
        else model.model.memory
    )
    assert torch.equal(output.memory_states[0][0], initial.weight)
    if variant.siamese:
        return
    tokens = batch["attention_mask"].bool()
    sums = torch.stack([weights.sum(-1).transpose(1, 2)[tokens] for weights in output.read_attentions])
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
    # a row's memory changes with each of its chunks, and stays when it has no more
    last = chunk_numbers(variant, tokens).amax(-1)
    assert len(output.memory_states) == last.max() + 2 > 3
    for number, (before, after) in enumerate(itertools.pairwise(output.memory_states)):
        changed = number <= last
        if variant.windowed:
            # blocks that have only begun are counted last
            complete, begun = tokens.sum(-1) // 4, tokens.sum(-1) % 4 > 0
            changed = (number < complete) | (begun & (number == last.max()))
        assert torch.equal((before != after).flatten(1).any(-1), changed)
    if variant.windowed:
        return
    pooled = model.model.pooled(output, tokens)
    plain = model.model(batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids"))
    torch.testing.assert_close(pooled, plain.pooler_output, rtol=0, atol=1e-5)


def test_gates_belong_to_gated_blocks(model, variant, batch):
    if variant.state_vectors:
        pytest.skip("gates weigh state vectors, not tokens, and are tested apart")
    with torch.no_grad():
        output = model(**batch, output_gates=True)
    assert (output.gates is not None) == variant.gated
    if variant.gated:
        assert len(output.gates) == STEPS
        rows, width = sentences(variant, batch)
        for gate in output.gates:
            assert gate.shape == (rows, width, 32)
            if not variant.siamese:
                gate = gate[batch["attention_mask"].bool()]
                assert ((gate > 0) & (gate < 1)).all()


def test_shapes_of_halting(halting_variant):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    with torch.no_grad():
        output = model(**batch, output_halting=True)
    rows, length = batch["input_ids"].shape
    units = (rows, length) if halting_variant.token_units else (rows, 2) if halting_variant.siamese else (rows,)
    if halting_variant.chunked and halting_variant.halting == "global":
        units = (*units, 2 if halting_variant.siamese else 3)
    assert output.logits.shape == (rows, LABELS)
    assert output.ponder_cost.shape == (rows,)
    assert output.ponder_steps.shape == units
    assert output.ponder_steps.dtype is torch.long
    assert output.halting_probabilities.shape == (*units, STEPS)
    if halting_variant.token_units:
        assert torch.equal(output.ponder_steps < 0, batch["attention_mask"] == 0)
    elif halting_variant.chunked and not halting_variant.siamese:
        last = chunk_numbers(halting_variant, batch["attention_mask"]).amax(-1, keepdim=True)
        assert torch.equal(output.ponder_steps < 0, torch.arange(3) > last)
    torch.testing.assert_close(output.aux_loss, model.config.ponder_loss_weight * output.ponder_cost.mean())


def test_max_depth_is_a_shallower_model(halting_variant):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    limited = compute(model, halting_variant, batch, max_depth=3)
    assert limited["ponder_steps"].max() == 3
    shallow = make_model(halting_variant, num_hidden_layers=3)
    assert_same(limited, compute(shallow, halting_variant, batch))
    if halting_variant.act:
        with pytest.raises(
            ValueError, match=rf"max_depth is {STEPS + 2} but this model .* within {STEPS}: pass at most"
        ):
            compute(model, halting_variant, batch, max_depth=STEPS + 2)
        return
    deeper = compute(model, halting_variant, batch, max_depth=STEPS + 2, halting_threshold=1.0)
    assert deeper["ponder_steps"].max() == STEPS + 2


def test_max_depth_without_halting():
    variant = BY_NAME["gut_no_halt"]
    model, batch = make_model(variant), make_batch(variant)
    assert len(block_call_sizes(model, batch, max_depth=2)) == 2
    assert (model(**batch, max_depth=2).ponder_steps == 2).all()


def test_threshold_per_call_is_the_configured_one(halting_variant):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    called = compute(model, halting_variant, batch, halting_threshold=0.5)
    assert model.config.halting_threshold == 0.95
    configured = make_model(halting_variant, halting_threshold=0.5)
    assert_same(called, compute(configured, halting_variant, batch))


def test_higher_thresholds_mean_more_steps(halting_variant):
    model, batch = make_model(halting_variant), make_batch(halting_variant)
    sweep = [
        compute(model, halting_variant, batch, halting_threshold=threshold)["ponder_steps"]
        for threshold in (0.1, 0.5, 0.9, 0.99, 1.0)
    ]
    for lower, higher in itertools.pairwise(sweep):
        if halting_variant.halting == "global" and not halting_variant.chunked:
            assert (lower <= higher).all()
        else:
            # a token's path depends on when the tokens it attends to halt, and a chunk's on the chunks before it, so
            # only the sum must grow
            assert lower.sum() <= higher.sum()
    assert sweep[0].sum() < sweep[-1].sum()


def test_steps_of_a_certain_halt():
    """A head that is sure stops every unit before its first step: the model reads embeddings alone."""
    for name in ("ut", "gut", "gut_token", "gut_siamese", "gutlb", "gutlb_token", "gutlb_siamese"):
        variant = BY_NAME[name]
        model, batch = make_model(variant), make_batch(variant)
        torch.nn.init.constant_(model.model.halting_head.down_proj.bias, 1e3)
        values = compute(model, variant, batch)
        assert (values["ponder_steps"] == 0).all()
        assert not values["ponder_cost"].any()
        if not variant.siamese:
            state = model.model(batch["input_ids"], batch["attention_mask"]).last_hidden_state
            tokens = batch["attention_mask"].bool()
            assert_close(state[tokens], model.get_input_embeddings()(batch["input_ids"])[tokens])
