"""A halting decision does not depend on where the head's weights lie in memory, as a file's mapping chooses it."""

import pytest
import torch

from hf_recurrent.models.ops.layers import ALIGNMENT_BYTES, ReproducibleLinear
from support.families import BY_NAME, make_batch, make_model

FLOAT_BYTES = 4
SHIFTS = (4, 8, 20, 32, 60)
NAMES = ("ut", "gut", "gutlb", "ndr_act", "sut")


def shift_storage(module: torch.nn.Module, num_bytes: int) -> None:
    """Move every parameter to a storage that begins `num_bytes` after an aligned address."""
    for parameter in module.parameters():
        buffer = torch.empty(parameter.numel() + ALIGNMENT_BYTES // FLOAT_BYTES)
        assert buffer.data_ptr() % ALIGNMENT_BYTES == 0
        start = num_bytes // FLOAT_BYTES
        moved = buffer[start : start + parameter.numel()].view(parameter.shape)
        moved.copy_(parameter.data)
        parameter.data = moved
        assert parameter.data_ptr() % ALIGNMENT_BYTES == num_bytes


@pytest.mark.parametrize("out_features", [1, 2, 24])
@pytest.mark.parametrize("units", [1, 2, 7])
def test_a_reproducible_linear_map_is_the_same_at_every_address(out_features, units):
    layer, states = ReproducibleLinear(67, out_features), torch.randn(units, 67)
    with torch.no_grad():
        expected = layer(states)
        torch.testing.assert_close(expected, torch.nn.functional.linear(states, layer.weight, layer.bias))
        for num_bytes in SHIFTS:
            shift_storage(layer, num_bytes)
            assert torch.equal(layer(states), expected)


def test_a_reproducible_linear_map_has_the_gradients_of_a_linear_map():
    layer, states = ReproducibleLinear(9, 2).double(), torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (states,))


@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_the_same_at_every_address(name):
    """Even with a threshold that some unit's halting mass meets exactly."""
    variant = BY_NAME[name]
    model, batch = make_model(variant), make_batch(variant)
    with torch.no_grad():
        output = model(**batch, output_halting=True)
        probabilities = output.halting_probabilities
        first = probabilities[..., 1 if name == "sut" else 0]
        model.config.halting_threshold = float(first[(first > 0.01) & (first < 0.99)].median())
        expected = model(**batch, output_halting=True)
        for num_bytes in SHIFTS:
            shift_storage(model.model.halting_head, num_bytes)
            shifted = model(**batch, output_halting=True)
            assert torch.equal(shifted.ponder_steps, expected.ponder_steps)
            assert torch.equal(shifted.halting_probabilities, expected.halting_probabilities)
