"""Sampling given the dependency depth: the distribution of the described process, exactly, and what rejection gives."""

import json
import random
from collections import Counter
from itertools import product
from pathlib import Path

import naive_listops as naive
import pytest
from data_router_files import counts, deviation

from hf_recurrent.benchmarks.listops_depth import benchmark
from hf_recurrent.benchmarks.listops_depth.expressions import make_example
from hf_recurrent.benchmarks.listops_depth.rules import ROOT, Source, counting_rules, sampling_rules, shortest
from hf_recurrent.benchmarks.listops_depth.sampler import DepthSampler, best_tilt
from hf_recurrent.benchmarks.listops_depth.weights import Weights, count, fewest, polynomials

STATISTICS = json.loads((Path(__file__).with_name("data") / "listops_depth" / "statistics.json").read_text())
SOURCES = [Source(1, 2, 22, 0.6), Source(2, 3, 30, 0.6), Source(3, 3, 26, 0.85)]


@pytest.fixture(scope="module", params=SOURCES, ids=str)
def rejection(request):
    """A source, how many trees were drawn, and those of every depth that are short enough."""
    source, rng, draws = request.param, random.Random(3), 14_000
    found = {depth: [] for depth in range(source.low, source.high + 1)}
    for _ in range(draws):
        tree = naive.sample(source.low + 1, source.high + 1, rng, source.value_probability)
        depth = naive.evaluate(tree)[1] - 1
        if naive.size(tree) <= source.length_limit and depth in found:
            found[depth].append(tree)
    return source, draws, found


@pytest.fixture(scope="module")
def weights(rejection):
    """The exact distribution of the same source, by length."""
    source = rejection[0]
    return Weights(sampling_rules(source), source.high, polynomials(source.length_limit)).distributions[ROOT].exact


def excess(found, weights):
    """How many standard deviations chi-square lies above its mean if these weights are those of 0, 1, ..."""
    expected = {i: weight / sum(weights) * sum(found.values()) for i, weight in enumerate(weights)}
    assert all(expected[i] for i in found)
    rare = [i for i, mean in expected.items() if mean < 5]
    cells = [(found[i], mean) for i, mean in expected.items() if mean >= 5]
    cells.append((sum(found[i] for i in rare), sum(expected[i] for i in rare)))
    square = sum((count - mean) ** 2 / mean for count, mean in cells if mean)
    return (square - len(cells) + 1) / (2 * len(cells) - 2) ** 0.5


@pytest.mark.slow
def test_weights_are_probabilities(rejection, weights):
    _, draws, found = rejection
    for depth, trees in found.items():
        expected = draws * weights[depth].sum()
        assert len(trees) > 100
        assert abs(len(trees) - expected) < 5 * expected**0.5
        for axis, feature in ((0, naive.size), (1, lambda tree: naive.evaluate(tree)[0])):
            assert excess(Counter(map(feature, trees)), weights[depth].sum(axis=axis).tolist()) < 4


def words(tree):
    return naive.spell(tree).split()


def shape(tree):
    """Operators and structure of a short tree; the operator and where lists are for a longer one."""
    if naive.size(tree) <= 14:
        return " ".join("D" if word.isdigit() else word for word in words(tree))
    return tree[0], tuple(isinstance(argument, tuple) for argument in tree[1:])


FEATURES = {
    "length": naive.size,
    "value": lambda tree: naive.evaluate(tree)[0],
    "levels": naive.levels,
    "operators": lambda tree: sum(word.startswith("[") for word in words(tree)),
    "shape": shape,
    "ends": lambda tree: (isinstance(tree[1], tuple), isinstance(tree[-1], tuple)),
    "first": lambda tree: next(word for word in words(tree) if word.isdigit()),
    "last": lambda tree: [word for word in words(tree) if word.isdigit()][-1],
    "arguments": lambda tree: (tree[0], tuple(naive.evaluate(argument)[1] for argument in tree[1:])),
    "values": lambda tree: (tree[0], tuple(sorted(naive.evaluate(argument)[0] for argument in tree[1:]))[-2:]),
}


@pytest.mark.slow
def test_draws_are_those_of_rejection(rejection):
    source, _, found = rejection
    rng = random.Random(1)
    for depth, trees in found.items():
        sampler = DepthSampler(source, depth)
        trees = trees[:1500]
        drawn = [naive.parse(" ".join(sampler.draw(rng))) for _ in trees]
        assert all(naive.evaluate(tree)[1] == depth + 1 for tree in drawn)
        for name, feature in FEATURES.items():
            assert deviation(counts(map(feature, drawn)), counts(map(feature, trees))) < 4, (depth, name)


def distinct_rows(source, depth, size):
    rows = benchmark._distinct(benchmark.Request("test", 0, source), depth, size, 1, set())
    return [make_example(text.split()) for text in rows]


