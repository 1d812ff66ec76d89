import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_recurrent.metrics import bits_per_token, bits_per_unit, token_sums

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
    sums, counts = token_sums(losses, mask=mask)
    assert bits_per_token(sums, counts) == bits_per_token(losses, mask=mask)
    assert counts.tolist() == [sum(row) for row in mask]
    kept_only = [[nats for nats, kept in row if kept] for row in sequences]
    assert bits_per_token(kept_only) == pytest.approx(expected)


def test_uniform_over_eight_symbols_takes_three_bits():
    assert bits_per_token(np.full((2, 5), math.log(8))) == pytest.approx(3)


def test_long_sequences_weigh_more():
    """One token of 9 bits, nine tokens of 1 bit: 1.8 a token, where a mean over sequences would say 5."""
    nats = [9 * math.log(2), 9 * math.log(2)]
    assert bits_per_token(nats, [1, 9]) == pytest.approx(1.8)


def test_what_is_masked_may_be_anything():
    losses = np.array([[math.log(2), np.nan], [math.log(2), -1.0], [np.inf, np.inf]])
    assert bits_per_token(losses, mask=np.array([[1, 0], [1, 0], [0, 0]])) == pytest.approx(1)


def test_an_impossible_token_takes_infinitely_many_bits():
    assert bits_per_token([[0.0, math.inf]]) == math.inf


def test_bits_per_byte_shares_the_sums():
    sums = [6 * math.log(2), 2 * math.log(2)]
    assert bits_per_unit(sums, [12, 4], "num_bytes") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"negative_log_likelihoods": [1.0, 2.0]}, "one sum per sequence: give num_tokens"),
        ({"negative_log_likelihoods": [1.0], "num_tokens": [2], "mask": [[1]]}, "and no mask"),
        ({"negative_log_likelihoods": [[1.0]], "num_tokens": [1]}, "num_tokens is known: leave it out"),
        ({"negative_log_likelihoods": [1.0, 2.0], "num_tokens": [1]}, r"negative_log_likelihoods has shape \(2,\)"),
        ({"negative_log_likelihoods": [1.0], "num_tokens": [[1]]}, "num_tokens has shape"),
        ({"negative_log_likelihoods": [1.0], "num_tokens": [1.5]}, "num_tokens must be whole numbers.*got 1.5"),
        ({"negative_log_likelihoods": [1.0], "num_tokens": [-1]}, "num_tokens must be whole numbers.*got -1"),
        ({"negative_log_likelihoods": [1.0, 2.0], "num_tokens": [0, 3]}, r"num_tokens\[0\] is 0"),
        ({"negative_log_likelihoods": [], "num_tokens": []}, "num_tokens adds up to 0"),
        ({"negative_log_likelihoods": [[], []]}, "num_tokens adds up to 0"),
        ({"negative_log_likelihoods": [[1.0, -2.0]]}, "at least 0, got -2.0: change the sign"),
        ({"negative_log_likelihoods": [[1.0, math.nan]]}, "at least 0, got nan"),
        ({"negative_log_likelihoods": [-1.0], "num_tokens": [1]}, "change the sign"),
        ({"negative_log_likelihoods": [[1.0], 2.0]}, "a mixture is neither"),
        ({"negative_log_likelihoods": np.ones((1, 2, 3))}, "must be N sequences of numbers"),
        ({"negative_log_likelihoods": [[1.0, 2.0], [3.0]], "mask": [[1], [1, 1]]}, "sequences of the same lengths"),
        ({"negative_log_likelihoods": [[1.0]], "mask": [[-100]]}, "mask must hold only 0 and 1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        bits_per_token(**arguments)
