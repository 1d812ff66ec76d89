"""Accuracy of a language model on flip-flop strings: on the last read of each string, and on all.

A read is a labelled token: the bit after an `r`. Accuracy over all reads is given beside it. It is usually
higher, as most reads follow their write closely.

## Inputs

- `predictions`: N sequences of any length with a token id for each token: the most likely one given all tokens before
  it, at the place of the token itself, not one place earlier as in a model's logits.
- `references`: N sequences of the same lengths: the id of the token where it is a read's bit, and -100 everywhere else.
- `slices`: optional, (N,) numbers or strings to group the strings by, such as their length.

## Outputs

- `last_read_accuracy`: fraction of the N strings whose last read is right, 0 to 1; higher is better.
- `read_accuracy`: fraction of all reads that are right.
- `n`: number of strings.
- `slices`: for each distinct value, in sorted order, its own `n` and `last_read_accuracy`.

## Example

```python
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
```

## Limits

- There are two bits: guessing is right half of the time.
- It is measured with the string's own earlier bits as context: not on text that the model generates.
- Every string needs at least one read.
"""

import datasets
import evaluate
import numpy as np

from .functional import accuracy, last_read_accuracy, slice_members
from .metric_base import NUMBER, NUMBERS, STRING, Columns, describe


class LastReadAccuracy(Columns, evaluate.Metric):
    """`evaluate` metric: accuracy on the last read of each flip-flop string, and on all reads."""

    optional_columns = ("slices",)

    def _info(self):
        return describe(
            __doc__,
            [datasets.Features(predictions=NUMBERS, references=NUMBERS, slices=group) for group in (STRING, NUMBER)],
        )

    def scores(self, predictions, references, slices):
        overall = last_read_accuracy(predictions, references)
        found, wanted = np.concatenate(predictions), np.concatenate(references)
        by_slice = {}
        for value, members in () if slices is None else slice_members(slices, len(references)):
            own = ([column[i] for i in np.flatnonzero(members)] for column in (predictions, references))
            by_slice[value] = {"n": int(members.sum()), "last_read_accuracy": last_read_accuracy(*own)}
        return {
            "last_read_accuracy": overall,
            "read_accuracy": accuracy(found[wanted != -100], wanted[wanted != -100]),
            "n": len(references),
            "slices": by_slice,
        }
