"""Labels by truth tables against a brute-force twin and the authors' rows."""

from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hf_recurrent.benchmarks.logical_inference.benchmark import draw_pair, pair_probability
from hf_recurrent.benchmarks.logical_inference.sentences import (
    RELATIONS,
    VARIABLES,
    make_example,
    normalize,
    parse,
)

DATA = Path(__file__).parent / "data"
TREES = st.recursive(
    st.sampled_from(VARIABLES),
    lambda s: st.tuples(st.just("not"), s) | st.tuples(st.sampled_from(["and", "or"]), s, s),
    max_leaves=12,
)
ASSIGNMENTS = [dict(zip(VARIABLES, values, strict=True)) for values in product([False, True], repeat=6)]


def write(tree):
    if isinstance(tree, str):
        return tree
    if tree[0] == "not":
        return f"( not {write(tree[1])} )"
    return f"( {write(tree[1])} ( {tree[0]} {write(tree[2])} ) )"


def holds(tree, world):
    if isinstance(tree, str):
        return world[tree]
    if tree[0] == "not":
        return not holds(tree[1], world)
    left, right = holds(tree[1], world), holds(tree[2], world)
    return (left and right) if tree[0] == "and" else (left or right)


def naive_relation(first, second):
    """By the definitions: which of the four combinations of truth values occur in some world."""
    seen = {(holds(first, world), holds(second, world)) for world in ASSIGNMENTS}
    both, only_first, only_second, neither = (
        pair in seen for pair in ((True, True), (True, False), (False, True), (False, False))
    )
    table = {
        (True, False, False, True): "=",
        (True, False, True, True): "<",
        (True, True, False, True): ">",
        (False, True, True, False): "^",
        (False, True, True, True): "|",
        (True, True, True, False): "v",
        (True, True, True, True): "#",
    }
    return table[both, only_first, only_second, neither]


@given(TREES, TREES)
def test_relation_agrees_with_brute_force(first, second):
    for tree in (first, second):
        assume(len({holds(tree, world) for world in ASSIGNMENTS}) == 2)
    row = make_example(write(first), write(second))
    assert RELATIONS[row["label"]] == naive_relation(first, second)


@given(TREES)
def test_meaning_agrees_with_brute_force(tree):
    mask = parse(write(tree).split()).meaning
    for number in range(64):
        world = {variable: bool(number >> i & 1) for i, variable in enumerate(VARIABLES)}
        assert bool(mask >> number & 1) == holds(tree, world)


@given(TREES)
def test_loose_spacing_is_normalized(tree):
    text = write(tree)
    assert normalize(text.replace("( ", "(").replace(" )", ")").upper()) == text


def test_authors_rows():
    checked = 0
    for path in sorted((DATA / "logic").iterdir()):
        for line in path.read_text().splitlines():
            label, first, second = line.split("\t")
            row = make_example(first, second)
            assert RELATIONS[row["label"]] == label
            assert row["num_operators"] == int(path.name.removeprefix("train").removeprefix("test"))
            checked += 1
    assert checked == 247


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("a b", "more than one"),
        ("( not a", "not closed"),
        ("( a )", "closed at token 3"),
        ("( and a )", "expected one whole sentence"),
        ("( a ( and b )", "not closed"),
        ("a )", "closed at token 2"),
        ("( not g )", "token 3 is 'g'; expected one of"),
        ("( a ( and b ) c )", "closed at token 8"),
    ],
)
def test_malformed(text, message):
    with pytest.raises(ValueError, match=message):
        normalize(text)


@given(st.integers(0, 2**32))
def test_drawn_pairs(seed):
    pair = draw_pair(Random(seed))
    used = set()
    for sentence in pair:
        tokens = sentence.text.split()
        assert parse(tokens).meaning == sentence.meaning not in (0, 2**64 - 1)
        assert sum(tokens.count(token) for token in ("and", "or", "not")) == sentence.num_operators
        assert "( not ( not" not in sentence.text
        used |= set(tokens) & set(VARIABLES)
    assert len(used) <= 4


def test_pair_probabilities_match_frequencies():
    rng, draws = Random(0), 20_000
    pairs = [draw_pair(rng) for _ in range(draws)]
    plain = [pair for pair in pairs if pair[0].num_operators == pair[1].num_operators == 0]
    # the 36 pairs of bare variables are of two kinds: 30 of two variables, 6 of one
    expected = 30 * pair_probability(*next(p for p in plain if p[0].text != p[1].text))
    expected += 6 * pair_probability(*next(p for p in plain if p[0].text == p[1].text))
    assert len(plain) / draws == pytest.approx(expected, rel=0.05)
