"""Exact match of the output of a sequence-to-sequence model, overall and for each slice of the data.

A sequence counts if it is the same as its reference from beginning to end. Every slice comes with the exact match of
always writing its most frequent reference: it is high where targets are few, as in logical inference.

## Inputs

- `predictions`: N texts, or N sequences of generated token ids of any length, without those that begin, end and pad a
  sequence.
- `references`: N texts or sequences of token ids, of the same kind; none of them is empty.
- `slices`: optional, (N,) numbers or strings to group the examples by, such as the number of operators.

## Outputs

- `exact_match`: fraction of the N predictions that are right, 0 to 1; higher is better.
- `majority_baseline`: exact match of always writing the most frequent reference.
- `n`: number of examples.
- `slices`: for each distinct value, in sorted order, its own `n`, `exact_match` and `majority_baseline`.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("sequence_exact_match")
>>> predictions = ["SELECT ?x0", "SELECT ?x1", "<"]
>>> references = ["SELECT ?x0", "SELECT ?x0", "<"]
>>> result = metric.compute(predictions=predictions, references=references, slices=[7, 7, 8])
>>> round(result["exact_match"], 3), round(result["majority_baseline"], 3), result["n"]
(0.667, 0.667, 3)
>>> result["slices"][7]
{'n': 2, 'exact_match': 0.5, 'majority_baseline': 1.0}
```

## Limits

- Texts are compared character by character: one space more is a mistake.
- Targets that mean the same in other words, or in another order, count as wrong.
- The baselines are taken from the references given, so on small slices they flatter the constant guess.
"""

import datasets
import evaluate

from .functional import exact_match, exact_match_by_slice, majority_match
from .metric_base import NUMBER, NUMBERS, STRING, Columns, describe


class SequenceExactMatch(Columns, evaluate.Metric):
    """`evaluate` metric: exact match of texts or token ids, overall and for each slice."""

    optional_columns = ("slices",)

    def _info(self):
        kinds = [(sequence, group) for sequence in (STRING, NUMBERS) for group in (STRING, NUMBER)]
        return describe(
            __doc__,
            [datasets.Features(predictions=sequence, references=sequence, slices=group) for sequence, group in kinds],
        )

    def scores(self, predictions, references, slices):
        return {
            "exact_match": exact_match(predictions, references),
            "majority_baseline": majority_match(references),
            "n": len(references),
            "slices": {} if slices is None else exact_match_by_slice(predictions, references, slices),
        }
