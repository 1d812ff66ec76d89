import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_recurrent.metrics import bits_per_token

NATS = st.floats(0, 50)
TOKENS = st.lists(st.tuples(NATS, st.booleans()), max_size=6)
SEQUENCES = st.lists(TOKENS, min_size=1, max_size=5).filter(lambda rows: any(kept for row in rows for _, kept in row))


@settings(max_examples=60, deadline=None)
@given(SEQUENCES)
def test_against_a_loop_over_tokens(sequences):
    total, number = 0.0, 0
    for sequence in sequences:
        for nats, kept in sequence:
            if kept:
                total, number = total + nats, number + 1
    losses = [[nats for nats, _ in row] for row in sequences]
    mask = [[kept for _, kept in row] for row in sequences]
    expected = total / number / math.log(2)
    assert bits_per_token(losses, mask=mask) == pytest.approx(expected)
    kept_only = [[nats for nats, kept in row if kept] for row in sequences]
    assert bits_per_token(kept_only) == pytest.approx(expected)


def test_uniform_over_eight_symbols_takes_three_bits():
    assert bits_per_token(np.full((2, 5), math.log(8))) == pytest.approx(3)


def test_what_is_masked_may_be_anything():
    losses = np.array([[math.log(2), np.nan], [math.log(2), -1.0], [np.inf, np.inf]])
    assert bits_per_token(losses, mask=np.array([[1, 0], [1, 0], [0, 0]])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("losses", "mask", "message"),
    [
        ([[], []], None, "holds no token that counts"),
        ([[1.0, -2.0]], None, "at least 0, got -2.0: change the sign"),
        ([[1.0, math.nan]], None, "at least 0, got nan"),
        ([[1.0, 2.0], [3.0]], [[1], [1, 1]], None),
    ],
)
def test_bad_input(losses, mask, message):
    with pytest.raises((ValueError, IndexError), match=message):
        bits_per_token(losses, mask)