# rows of each depth
COMPARED = {
    "listops_iid": (Source(1, 5), 400),
    "listops_valid": (Source(6, 6), 800),
    "listops_test_depth": (Source(7, 8), 350),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_histograms_of_the_reference_implementation(name):
    """Different expressions of each depth; deep ones never repeat, so that fewer have the same distribution."""
    theirs, (source, size) = STATISTICS[name], COMPARED[name]
    depths = [int(depth) - 1 for depth in theirs["dependency_depth_code"]]
    assert depths == list(range(source.low, source.high + 1))
    ours = [row for depth in depths for row in distinct_rows(source, depth, size)]
    assert len({row["text"] for row in ours}) == len(ours)
    for row in ours:
        row["top_op"] = row["text"].split(" ", 1)[0]
        row["length_code"] = row["length"] + row["num_operators"]
        row["depth_code"] = row["structural_depth"] + 1
    keys = {"n_tokens": "length", "labels": "label", "n_ops": "num_operators"}
    for key in ("n_tokens", "length_code", "labels", "n_ops", "top_op", "depth_code"):
        assert deviation(counts(row[keys.get(key, key)] for row in ours), theirs[key]) < 4, key
    for depth, labels in theirs["labels_by_depth"].items():
        assert deviation(counts(row["label"] for row in ours if row["depth"] == int(depth) - 1), labels) < 4


@pytest.mark.parametrize("source", [Source(8, 8, shortest(8)), Source(1, 3, 9, 0.3), Source(3, 3, 100, 0.2)], ids=str)
def test_tight_and_wide_limits(source):
    """The least length that a depth has, trees that would hardly ever be so short, and a long limit."""
    rng = random.Random(0)
    for depth in range(source.low, min(source.high, (source.length_limit - 1) // 4) + 1):
        sampler = DepthSampler(source, depth)
        for _ in range(20):
            tree = naive.parse(" ".join(sampler.draw(rng)))
            assert naive.evaluate(tree)[1] == depth + 1
            assert naive.size(tree) <= source.length_limit
            assert naive.levels(tree) <= source.high + 1
    assert best_tilt(Source(8, 8, shortest(8)), 8) > best_tilt(Source(8, 8, 100), 8)


def two_lists():
    """All expressions of two operators and three digits."""
    for outer, inner, a, b, c in product(naive.OPERATORS, naive.OPERATORS, range(10), range(10), range(10)):
        yield outer, a, (inner, b, c)
        yield outer, (inner, a, b), c


def test_counts():
    """All expressions of a length of at most 9."""
    flat = sum(4 * 10**size for size in (2, 3, 4, 5))
    found = Counter(naive.evaluate(tree)[1] - 1 for tree in two_lists())
    assert sum(found.values()) == 32_000
    assert count(Source(1, 5, 9), 1) == flat + found[1]
    assert count(Source(1, 5, 9), 2) == found[2]
    assert count(Source(1, 5, 9), 3) == 0
    assert count(Source(1, 1, 9), 1) == flat
    values = Weights(counting_rules(2), 2, polynomials(9)).distributions["subtree", 2].exact[2].sum(axis=1)
    expected = Counter(value for value, depth in map(naive.evaluate, two_lists()) if depth == 3)
    assert values.tolist() == [expected[value] for value in range(10)]
    for limit in (9, 13, 20):
        source = Source(1, (limit - 1) // 4, limit)
        for depth in range(1, source.high + 1):
            assert 0 < min(fewest(source, depth), 2**53) <= count(source, depth)


def test_every_expression_of_a_small_source_comes(monkeypatch):
    """400 lists of two digits are all there is, each as likely as the others."""
    source = Source(1, 1, 5)
    request = benchmark.Request("train", 400, source)
    found = list(benchmark._distinct(request, 1, 400, 0, set()))
    assert sorted(found) == sorted(f"{op} {a} {b} ]" for op in naive.OPERATORS for a in range(10) for b in range(10))
    monkeypatch.setattr(benchmark, "PATIENCE", 1000)
    with pytest.raises(ValueError, match=r"split 'train': found only 400 of 401 .* depend on 1 .*too rare; ask for"):
        list(benchmark._distinct(request, 1, 401, 0, set()))


def test_defaults_are_the_papers():
    wanted = benchmark.requests(benchmark.ListOpsDepth.info.parameters["original"])
    assert {request.split: (request.size, request.source) for request in wanted} == {
        "train": (1_000_000, Source(1, 5)),
        "validation": (1000, Source(1, 5)),
        "validation_ood": (1000, Source(6, 6)),
        "test": (1000, Source(1, 5)),
        "test_ood": (1000, Source(7, 8)),
    }
