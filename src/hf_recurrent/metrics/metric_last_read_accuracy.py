"""Accuracy of a language model on flip-flop strings: does the last read of a string recall the bit written last?

A read is a labelled token: the bit after an `r`. Accuracy over all reads is given beside it. It is the milder number,
for most reads follow their write closely, and a mistake in one string is made up for by the reads of others.

Inputs:
    predictions: N rows of any length with a token id for each token: the most likely one given all tokens before it,
        so that it stands where the token itself stands, not one place earlier as in a model's logits.
    references: N rows of the same lengths: the id of the token where it is a read's bit, and -100 everywhere else.
    slices: optional, (N,) numbers or strings to group the strings by, such as their length.

Outputs:
    last_read_accuracy: fraction of the N strings whose last read is right, 0 to 1; higher is better.
    read_accuracy: fraction of all reads that are right.
    n: number of strings.
    slices: for each distinct value, in sorted order, its own `n` and `last_read_accuracy`.

Example:
    >>> import evaluate
    >>> metric = evaluate.load("last_read_accuracy")
    >>> predictions = [[4, 7, 6, 7, 6, 7], [4, 8, 6, 7, 6, 8]]
    >>> references = [[-100, -100, -100, 7, -100, 7], [-100, -100, -100, 8, -100, 8]]
    >>> result = metric.compute(predictions=predictions, references=references, slices=["easy", "hard"])
    >>> result["last_read_accuracy"], result["read_accuracy"], result["n"]
    (1.0, 0.75, 2)
    >>> result["slices"]["hard"]
    {'n': 1, 'last_read_accuracy': 1.0}
    >>> metric.compute(predictions=[[4, 7, 6, 8]], references=[[-100, -100, -100, 7]])["last_read_accuracy"]
    0.0

Limits:
    - There are two bits: guessing is right half of the time.
    - It is measured with the string's own earlier bits as context: not what a model writes by itself.
    - Every string needs at least one read.
"""

import datasets
import evaluate

from .functional import accuracy, last_read_accuracy
from .metric_base import NUMBER, NUMBERS, STRING, Columns, describe, given, shortened


class LastReadAccuracy(Columns, evaluate.Metric):
    """`evaluate` metric: accuracy on the last read of each flip-flop string, and on all reads."""

    optional_columns = ("slices",)

    def _info(self):
        return describe(
            __doc__,
            [datasets.Features(predictions=NUMBERS, references=NUMBERS, slices=group) for group in (STRING, NUMBER)],
        )

    def compute(self, *, slices=None, **columns):
        """Compute the metric from columns given here, or in batches before."""
        # beside predictions and references, `evaluate` takes a column that is left out for one that was forgotten
        return super().compute(slices=slices, **columns)

    def _compute(self, predictions, references, slices):
        slices = given("slices", slices)
        right = last_read_accuracy(predictions, references)
        rows = list(zip(predictions, references, strict=True))
        reads = [pair for row in rows for pair in zip(*row, strict=True) if pair[1] != -100]
        groups = {}
        if slices is not None:
            for value, row in zip(shortened(slices), rows, strict=True):
                groups.setdefault(value, []).append(row)
        return {
            "last_read_accuracy": right,
            "read_accuracy": accuracy(*zip(*reads, strict=True)),
            "n": len(rows),
            "slices": {
                value: {"n": len(own), "last_read_accuracy": last_read_accuracy(*zip(*own, strict=True))}
                for value, own in sorted(groups.items())
            },
        }
