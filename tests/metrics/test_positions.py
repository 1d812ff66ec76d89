"""Losses by position in the document, and the conversion to perplexity per word."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_recurrent.metrics import position_edges, position_rows, position_sums, word_perplexity

# words of PG19's test split, and tokens of the paper's vocabulary of 32,000 (section 4.6)
PG19_TOKENS, PG19_WORDS = 10_523_460, 6_966_499


@pytest.mark.parametrize(("bits", "perplexity"), [(3.39, 34.80), (3.36, 33.72), (3.32, 32.34)])
def test_word_perplexity_is_the_paper_s(bits, perplexity):
    assert word_perplexity(bits, PG19_TOKENS, PG19_WORDS) == pytest.approx(perplexity, abs=0.005)


def test_word_perplexity_of_words_that_are_tokens_is_perplexity():
    assert word_perplexity(3.0, 7, 7) == 8
    assert word_perplexity(0.0, 7, 5) == 1
    assert word_perplexity(math.inf, 2, 1) == word_perplexity(5000.0, 2, 1) == math.inf


@given(st.integers(0, 5000), st.integers(1, 600))
def test_edges_double_and_hold_every_position(longest, first):
    edges = position_edges(longest, first)
    assert edges[:2].tolist() == [0, first]
    assert (edges[2:] == 2 * edges[1:-1]).all()
    assert edges[-1] > longest
    assert len(edges) == 2 or edges[-2] <= longest


def test_octaves_are_the_default():
    assert position_edges(8).tolist() == [0, 1, 2, 4, 8, 16]
    assert position_edges(0).tolist() == [0, 1]
    assert position_edges(511, 512).tolist() == [0, 512]
    assert position_edges(512, 512).tolist() == [0, 512, 1024]


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: word_perplexity(-0.1, 2, 1), "bits_per_token=-0.1: expected a number of at least 0"),
        (lambda: word_perplexity(math.nan, 2, 1), "bits_per_token=nan"),
        (lambda: word_perplexity(1.0, 0, 1), "num_tokens=0: expected a number of at least 1"),
        (lambda: word_perplexity(1.0, 1, 0), "num_words=0: expected a number of at least 1"),
        (lambda: position_edges(-1), "longest=-1: expected an integer >= 0"),
        (lambda: position_edges(5, 0), "first=0: expected an integer >= 1"),
        (lambda: position_edges(5.0), "longest=5.0: expected an integer"),
        (lambda: position_sums([1.0], [1, 2], [0, 4]), r"positions has shape \(2,\), .* \(1,\)"),
        (lambda: position_sums([-1.0], [1], [0, 4]), "at least 0, got -1.0"),
        (lambda: position_sums([math.nan], [1], [0, 4]), "at least 0, got nan"),
        (lambda: position_sums([1.0], [4], [0, 4]), "positions holds 4, but edges go from 0 to below 4"),
        (lambda: position_sums([1.0], [1], [0, 4, 4]), r"edges=\[0, 4, 4\]: expected two or more rising"),
        (lambda: position_rows(np.ones(2), np.ones(2), [0, 4]), "each of the 1 bins"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
