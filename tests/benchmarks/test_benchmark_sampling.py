"""Thinning, shards and seeds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.sampling import EXAMPLES_PER_SHARD, keep_probability, make_shards


@given(st.floats(1e-12, 1e4), st.floats(1e-4, 1.5))
def test_keep_probability_is_a_probability(draws, fraction):
    assert 0.0 <= keep_probability(draws, fraction) <= 1.0 + 1e-12


@given(st.floats(1e-6, 50), st.floats(0.01, 0.99))
def test_keep_probability_gives_the_wanted_inclusion(draws, fraction):
    included = -math.expm1(-fraction * draws * keep_probability(draws, fraction))
    assert included == pytest.approx(-fraction * math.expm1(-draws), rel=1e-6)


@given(st.integers(0, 20_000))
def test_shards_cover_all_rows_in_order(rows):
    shards = make_shards(map, range(rows), str)
    assert all(shard.arguments[1] is str for shard in shards)
    assert [row for shard in shards for row in shard.arguments[0]] == list(range(rows))
    assert all(0 < len(shard.arguments[0]) <= EXAMPLES_PER_SHARD for shard in shards)
