"""Load balance and co-occurrence, from counts.

Shapes: E experts, V token ids.
"""

import math

import numpy as np

# rarer pairs have a large pointwise mutual information by chance (Church and Hanks 1990 leave out those of 5 or fewer)
LEAST_COUNT = 6


def load_balance(counts: np.ndarray) -> float | None:
    """Entropy of the experts' shares over its largest value, log E: 1 if all of counts (E,) are equal, 0 if one is all.

    None where there is nothing to share out, or one expert.
    """
    total = counts.sum()
    if not total or len(counts) < 2:
        return None
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum() / math.log(len(counts))) + 0.0


def pointwise_mutual_information(counts: np.ndarray) -> np.ndarray:
    """Bits by which an expert and a token meet more often than by chance: log2 p(e, w) / p(e) p(w), (E, V) -> (E, V).

    Minus infinity where they never meet. Source: Church and Hanks 1990.
    """
    joint = counts / max(counts.sum(), 1)
    chance = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    found = np.full(counts.shape, -np.inf)
    met = counts > 0
    found[met] = np.log2(joint[met] / chance[met])
    return found


def most_frequent(counts: np.ndarray, number: int) -> list[int]:
    """The token ids that an expert served most often, of counts (V,), the lower id first among equals."""
    order = np.argsort(-counts, kind="stable")[:number]
    return [int(token) for token in order if counts[token] > 0]


def most_informative(bits: np.ndarray, counts: np.ndarray, number: int) -> list[int]:
    """The token ids that go with an expert most, of bits and counts (V,); pairs too rare to tell are left out.

    Only those that meet the expert more often than by chance.
    """
    order = np.lexsort((-counts, -bits))
    return [int(token) for token in order if counts[token] >= LEAST_COUNT and bits[token] > 0][:number]
