"""Exact match of sequences: texts, or rows of token ids of any length.

Shapes: N examples. Bad input raises a ValueError that names the argument.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from .functional import accuracy, accuracy_by_slice, majority_accuracy
from .sequence_codes import matches_of_slices, sequence_codes


def exact_match(predictions: Sequence, references: Sequence) -> float:
    """Fraction of N predictions, texts or rows of token ids, that are equal to their reference."""
    return accuracy(*sequence_codes(predictions, references))


def majority_match(references: Sequence) -> float:
    """Exact match of always writing the most frequent of N references: the best constant guess."""
    return majority_accuracy(sequence_codes(references, references)[1])


def exact_match_by_slice(
    predictions: Sequence, references: Sequence, values: Sequence[Hashable] | np.ndarray
) -> dict[Hashable, dict[str, float | int]]:
    """For each distinct entry of `values` `(N,)`, in sorted order: `n`, `exact_match`, `majority_baseline`.

    The baseline is what always writing the most frequent reference of the slice would reach.
    """
    return matches_of_slices(accuracy_by_slice(*sequence_codes(predictions, references), values))
