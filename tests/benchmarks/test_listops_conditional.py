"""Length- and depth-conditional sampling against enumeration of a small grammar."""

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.listops.distribution import ConditionalSampler, Grammar, length_tables
from hf_recurrent.benchmarks.listops.expressions import analyse

SMALL = Grammar(max_depth=2, max_arguments=3, value_probability=0.6, operators=("[MIN", "[SM"))


def shapes(grammar, levels):
    """(tokens with D for digits and O for operators, probability, depth) of every shape of tree."""
    if levels == 0:
        return [("D", 1.0, 0)]
    found = [("D", grammar.value_probability, 0)]
    below = shapes(grammar, levels - 1)
    for arity in grammar.arities:
        for children in product(below, repeat=arity):
            probability = grammar.arity_probability
            for _, p, _ in children:
                probability *= p
            text = "O" + "".join(child for child, _, _ in children) + "]"
            found.append((text, probability, 1 + max(depth for _, _, depth in children)))
    return found


def shape_of(tokens):
    return "".join("D" if t.isdigit() else "]" if t == "]" else "O" for t in tokens)


def test_weights_are_the_grammars_probabilities():
    tables = length_tables(SMALL, 60)
    expected = Counter()
    for text, probability, _ in shapes(SMALL, 2):
        expected[len(text)] += probability
    assert sum(expected.values()) == pytest.approx(1)
    assert tables.root(None) == pytest.approx([expected[length] for length in range(61)])


def test_counts_are_exact():
    tables = length_tables(SMALL, 60, counting=True)
    for depth in (None, 0, 1, 2):
        expected = Counter()
        for text, _, found in shapes(SMALL, 2):
            if depth in (None, found):
                expected[len(text)] += 10 ** text.count("D") * 2 ** text.count("O")
        assert tables.root(depth) == [expected[length] for length in range(61)]


@pytest.mark.parametrize("depth", [None, 2])
def test_draws_follow_the_conditional_distribution(depth):
    low, high, draws = 6, 11, 20_000
    possible = {text: p for text, p, found in shapes(SMALL, 2) if low <= len(text) <= high and depth in (None, found)}
    total = sum(possible.values())
    sampler, rng = ConditionalSampler(SMALL, low, high, depth), Random(1)
    found = Counter(shape_of(sampler.draw(rng)) for _ in range(draws))
    assert set(found) <= set(possible)
    distance = sum(abs(found[text] / draws - p / total) for text, p in possible.items()) / 2
    assert distance < 0.03


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(3, 6), st.integers(20, 60))
def test_draws_stay_in_bounds(seed, depth, arguments, high):
    grammar = Grammar(max_depth=6, max_arguments=arguments)
    tokens = ConditionalSampler(grammar, 1, high, depth).draw(Random(seed))
    found = analyse(tokens)
    assert len(tokens) <= high
    assert found.depth == depth
    assert found.max_arguments <= arguments
