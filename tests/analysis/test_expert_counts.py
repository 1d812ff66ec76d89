"""Counts and measures of experts, against plain loops."""

import math

import numpy as np
import pytest

from hf_recurrent.analysis.experts import (
    ExpertCounts,
    load_balance,
    most_frequent,
    most_informative,
    pointwise_mutual_information,
)

ROWS, TOKENS, STEPS, EXPERTS, PER_TOKEN, VOCABULARY = 4, 5, 3, 6, 2, 9


def routed(seed=0):
    """Experts (B, S, L, k), -1 once a token has halted, and token ids (B, S)."""
    generator = np.random.default_rng(seed)
    experts = np.stack([generator.permutation(EXPERTS)[:PER_TOKEN] for _ in range(ROWS * TOKENS * STEPS)]).reshape(
        ROWS, TOKENS, STEPS, PER_TOKEN
    )
    steps = generator.integers(0, STEPS + 1, (ROWS, TOKENS))
    experts[np.arange(STEPS) >= steps[..., None]] = -1
    return experts, generator.integers(0, VOCABULARY, (ROWS, TOKENS))


def test_counts_are_those_of_plain_loops():
    counts = ExpertCounts(STEPS + 1, EXPERTS, VOCABULARY, PER_TOKEN)
    usage = np.zeros((STEPS + 1, EXPERTS), dtype=int)
    tokens = np.zeros((EXPERTS, VOCABULARY), dtype=int)
    for seed in range(3):
        experts, ids = routed(seed)
        counts.add(experts, ids)
        for row, place, step, slot in np.ndindex(experts.shape):
            expert = experts[row, place, step, slot]
            if expert >= 0:
                usage[step, expert] += 1
                tokens[expert, ids[row, place]] += 1
    assert counts.usage.tolist() == usage.tolist()
    assert counts.tokens.tolist() == tokens.tolist()
    assert usage.sum() == tokens.sum() > 0


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


def test_tokens_in_order():
    counts = np.array([3, 9, 0, 9, 6, 7])
    assert most_frequent(counts, 3) == [1, 3, 5]
    assert most_frequent(counts, 9) == [1, 3, 5, 4, 0]
    bits = np.array([5.0, 0.5, -math.inf, 0.5, 2.0, -1.0])
    # the first is too rare, the last meets the expert less often than by chance
    assert most_informative(bits, counts, 5) == [4, 1, 3]
    assert most_informative(bits, counts, 1) == [4]
    assert most_informative(bits, counts - 1, 5) == [1, 3]
