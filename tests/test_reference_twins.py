"""Models against their naive twins: random sequences of odd lengths, padded, with gradients."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from reference.block import block
from reference.halting import halt_row, halt_tokens
from support.compare import assert_same
from support.examples import few
from support.families import BY_NAME, VOCAB_SIZE, make_model

NAMES = ["ut", "ut_global", "gut", "gut_token", "gut_no_gate", "gut_no_transition", "gut_length_cap"]
MARGIN = 1e-4


@st.composite
def padded_rows(draw):
    """Token ids and mask of one to three sequences, padded on either side."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    width = max(lengths) + draw(st.integers(0, 2))
    ids = torch.randint(
        4, VOCAB_SIZE, (len(lengths), width), generator=torch.Generator().manual_seed(draw(st.integers(0, 99)))
    )
    mask = torch.zeros_like(ids)
    for row, length in zip(mask, lengths, strict=True):
        start = draw(st.sampled_from([0, width - length]))
        row[start : start + length] = 1
    return ids, mask


def gradients_of(model, loss) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: torch.zeros(()) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", NAMES)
@few(4)
@given(rows=padded_rows(), threshold=st.sampled_from([0.3, 0.8, 0.95, 1.0]))
def test_model_is_its_naive_twin(name, rows, threshold):
    variant = BY_NAME[name]
    model = make_model(variant, halting_threshold=threshold).model
    ids, mask = rows
    halt = halt_tokens if variant.halting == "token" else halt_row
    twins = [halt(model, model.embed_tokens(row[valid.bool()])) for row, valid in zip(ids, mask, strict=True)]
    assume(min(margin for *_, margin in twins) > MARGIN)
    output = model(ids, mask)
    valid = mask.bool()
    states, soft = output.last_hidden_state[valid], torch.cat([soft for soft, *_ in twins])
    cost = torch.stack([cost for _, cost, *_ in twins])
    steps = output.ponder_steps[valid] if variant.halting == "token" else output.ponder_steps
    assert steps.tolist() == [step for *_, row_steps, _ in twins for step in row_steps]
    assert_same({"states": states, "cost": output.ponder_cost}, {"states": soft, "cost": cost}, tolerance=2e-5)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    actual = gradients_of(model, (states * weights).sum() + (output.ponder_cost**2).sum())
    expected = gradients_of(model, (soft * weights).sum() + (cost**2).sum())
    assert_same(actual, {key: value.expand_as(actual[key]) for key, value in expected.items()}, tolerance=1e-4)


@few(4)
@given(rows=padded_rows())
def test_fixed_depth_is_its_naive_twin(rows):
    ids, mask = rows
    for name in ("gut_no_halt", "xpos_transformer"):
        model = make_model(BY_NAME[name]).model
        blocks = model.layers if name == "xpos_transformer" else [model.block] * model.config.num_hidden_layers
        with torch.no_grad():
            output = model(ids, mask).last_hidden_state
            for row, valid, states in zip(ids, mask.bool(), output, strict=True):
                expected = model.embed_tokens(row[valid])
                for layer in blocks:
                    expected = block(layer, expected, expected)
                torch.testing.assert_close(states[valid], expected, rtol=0, atol=2e-5 * max(1.0, expected.abs().max()))


@pytest.mark.parametrize(("pooling", "expected"), [("cls", [0, 0]), ("end", [2, 1]), ("mean", None)])
def test_pooling_reads_tokens_wherever_they_are(pooling, expected):
    model = make_model(BY_NAME["gut"], pooling=pooling).model
    ids = torch.tensor([[9, 8, 7, 0], [0, 0, 6, 5]])
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]])
    with torch.no_grad():
        output = model(ids, mask)
    for row in range(2):
        tokens = output.last_hidden_state[row][mask[row].bool()]
        pooled = tokens.mean(0) if expected is None else tokens[expected[row]]
        torch.testing.assert_close(output.pooler_output[row], pooled, rtol=0, atol=1e-5)
