"""Thinning, shards and seeds."""

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.sampling import EXAMPLES_PER_SHARD, keep_probability, make_rng, make_shards, shuffled


@given(st.floats(1e-12, 1e4), st.floats(1e-4, 1.5))
def test_keep_probability_is_a_probability(draws, fraction):
    assert 0.0 <= keep_probability(draws, fraction) <= 1.0 + 1e-12


@given(st.floats(1e-6, 50), st.floats(0.01, 0.99))
def test_keep_probability_gives_the_wanted_inclusion(draws, fraction):
    included = -math.expm1(-fraction * draws * keep_probability(draws, fraction))
    assert included == pytest.approx(-fraction * math.expm1(-draws), rel=1e-6)


def test_a_thinned_pool_is_a_random_part_of_the_whole_pool():
    """Ten frequent and a thousand rare items: what share of a pool is frequent?"""

    def pool(draws, fraction, rng):
        found = set()
        for _ in range(int(draws * fraction)):
            item = int(rng.random() * 10) if rng.random() < 0.5 else 10 + int(rng.random() * 1000)
            expected = draws * (0.05 if item < 10 else 0.0005)
            if rng.random() < keep_probability(expected, fraction):
                found.add(item)
        return found

    rng = Random(0)
    frequent = Counter()
    for fraction in (1.0, 0.2):
        pools = [pool(600, fraction, rng) for _ in range(200)]
        frequent[fraction] = sum(item < 10 for p in pools for item in p) / sum(map(len, pools))
    assert frequent[1.0] == pytest.approx(frequent[0.2], rel=0.1)


@given(st.integers(0, 20_000))
def test_shards_cover_all_rows_in_order(rows):
    shards = make_shards(map, range(rows), str)
    assert all(shard.arguments[1] is str for shard in shards)
    assert [row for shard in shards for row in shard.arguments[0]] == list(range(rows))
    assert all(0 < len(shard.arguments[0]) <= EXAMPLES_PER_SHARD for shard in shards)


def test_seeds_tell_every_part_apart():
    keys = [("a", 1), ("a", 2), ("b", 1), ("a1",), ("a", "1")]
    assert len({make_rng(*key).random() for key in keys}) == len(keys)
    assert make_rng("a", 1).random() == make_rng("a", 1).random()
    assert sorted(shuffled(range(100), make_rng("a"))) == list(range(100))
