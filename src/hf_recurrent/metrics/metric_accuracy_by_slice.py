"""Accuracy of a classifier, overall and for each slice of the data, such as each depth or length.

Every slice comes with the accuracy of its best constant guess, because slices differ in how uneven their classes are.

## Inputs

- `predictions`: (N,) class ids, or strings, which must match exactly.
- `references`: (N,) the true ones, of the same kind.
- `slices`: (N,) numbers or strings to group the examples by.

## Outputs

- `accuracy`: fraction of the N examples that are right, 0 to 1; higher is better.
- `majority_baseline`: accuracy of always answering the most frequent reference.
- `n`: number of examples.
- `slices`: for each distinct value, in sorted order, its own `n`, `accuracy` and `majority_baseline`.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("accuracy_by_slice")
>>> result = metric.compute(predictions=[1, 0, 1, 1], references=[1, 0, 0, 1], slices=[1, 1, 2, 2])
>>> result["accuracy"], result["majority_baseline"], result["n"]
(0.75, 0.5, 4)
>>> result["slices"][2]
{'n': 2, 'accuracy': 0.5, 'majority_baseline': 0.5}
```

## Limits

- There is one slice for each distinct value: put a continuous column, or one of many values, into buckets first.
- The baselines are taken from the references given, so on small slices they flatter the constant guess.
- Predictions and references must be of one kind, all numbers or all strings.
"""

import itertools

import datasets
import evaluate

from .functional import accuracy, accuracy_by_slice, majority_accuracy
from .metric_base import NUMBER, STRING, Columns, describe


class AccuracyBySlice(Columns, evaluate.Metric):
    """`evaluate` metric: accuracy and best constant guess, overall and for each slice."""

    def _info(self):
        kinds = itertools.product((STRING, NUMBER), repeat=2)
        return describe(
            __doc__,
            [datasets.Features(predictions=label, references=label, slices=group) for label, group in kinds],
        )

    def scores(self, predictions, references, slices):
        return {
            "accuracy": accuracy(predictions, references),
            "majority_baseline": majority_accuracy(references),
            "n": len(references),
            "slices": accuracy_by_slice(predictions, references, slices),
        }
