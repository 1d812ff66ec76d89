"""The differentiable neural computer: its addressing, and the layer against its naive twin."""

import pytest
import torch

from hf_recurrent.models.rnn.configuration_rnn import RNNConfig
from hf_recurrent.models.rnn.dnc import DNCLayer
from hf_recurrent.models.rnn.dnc_memory import (
    allocation_weights,
    content_weights,
    next_links,
    sharpened,
)
from hf_recurrent.models.rnn.modeling_rnn import RNNModel
from reference.dnc import run_row
from support.compare import assert_close

pytestmark = pytest.mark.architecture("rnn")

ROWS, CELLS, WIDTH, HEADS = 2, 4, 3, 2
IMPROVEMENTS = ("memory_masking", "memory_deallocation", "link_sharpening")


def random(*size: int) -> torch.Tensor:
    return torch.rand(*size, dtype=torch.float64).requires_grad_()


def weights(*size: int) -> torch.Tensor:
    """That sum to less than one."""
    return (torch.rand(*size, dtype=torch.float64).softmax(-1) * 0.9).requires_grad_()


# each with arguments for which it is smooth
FUNCTIONS = {
    "content": (
        lambda *arguments: content_weights(*arguments, torch.zeros(ROWS, HEADS, 0)),
        lambda: (random(ROWS, CELLS, WIDTH), random(ROWS, HEADS, WIDTH), random(ROWS, HEADS)),
    ),
    "masked_content": (
        content_weights,
        lambda: (
            random(ROWS, CELLS, WIDTH),
            random(ROWS, HEADS, WIDTH),
            random(ROWS, HEADS),
            random(ROWS, HEADS, WIDTH),
        ),
    ),
    "allocation": (allocation_weights, lambda: (random(ROWS, CELLS),)),
    "links": (next_links, lambda: (random(ROWS, CELLS, CELLS), weights(ROWS, CELLS), weights(ROWS, CELLS))),
    "sharpened": (sharpened, lambda: (weights(ROWS, HEADS, CELLS), random(ROWS, HEADS))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function, arguments = FUNCTIONS[name]
    assert torch.autograd.gradcheck(function, arguments())


def test_empty_memories_have_gradients():
    """Nothing has a direction in an empty memory, which must not make the gradient NaN."""
    slots = torch.zeros(ROWS, CELLS, WIDTH, requires_grad=True)
    keys, strengths = torch.randn(ROWS, HEADS, WIDTH), torch.ones(ROWS, HEADS)
    for masks in (torch.zeros(ROWS, HEADS, 0), torch.rand(ROWS, HEADS, WIDTH)):
        found = content_weights(slots, keys, strengths, masks)
        torch.testing.assert_close(found, torch.full_like(found, 1 / CELLS))
        (gradient,) = torch.autograd.grad(found.square().sum(), slots)
        assert gradient.isfinite().all()


def test_the_first_of_equally_free_cells_is_allocated():
    usage = torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.5, 1.0, 0.25, 1.0]])
    expected = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.125, 0.0, 0.75, 0.0]])
    torch.testing.assert_close(allocation_weights(usage), expected, rtol=0, atol=1e-5)


def config_of(num_layers: int = 1, **changes) -> RNNConfig:
    sizes = {"hidden_size": 6, "embedding_size": 5, "num_memory_cells": CELLS, "memory_cell_size": WIDTH}
    return RNNConfig(
        **sizes, vocab_size=24, cell="dnc", num_read_heads=HEADS, num_hidden_layers=num_layers, dropout=0.0, **changes
    )


