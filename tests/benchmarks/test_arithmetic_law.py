"""Sampling given the depth: the distribution of the described process, exactly, and what rejection gives."""

import random
from collections import Counter
from itertools import islice, product

import arithmetic_rejection as naive
import pytest
from data_router_files import counts, deviation, read, statistics

from hf_recurrent.benchmarks.simple_arithmetic import distribution
from hf_recurrent.benchmarks.simple_arithmetic.benchmark import SimpleArithmetic
from hf_recurrent.benchmarks.simple_arithmetic.distribution import ConditionalSampler, Process
from hf_recurrent.benchmarks.simple_arithmetic.expressions import make_example

SMALL = [
    Process(2, 3, 0.3, 4),
    Process(3, 3, 0.2, 7),
    Process(1, 2, 0.4, 3),
    Process(2, 2, 0.6, 2),
    Process(0, 2, 0.5, 3),
]


@pytest.mark.parametrize("process", SMALL)
def test_probabilities_are_those_of_the_process(process):
    """All shapes, with their probabilities, by carrying out the process."""
    exact = naive.grown_shapes(process)
    assert sum(exact.values()) == pytest.approx(1)
    sampler = ConditionalSampler(process)
    for depth in range(process.max_depth + 1):
        for operators in range(process.max_operators + 1):
            whole = sum(
                weight
                for shape, weight in exact.items()
                if naive.shape_depth(shape) == depth and naive.shape_size(shape) == operators
            )
            if depth >= process.min_depth:
                assert sampler.reached[depth, operators] == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("process", SMALL[:2])
def test_shapes_are_drawn_with_their_probabilities(process):
    exact, sampler, rng = naive.grown_shapes(process), ConditionalSampler(process), random.Random(5)
    exact = {shape: weight for shape, weight in exact.items() if naive.shape_size(shape) <= process.max_operators}
    for depth in range(process.min_depth, process.max_depth + 1):
        possible = {shape: weight for shape, weight in exact.items() if naive.shape_depth(shape) == depth}
        drawn = Counter(naive.shape_of(sampler.draw(depth, rng)) for _ in range(4000))
        assert set(drawn) <= set(possible)
        # the expected counts at a hundred times the size are as good as exact
        expected = {shape: 400_000 * weight / sum(possible.values()) for shape, weight in possible.items()}
        assert deviation(drawn, expected) < 4


def rows_of(split, **params):
    params = SimpleArithmetic().resolve("original", params)
    (shards,) = [shards for name, shards in SimpleArithmetic().plan("original", params).items() if name == split]
    return [row for shard in shards for row in shard.examples()]


@pytest.mark.parametrize(
    ("name", "split", "params"),
    [
        ("train", "train", {"num_train": 20_200, "disjoint": False}),
        ("iid", "test", {"num_test": 2200, "disjoint": False, "num_train": 0}),
        ("valid", "validation_ood", {"num_validation": 2000, "num_train": 0}),
        ("test_deeper", "test_ood", {"num_test": 2000, "num_train": 0}),
    ],
)
def test_statistics_of_the_authors_sets(name, split, params):
    """At equal n, those sets have equal parts of every depth, and the same distributions."""
    expected, rows = statistics("simple_arithmetic")[name], rows_of(split, **params)
    assert len(rows) == expected["n"] == len({row["text"] for row in rows})
    # their code counts levels, and calls expressions of one operation 1
    depths = {str(max(1, int(code) - 1)): count for code, count in expected["depth_code"].items()}
    assert counts(row["depth"] for row in rows) == depths
    assert deviation(counts(row["num_operators"] for row in rows), expected["n_ops"]) < 4
    assert deviation(counts(row["label"] for row in rows), expected["labels"]) < 4
    sides = counts((row["text"][2] == "(", row["text"][-3] == ")") for row in rows)
    assert deviation(sides, expected["top_operand_is_expr(left,right)"]) < 4
    assert max(row["length"] for row in rows) == 49
    sample = [make_example(row["text"]) for row in read("simple_arithmetic") if row["set"] == name]
    assert {row["depth"] for row in sample} <= {row["depth"] for row in rows}


def test_counts_by_listing():
    """All shapes of depth up to 3, with 10 digits and 2 operators at each place."""
    found = Counter()
    for shape in naive.shapes(3, 0.5):
        size = naive.shape_size(shape)
        found[naive.shape_depth(shape), size] += 10 ** (size + 1) * 2**size
    for most in (1, 3, 5, 9):
        for depth in range(4):
            count = sum(n for (d, size), n in found.items() if d == depth and size <= most)
            assert distribution.count_expressions(depth, most) == count
    assert distribution.count_expressions(2, 12) == 88_000
    assert distribution.capacity(2, 12) == 66_000
    assert distribution.capacity(1, 12) == 200 == len(set(distribution.listed()))
    assert {make_example(text)["depth"] for text in distribution.listed()} == {1}


@pytest.mark.parametrize(
    ("rows", "capacities", "sizes"),
    [
        (
            100_200,
            {1: 200, 2: 66_000, 3: 10**9, 4: 10**9, 5: 10**9},
            {1: 200, 2: 25_000, 3: 25_000, 4: 25_000, 5: 25_000},
        ),
        (1000, {7: 10**9, 8: 10**9}, {7: 500, 8: 500}),
        (5, {2: 10, 3: 10, 4: 10}, {2: 2, 3: 2, 4: 1}),
        (10, {2: 1, 3: 2, 4: 7}, {2: 1, 3: 2, 4: 7}),
        (11, {2: 1, 3: 2, 4: 7}, None),
        (0, {2: 1, 3: 2}, {2: 0, 3: 0}),
        (1, {2: 1, 3: 2}, {2: 1, 3: 0}),
    ],
)
def test_sizes_of_bins(rows, capacities, sizes):
    assert distribution.bin_sizes(rows, capacities) == sizes


def test_what_is_taken_is_left_out():
    sampler = ConditionalSampler(Process(1, 1, 0.5, 1))
    every = {f"({a}{operator}{b})" for a, operator, b in product(range(10), "+*", range(10))}
    taken = frozenset(sorted(every)[:50])
    drawn = list(islice(distribution.first_different(sampler, 1, random.Random(0), taken), 150))
    assert set(drawn) == every - taken
