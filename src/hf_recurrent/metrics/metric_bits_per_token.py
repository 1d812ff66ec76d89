"""Bits per token of a language model, and bits per byte where the size of the text is given.

All negative log-likelihood over all tokens, in bits: sum of nats / number of tokens / ln 2. The mean is over tokens,
not over sequences, so it does not depend on how the text was cut or batched. Perplexity is 2 to its power.

## Inputs

- `negative_log_likelihoods`: in nats, the unit of cross-entropy losses; (N,) sums over the tokens of each sequence,
  or N sequences of any length with one value per token.
- `num_tokens`: (N,) number of tokens that each sum is over; for sums only.
- `mask`: optional, for values per token only: N sequences of 1 where a token counts and 0 where it does not (padding,
  prompt).
- `num_bytes`: optional, (N,) bytes of raw text that the counted tokens of each sequence stand for.

## Outputs

- `bits_per_token`: 0 or more; lower is better.
- `bits_per_byte`: the same over bytes, or None without `num_bytes`; bits per character, if those are counted.
- `num_tokens`: number of tokens that the mean is over.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("bits_per_token")
>>> sums = metric.compute(negative_log_likelihoods=[8.3178, 2.7726], num_tokens=[6, 2], num_bytes=[18, 6])
>>> round(sums["bits_per_token"], 3), round(sums["bits_per_byte"], 3), sums["num_tokens"]
(2.0, 0.667, 8)
>>> tokens = metric.compute(negative_log_likelihoods=[[0.6931, 2.0794], [1.3863, 0.0]], mask=[[1, 1], [1, 0]])
>>> round(tokens["bits_per_token"], 3), tokens["bits_per_byte"], tokens["num_tokens"]
(2.0, None, 3)
```

## Limits

- Only models with the same tokenizer can be compared in bits per token; bits per byte compare across tokenizers.
- A loss averaged over a batch is not a sum: multiply it by the number of tokens it was averaged over first.
- How much context each token saw (window, stride, carried state) changes the result, and is not recorded here.
"""

import datasets
import evaluate

from .functional import bits_per_token, bits_per_unit, token_sums
from .metric_base import NUMBER, NUMBERS, Columns, describe


class BitsPerToken(Columns, evaluate.Metric):
    """`evaluate` metric: mean negative log-likelihood in bits, per token and per byte."""

    optional_columns = ("num_tokens", "mask", "num_bytes")

    def _info(self):
        kinds = [
            datasets.Features(negative_log_likelihoods=kind, num_tokens=NUMBER, mask=NUMBERS, num_bytes=NUMBER)
            for kind in (NUMBER, NUMBERS)
        ]
        return describe(__doc__, kinds)

    def scores(self, negative_log_likelihoods, num_tokens, mask, num_bytes):
        sums, counts = token_sums(negative_log_likelihoods, num_tokens, mask)
        return {
            "bits_per_token": bits_per_token(sums, counts),
            "bits_per_byte": None if num_bytes is None else bits_per_unit(sums, num_bytes, "num_bytes"),
            "num_tokens": int(counts.sum()),
        }
