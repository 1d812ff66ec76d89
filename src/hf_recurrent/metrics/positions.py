"""Losses of long documents: by position in the document, and per word.

Shapes: T predicted tokens, P bins of positions. The position of a token is how many tokens of its document stand before
it. Bad input raises a ValueError that names the argument.
"""

import math
from collections.abc import Sequence

import numpy as np


def word_perplexity(bits_per_token: float, num_tokens: int, num_words: int) -> float:
    """Perplexity per word of a text of `num_words` words in `num_tokens` tokens: 2^(bits_per_token * tokens / words).

    How Rae et al. (Compressive Transformers, 2019) and Hutchins et al. (Block-Recurrent Transformers, section 4.6) make
    models with different vocabularies comparable on PG19, whose test split has 6,966,499 words: in 10,523,460 tokens,
    3.39 bits per token are a perplexity of 34.80 per word. All tokens count, also those that are not predicted, such as
    the first of each segment.
    """
    for name, value, least in (
        ("bits_per_token", bits_per_token, 0),
        ("num_tokens", num_tokens, 1),
        ("num_words", num_words, 1),
    ):
        # NaN fails the comparison too
        if isinstance(value, (bool, str)) or not value >= least:
            raise ValueError(f"{name}={value!r}: expected a number of at least {least}")
    with np.errstate(over="ignore"):
        return float(np.exp2(np.float64(bits_per_token) * (num_tokens / num_words)))


def position_edges(longest: int, first: int = 1) -> np.ndarray:
    """Edges `(P + 1,)` of bins of positions up to `longest`: 0, first, 2 first, 4 first, ...; bins are [edge, next).

    Late positions are read by few documents, and what context adds falls off with its logarithm: bins of equal width
    would hide the beginning and be noise at the end.
    """
    for name, value, least in (("longest", longest, 0), ("first", first, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name}={value!r}: expected an integer >= {least}")
    doublings = int(longest // first).bit_length()
    return np.array([0, *(first * 2**i for i in range(doublings + 1))], dtype=np.int64)


def position_sums(
    negative_log_likelihoods: Sequence[float] | np.ndarray,
    positions: Sequence[int] | np.ndarray,
    edges: Sequence[int] | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Nats `(P,)` and tokens `(P,)` in each bin of positions; those of several calls with the same edges add up.

    Args:
        negative_log_likelihoods: `(T,)` in nats.
        positions: `(T,)` how many tokens of its document stand before each token.
        edges: `(P + 1,)` rising whole numbers that all positions lie between, such as `position_edges`.
    """
    nats, places = np.asarray(negative_log_likelihoods, dtype=np.float64), np.asarray(positions)
    if nats.ndim != 1 or places.shape != nats.shape:
        raise ValueError(
            f"positions has shape {places.shape}, negative_log_likelihoods {nats.shape}: give one number for each token"
        )
    if not (nats >= 0).all():
        raise ValueError(
            f"negative_log_likelihoods must be at least 0, got {nats[~(nats >= 0)][0]}: mask padding first"
        )
    edges = _edges(edges)
    outside = (places < edges[0]) | (places >= edges[-1])
    if outside.any():
        raise ValueError(f"positions holds {places[outside][0]}, but edges go from {edges[0]} to below {edges[-1]}")
    bins = np.searchsorted(edges, places, side="right") - 1
    size = len(edges) - 1
    return np.bincount(bins, weights=nats, minlength=size), np.bincount(bins, minlength=size)


def position_rows(sums: np.ndarray, counts: np.ndarray, edges: np.ndarray) -> list[dict[str, float | int]]:
    """A row for each bin that has tokens: its `first` and `last` position, tokens `n`, and `bits_per_token`.

    Args:
        sums: `(P,)` in nats.
        counts: `(P,)` tokens.
        edges: `(P + 1,)` as for `position_sums`.
    """
    edges, sums, counts = _edges(edges), np.asarray(sums, dtype=np.float64), np.asarray(counts)
    if sums.shape != (len(edges) - 1,) or counts.shape != sums.shape:
        raise ValueError(
            f"sums and counts have shapes {sums.shape} and {counts.shape}: expected one number for each of the "
            f"{len(edges) - 1} bins"
        )
    return [
        {
            "first": int(edges[place]),
            "last": int(edges[place + 1]) - 1,
            "n": int(counts[place]),
            "bits_per_token": float(sums[place] / counts[place] / math.log(2)),
        }
        for place in np.flatnonzero(counts)
    ]


def _edges(edges: Sequence[int] | np.ndarray) -> np.ndarray:
    edges = np.asarray(edges)
    if edges.ndim != 1 or len(edges) < 2 or edges.dtype.kind not in "iu" or not (np.diff(edges) > 0).all():
        raise ValueError(f"edges={edges.tolist()}: expected two or more rising whole numbers")
    return edges
