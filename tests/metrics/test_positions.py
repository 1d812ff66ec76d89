"""Losses by position in the document, and the conversion to perplexity per word."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.metrics import position_edges, position_rows, position_sums, word_perplexity

# words of PG19's test split, and tokens of the paper's vocabulary of 32,000 (section 4.6)
PG19_TOKENS, PG19_WORDS = 10_523_460, 6_966_499


@pytest.mark.parametrize(("bits", "perplexity"), [(3.39, 34.80), (3.36, 33.72), (3.32, 32.34)])
def test_word_perplexity_is_the_paper_s(bits, perplexity):
    assert word_perplexity(bits, PG19_TOKENS, PG19_WORDS) == pytest.approx(perplexity, abs=0.005)


@given(st.integers(0, 5000), st.integers(1, 600))
def test_edges_double_and_hold_every_position(longest, first):
    edges = position_edges(longest, first)
    assert edges[:2].tolist() == [0, first]
    assert (edges[2:] == 2 * edges[1:-1]).all()
    assert edges[-1] > longest
    assert len(edges) == 2 or edges[-2] <= longest


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(0, 300)), max_size=40), st.integers(0, 40))
def test_against_a_loop(tokens, cut):
    """Sums of pieces are the sums of the whole."""
    edges = position_edges(300, 4)
    pieces = [position_sums([n for n, _ in part], [p for _, p in part], edges) for part in (tokens[:cut], tokens[cut:])]
    sums, counts = (a + b for a, b in zip(*pieces, strict=True))
    expected = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        own = [nats for nats, place in tokens if low <= place < high]
        if own:
            expected.append((low, high - 1, len(own), sum(own) / len(own) / math.log(2)))
    rows = position_rows(sums, counts, edges)
    assert [(row["first"], row["last"], row["n"]) for row in rows] == [row[:3] for row in expected]
    assert [row["bits_per_token"] for row in rows] == pytest.approx([row[3] for row in expected])


def test_losses_that_are_no_likelihoods():
    with pytest.raises(ValueError, match="at least 0, got nan"):
        position_sums([math.nan], [1], [0, 4])