def lively_model(config: RNNConfig) -> RNNModel:
    """Gates and strengths away from where they start."""
    model = RNNModel(config).double().eval()
    for parameter in model.dnc.parameters():
        parameter.data.mul_(2.0)
    return model


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("missing", [*IMPROVEMENTS, "none", "all"])
def test_model_is_its_naive_twin(missing, num_layers):
    switches = {name: missing not in (name, "all") for name in IMPROVEMENTS}
    config = config_of(num_layers, **switches)
    model = lively_model(config)
    ids = torch.randint(4, 24, (3, 7))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1], [1, 1, 0, 1, 0, 1, 0]]).bool()
    actual = model(ids, mask).last_hidden_state
    twins = [
        run_row(model.dnc.cell, config, model.embed_tokens(row[valid])) for row, valid in zip(ids, mask, strict=True)
    ]
    expected = torch.cat(twins)
    torch.testing.assert_close(actual[mask], expected)
    assert not actual[~mask].any()
    factors = torch.randn_like(expected)
    named = dict(model.named_parameters())
    ours, theirs = (
        torch.autograd.grad((states * factors).sum(), list(named.values())) for states in (actual[mask], expected)
    )
    for name, gradient, twin in zip(named, ours, theirs, strict=True):
        torch.testing.assert_close(gradient, twin, msg=lambda message, name=name: f"{name}: {message}")
        assert gradient.any(), name


def test_memory_stays_in_single_precision():
    model = RNNModel(config_of()).to(torch.bfloat16).eval()
    inputs, mask = torch.randn(2, 3, 5, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.bool)
    states, *_, final = model.dnc(inputs, mask, None, {})
    dtypes = {name: part.dtype for name, part in final.items()}
    assert states.dtype is dtypes.pop("hidden") is dtypes.pop("cell") is torch.bfloat16
    assert set(dtypes.values()) == {torch.float32}


def test_fresh_controllers_remember():
    config = config_of(2)
    controller = RNNModel(config).dnc.cell.controller
    size = config.hidden_size
    for input_proj in controller.input_proj:
        assert torch.equal(input_proj.bias, torch.cat((torch.ones(size), torch.zeros(3 * size))))
    fan_in = config.embedding_size + HEADS * WIDTH + 2 * size
    bound = (6 / (size + fan_in)) ** 0.5
    weight = controller.below_proj[0].weight
    assert 0.8 * bound < weight[:-size].abs().max() <= bound
    assert bound < weight[-size:].abs().max() <= bound * 5 / 3


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
def test_checkpointing_runs_every_token_again():
    model = RNNModel(config_of()).train()
    ids, calls = torch.randint(4, 24, (2, 5)), []
    model.dnc.cell.interface_proj.register_forward_pre_hook(lambda *_: calls.append(1))
    gradients = {}
    for enabled in (False, True):
        if enabled:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        calls.clear()
        model(ids).last_hidden_state.square().sum().backward()
        assert len(calls) == 5 * (1 + enabled)
        gradients[enabled] = [parameter.grad.clone() for parameter in model.parameters()]
    assert_close(gradients[True], gradients[False])


def test_sequences_leave_at_their_ends():
    layer = DNCLayer(config_of(2))
    lengths = torch.tensor([2, 5, 1, 4])
    states, mask = torch.randn(4, 5, 5), torch.arange(5) < lengths[:, None]
    with torch.no_grad():
        *_, before = layer(torch.randn(4, 3, 5), torch.ones(4, 3, dtype=torch.bool), None, {})
    seen = []
    layer.cell.register_forward_pre_hook(lambda _, arguments: seen.append(len(arguments[0])))
    results = []
    for ends in (None, lengths):
        outputs, controller_states, read_weights, final = layer(states, mask, ends, before)
        tokens = [outputs, *controller_states, read_weights.transpose(1, 2)]
        values = [*(each[mask] for each in tokens), *final.values()]
        named = dict(layer.named_parameters())
        gradients = torch.autograd.grad(sum(value.square().sum() for value in values), named.values())
        results.append((values, dict(zip(named, gradients, strict=True))))
    whole, packed = results
    assert_close(packed, whole, tolerance=1e-5)
    assert seen == [4] * 5 + [4, 3, 2, 2, 1]
