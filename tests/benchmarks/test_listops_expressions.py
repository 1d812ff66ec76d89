"""The evaluator against a naive twin, the authors' rows and malformed input."""

from pathlib import Path
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.listops.distribution import Grammar, Source, draw_tree
from hf_recurrent.benchmarks.listops.expressions import OPERATORS, analyse, evaluate, make_example, normalize

DATA = Path(__file__).parent / "data"

TREES = st.recursive(
    st.integers(0, 9),
    lambda node: st.tuples(st.sampled_from(OPERATORS), st.lists(node, min_size=1, max_size=6)),
    max_leaves=40,
)


def tokens(tree):
    if isinstance(tree, int):
        return [str(tree)]
    return [tree[0], *(token for child in tree[1] for token in tokens(child)), "]"]


def naive_value(tree):
    if isinstance(tree, int):
        return tree
    values = [naive_value(child) for child in tree[1]]
    return {
        "[MIN": min(values),
        "[MAX": max(values),
        "[MED": int(median(values)),
        "[SM": sum(values) % 10,
    }[tree[0]]


def naive_depth(tree):
    return 0 if isinstance(tree, int) else 1 + max(map(naive_depth, tree[1]))


def naive_lists(tree):
    return [] if isinstance(tree, int) else [len(tree[1]), *(n for child in tree[1] for n in naive_lists(child))]


def binary_form(tree):
    """The authors' way of writing: every operator takes one argument at a time."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for child in tree[1]:
        text = f"( {text} {binary_form(child)} )"
    return f"( {text} ] )"


@given(TREES)
def test_agrees_with_the_naive_twin(tree):
    lists = naive_lists(tree)
    expected = (naive_value(tree), naive_depth(tree), len(lists), max(lists, default=0))
    assert analyse(tokens(tree)) == expected


@given(TREES)
def test_every_spelling_is_normalized(tree):
    text = " ".join(tokens(tree))
    assert normalize(text) == text
    assert normalize(binary_form(tree)) == text
    assert normalize(text.lower().replace(" ]", "]").replace("[", " [ ")) == text


def test_authors_rows():
    lines = (DATA / "listops" / "test_d20s.tsv").read_text().splitlines()
    assert len(lines) == 200
    for line in lines:
        label, expression = line.split("\t")
        assert evaluate(normalize(expression)) == int(label)


def test_row():
    assert make_example(normalize("[MAX 2 9[MIN 4 7]0]").split()) == {
        "text": "[MAX 2 9 [MIN 4 7 ] 0 ]",
        "label": 9,
        "length": 9,
        "depth": 2,
        "num_operators": 2,
        "max_arguments": 4,
    }


def test_depth_is_not_limited_by_recursion():
    depth = 50_000
    assert analyse(["[SM"] * depth + ["7"] + ["]"] * depth)[:2] == (7, depth)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("[MAX 2 3", "1 list.s. are not closed; the innermost is '.MAX'"),
        ("[MAX 2 3 ] ]", "ends before token 5"),
        ("] 3", "token 1 is ']' but no list is open"),
        ("[MAX ]", r"token 2 closes '\[MAX', which has no arguments"),
        ("[SUM 1 2 ]", r"token 1 is '\[SUM'; expected one of \[MIN"),
        ("1 2", "ends before token 2"),
        ("[MAX 12 3 ]", "token 2 is '12'"),
        ("[MAX -1 3 ]", "token 2 is '-'"),
    ],
)
def test_malformed(text, message):
    with pytest.raises(ValueError, match=message):
        evaluate(normalize(text))


@given(
    st.integers(0, 2**32),
    st.builds(
        Grammar,
        st.integers(1, 5),
        st.integers(2, 6),
        st.floats(0.4, 0.95),
        st.sampled_from([OPERATORS, OPERATORS[:1], OPERATORS[1:3]]),
    ),
)
def test_drawn_trees_belong_to_the_grammar(seed, grammar):
    tokens = draw_tree(grammar, Random(seed))
    found = analyse(tokens)
    assert found.depth <= grammar.max_depth
    assert found.max_arguments <= grammar.max_arguments
    assert {token for token in tokens if token.startswith("[")} <= set(grammar.operators)


def test_grammar_frequencies():
    rng = Random(0)
    trees = [draw_tree(Grammar(max_depth=2), rng) for _ in range(20_000)]
    assert abs(sum(len(tree) == 1 for tree in trees) / 20_000 - 0.75) < 0.015
    mean = sum(map(len, trees)) / 20_000
    assert abs(mean - Grammar(max_depth=2).expected_length()) < 0.06


def test_counts():
    assert Source(Grammar(max_depth=1, max_arguments=2)).count() == 10 + 4 * 100
    assert Source(Grammar(max_depth=2, max_arguments=2, operators=("[MIN",))).count() == 10 + 110**2
    assert Source(Grammar()).count() == 10**18
