"""Depth steps that a dynamically halting model took, and their correlation with the difficulty of the input.

The numbers are those of the halting cards of `hf_recurrent`. A halting unit is an example, a sentence of a
pair, or a token. An example counts with the mean over its units.

## Inputs

- `steps`: (N,) depth steps that each example took, or N sequences of any length with the steps of each of its
  units; in sequences, -1 is padding. A model's `ponder_steps` can be passed as they are.
- `difficulty`: optional, (N,) numbers; the steps of the examples are correlated with them.
- `ponder_cost`: optional, (N,) expected depth of each example, in steps.
- `slices`: optional, (N,) numbers or strings to group the examples by.
- `max_steps`: optional, the depth limit of the run, in steps; one number, given to `compute`.

## Outputs

- `n`: number of examples.
- `steps`: `mean`, `median` and `p95` (95th percentile) over examples, and `max` over units, in steps.
- `ponder_cost`: its mean, in steps, or None.
- `forced_halt_rate`: mean over examples of the fraction of units that took all `max_steps`, or None without that.
- `steps_histogram`: how many units took 0, 1, ... steps, up to `max_steps` or the deepest unit.
- `spearman`: rank correlation of steps with `difficulty`, -1 to 1; None without it, for fewer than three examples, or
  if either is constant.
- `slices`: for each distinct value, in sorted order, its own `n`, `steps` and `forced_halt_rate`.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("halting_statistics")
>>> metric.add_batch(steps=[2, 3], difficulty=[1, 2], slices=["easy", "easy"])
>>> metric.add_batch(steps=[4, 5], difficulty=[3, 4], slices=["hard", "hard"])
>>> result = metric.compute(max_steps=5)
>>> result["steps"]["mean"], result["forced_halt_rate"], result["steps_histogram"]
(3.5, 0.25, [0, 0, 1, 1, 1, 1])
>>> round(result["spearman"], 3), result["slices"]["hard"]["steps"]["mean"]
(1.0, 4.5)
>>> metric.compute(steps=[[2, 2, -1], [6, 1, 2]])["steps"]
{'mean': 2.5, 'median': 2.5, 'p95': 2.95, 'max': 6.0}
```

## Limits

- A unit that wanted to stop exactly at `max_steps` counts as forced: steps alone cannot tell the two apart.
- Steps count executed depth, not cost: time also depends on batching and hardware.
- A rank correlation over few examples is noise: its sampling error is about 1/sqrt(n - 1).
- There is one slice for each distinct value: put a continuous column, or one of many values, into buckets first.
"""

import itertools

import datasets
import evaluate

from .functional import halting_statistics
from .metric_base import NUMBER, NUMBERS, STRING, Columns, describe


class HaltingStatistics(Columns, evaluate.Metric):
    """`evaluate` metric: executed depth, forced halts, and the correlation of depth with difficulty."""

    optional_columns = ("difficulty", "ponder_cost", "slices")

    def _info(self):
        kinds = itertools.product((NUMBER, NUMBERS), (STRING, NUMBER))
        return describe(
            __doc__,
            [
                datasets.Features(steps=unit, difficulty=NUMBER, ponder_cost=NUMBER, slices=group)
                for unit, group in kinds
            ],
        )

    def scores(self, steps, difficulty, ponder_cost, slices, max_steps=None):
        return halting_statistics(steps, max_steps, difficulty=difficulty, ponder_cost=ponder_cost, slices=slices)
