"""Numpy functions that turn predictions, losses and ponder steps into numbers.

BLEU, which needs the package `sacrebleu`, is in `hf_recurrent.metrics.bleu`.

>>> from hf_recurrent.metrics import bits_per_token
>>> bits_per_token([[0.6931, 2.0794], [1.3863]])
"""

from .functional import (
    accuracy,
    bits_per_token,
    exact_match,
    last_read_accuracy,
    majority_accuracy,
    spearman,
    step_summary,
    word_perplexity,
)

__all__ = [
    "accuracy",
    "bits_per_token",
    "exact_match",
    "last_read_accuracy",
    "majority_accuracy",
    "spearman",
    "step_summary",
    "word_perplexity",
]
