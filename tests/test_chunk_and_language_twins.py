"""Chunk-recurrent models and causal language models against their naive twins, with gradients."""

import pytest
import torch

from reference.block import block
from reference.chunks import read
from reference.halting import halt_causally
from support.compare import assert_same
from support.families import BY_NAME, LANGUAGE_BY_NAME, VOCAB_SIZE, make_language_model, make_model, slow

MARGIN = 1e-4
TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
# the other architectures are made of other parts, which have twins of their own
SHARED_BLOCKS = ("xpos_transformer", "ut", "gut", "tlb", "gutlb")
# and those that mix no states are in test_depth_objectives.py and test_early_exit.py, those that embed types in
# test_token_types.py
WITH_TWIN = [
    name
    for name, variant in LANGUAGE_BY_NAME.items()
    if variant.architecture in SHARED_BLOCKS and "depth_objective" not in variant.fields and not variant.typed
]


def padded_rows(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Three sequences of nine, five and one tokens, padded on the left, the right and both sides."""
    ids = torch.randint(4, VOCAB_SIZE, (3, 10), generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros_like(ids)
    mask[0, 1:], mask[1, :5], mask[2, 3] = 1, 1, 1
    return ids, mask.bool()


def twin_of(model, states: torch.Tensor, width: int):
    """-> final states (n, E), ponder cost or None, steps, final memory or None, margin of one sequence."""
    config = model.config
    if hasattr(config, "chunk_size"):
        return read(model, states, width)
    if hasattr(model, "halting_head"):
        soft, cost, steps, margin = halt_causally(model, states)
        return soft, cost, steps, None, margin
    shared = hasattr(model, "block")
    for layer in [model.block] * config.num_hidden_layers if shared else model.layers:
        states = block(layer, states, states, causal=True)
    return states, None, [config.num_hidden_layers] * len(states) if shared else [], None, 1.0


def gradients_of(model, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def check(model, threshold: float, backward: bool) -> None:
    config = model.config
    if hasattr(config, "halting_threshold"):
        config.halting_threshold = threshold
    for seed in range(50):
        ids, mask = padded_rows(seed)
        twins = [twin_of(model, model.embed_tokens(row[valid]), 10) for row, valid in zip(ids, mask, strict=True)]
        if min(margin for *_, margin in twins) > MARGIN:
            break
    else:
        pytest.fail("each seed has a decision that is a near tie")
    states, costs, steps, memories, _ = zip(*twins, strict=True)
    output = model(ids, mask)
    actual, expected = {"states": output.last_hidden_state[mask]}, {"states": torch.cat(states)}
    if costs[0] is not None:
        actual["cost"], expected["cost"] = output.ponder_cost, torch.stack(costs)
    if output.ponder_steps is not None:
        executed = output.ponder_steps[output.ponder_steps >= 0]
        assert executed.tolist() == [step for row in steps for step in row]
    if memories[0] is not None:
        memory = model.memory_norm(torch.stack(memories))
        actual["pooled"] = output.pooler_output
        expected["pooled"] = memory.mean(1) if config.pooling == "mean" else memory[:, -1]
    assert_same(actual, expected, TOLERANCE)
    if backward:

        def loss(values):
            generator = torch.Generator().manual_seed(1)
            return sum((value * torch.randn(value.shape, generator=generator)).sum() for value in values.values())

        ours, theirs = gradients_of(model, loss(actual)), gradients_of(model, loss(expected))
        assert_same(ours, theirs, GRADIENT_TOLERANCE)


def at_thresholds(names, variants):
    """Each variant, and those that halt at another threshold, too; those of the core are quick at the first."""
    return [
        *((name, 0.95) if variants[name].core else slow(name, 0.95) for name in names),
        *(slow(name, 0.5) for name in names if variants[name].halts),
    ]


@pytest.mark.parametrize(
    ("name", "threshold"), at_thresholds(["tlb", "tlb_balanced", "gutlb", "gutlb_token", "gutlb_count"], BY_NAME)
)
def test_encoder_is_its_naive_twin(name, threshold):
    check(make_model(BY_NAME[name]).model, threshold, backward=threshold == 0.95)


@pytest.mark.parametrize(("name", "threshold"), at_thresholds(WITH_TWIN, LANGUAGE_BY_NAME))
def test_language_model_is_its_naive_twin(name, threshold):
    check(make_language_model(LANGUAGE_BY_NAME[name]).model, threshold, backward=threshold == 0.95)
