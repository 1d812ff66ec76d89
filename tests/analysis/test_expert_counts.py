"""Counts and measures of experts, against plain loops."""

import math

import numpy as np
import pytest

from hf_recurrent.analysis.experts import (
    load_balance,
    pointwise_mutual_information,
)

ROWS, TOKENS, STEPS, EXPERTS, PER_TOKEN, VOCABULARY = 4, 5, 3, 6, 2, 9


def test_balance_is_entropy_over_its_most():
    assert load_balance(np.array([5, 5, 5, 5])) == pytest.approx(1)
    assert load_balance(np.array([0, 7, 0])) == 0
    assert math.copysign(1, load_balance(np.array([0, 7, 0]))) == 1
    expected = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) / math.log(3)
    assert load_balance(np.array([1, 3, 0])) == pytest.approx(expected)
    assert load_balance(np.array([4])) is None
    assert load_balance(np.array([0, 0])) is None


def test_mutual_information_is_zero_where_tokens_are_alike_to_experts():
    counts = np.outer([1, 2, 3], [4, 1, 5])
    assert pointwise_mutual_information(counts) == pytest.approx(np.zeros((3, 3)), abs=1e-12)
    counts = np.array([[8, 0], [4, 4]])
    found = pointwise_mutual_information(counts)
    assert found[0, 0] == pytest.approx(math.log2((8 / 16) / (8 / 16 * 12 / 16)))
    assert found[1, 1] == pytest.approx(math.log2((4 / 16) / (8 / 16 * 4 / 16)))
    assert found[1, 0] < 0
    assert found[0, 1] == -math.inf
    assert (pointwise_mutual_information(np.zeros((2, 2), dtype=int)) == -math.inf).all()
