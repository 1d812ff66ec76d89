"""Numpy functions that turn predictions, losses and ponder steps into numbers, and the same as `evaluate` metrics.

The metrics are the classes in `metric_<name>.py`, which import `evaluate` and are therefore not imported here.
`export_metric` writes one as a folder that `evaluate.load` reads without this package, from the disk or the Hub.
BLEU, which needs the package `sacrebleu`, is in `hf_recurrent.metrics.bleu`.

>>> from hf_recurrent.metrics import bits_per_token, export_metric, list_metrics
>>> bits_per_token([[0.6931, 2.0794], [1.3863]])
>>> export_metric("halting_statistics", "out/halting_statistics")
"""

from .export import MetricDescription, export_metric, list_metrics, metric_info
from .functional import (
    accuracy,
    accuracy_by_slice,
    bits_per_token,
    bits_per_unit,
    cut_at_end,
    exact_match,
    exact_match_by_slice,
    halting_statistics,
    last_read_accuracy,
    majority_accuracy,
    majority_match,
    position_edges,
    position_rows,
    position_sums,
    spearman,
    step_histogram,
    step_summary,
    token_sums,
    word_perplexity,
)

__all__ = [
    "MetricDescription",
    "accuracy",
    "accuracy_by_slice",
    "bits_per_token",
    "bits_per_unit",
    "cut_at_end",
    "exact_match",
    "exact_match_by_slice",
    "export_metric",
    "halting_statistics",
    "last_read_accuracy",
    "list_metrics",
    "majority_accuracy",
    "majority_match",
    "metric_info",
    "position_edges",
    "position_rows",
    "position_sums",
    "spearman",
    "step_histogram",
    "step_summary",
    "token_sums",
    "word_perplexity",
]
