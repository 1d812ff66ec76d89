"""Losses of a language model on long documents: per token, byte, character and word, and by position in the document.

A model that carries a state should lose less and less of its bits as the document goes on; one that sees a window does
not change once its window is full. The table by position shows which: its bins double in width from 1 token on.

Bits per token depend on the vocabulary. Bits per byte and per character do not, and neither does perplexity per word,
2^(bits per token * tokens / words), the usual number for PG19.

## Inputs

- `negative_log_likelihoods`: in nats; N sequences of any length with one value per predicted token, a document each
  or a piece of one.
- `mask`: optional, N sequences of 1 where a token counts and 0 where it does not (padding).
- `positions`: optional, (N,) number of tokens of the document before the token of the sequence's first value; 1 if
  not given, which is right for whole documents whose first token is not predicted.
- `num_bytes`: optional, (N,) bytes of UTF-8 text that the counted tokens of each sequence stand for.
- `num_characters`: optional, (N,) characters of that text.
- `num_tokens`: optional, (N,) all tokens of that text, if some are not predicted; only with `num_words`.
- `num_words`: optional, (N,) words of that text, by white space.

## Outputs

- `bits_per_token`: 0 or more; lower is better.
- `bits_per_byte`: the same over bytes, or None without `num_bytes`.
- `bits_per_character`: the same over characters, or None without `num_characters`.
- `word_perplexity`: perplexity per word, or None without `num_words`; lower is better.
- `num_tokens`: number of tokens that the mean is over.
- `by_position`: for each bin that has tokens, its `first` and `last` position, `n` and `bits_per_token`.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("long_document_losses")
>>> losses = [[2.0794, 1.3863, 0.6931], [1.3863]]
>>> result = metric.compute(negative_log_likelihoods=losses, num_bytes=[12, 4], num_words=[3, 1])
>>> round(result["bits_per_token"], 3), round(result["bits_per_byte"], 3), round(result["word_perplexity"], 2)
(2.0, 0.5, 4.0)
>>> [(row["first"], row["last"], row["n"], round(row["bits_per_token"], 3)) for row in result["by_position"]]
[(1, 1, 2, 2.5), (2, 3, 2, 1.5)]
```

## Limits

- How much of the document a token was predicted from is not recorded here: say whether the state was carried.
- Documents differ: the late bins hold the long ones only, which can be easier or harder than the others.
- Words are counted by white space, as for PG19; for source code they mean little.
"""

import datasets
import evaluate
import numpy as np

from .functional import (
    bits_per_token,
    bits_per_unit,
    position_edges,
    position_rows,
    position_sums,
    token_sums,
    word_perplexity,
)
from .metric_base import NUMBER, NUMBERS, Columns, describe


class LongDocumentLosses(Columns, evaluate.Metric):
    """`evaluate` metric: bits per token, byte and character, perplexity per word, and bits by position."""

    optional_columns = ("mask", "positions", "num_bytes", "num_characters", "num_tokens", "num_words")

    def _info(self):
        columns = {"negative_log_likelihoods": NUMBERS, "mask": NUMBERS, "positions": NUMBER}
        counts = {name: NUMBER for name in ("num_bytes", "num_characters", "num_tokens", "num_words")}
        return describe(__doc__, [datasets.Features(**columns, **counts)])

    def scores(self, negative_log_likelihoods, mask, positions, num_bytes, num_characters, num_tokens, num_words):
        sums, counts = token_sums(negative_log_likelihoods, mask=mask)
        bits = bits_per_token(sums, counts)
        return {
            "bits_per_token": bits,
            "bits_per_byte": None if num_bytes is None else bits_per_unit(sums, num_bytes, "num_bytes"),
            "bits_per_character": None
            if num_characters is None
            else bits_per_unit(sums, num_characters, "num_characters"),
            "word_perplexity": _word_perplexity(bits, counts, num_tokens, num_words),
            "num_tokens": int(counts.sum()),
            "by_position": _position_table(negative_log_likelihoods, mask, positions),
        }


def _word_perplexity(bits, counts, num_tokens, num_words):
    if num_words is None:
        if num_tokens is not None:
            raise ValueError("num_tokens is for the perplexity per word: give num_words too, or leave it out")
        return None
    tokens = counts if num_tokens is None else np.asarray(num_tokens)
    if (tokens < counts).any():
        place = int((tokens < counts).argmax())
        raise ValueError(f"num_tokens[{place}] is {tokens[place]:g}, but {counts[place]} tokens of it are predicted")
    return word_perplexity(bits, float(tokens.sum()), float(np.sum(num_words)))


def _position_table(likelihoods, mask, positions):
    starts = np.ones(len(likelihoods)) if positions is None else np.asarray(positions)
    if (starts < 0).any() or (starts != np.floor(starts)).any():
        raise ValueError(f"positions must be whole numbers of at least 0, got {starts.tolist()}")
    places = np.concatenate([int(start) + np.arange(len(own)) for start, own in zip(starts, likelihoods, strict=True)])
    values = np.concatenate(likelihoods)
    if mask is not None:
        counted = np.concatenate(mask) == 1
        places, values = places[counted], values[counted]
    edges = position_edges(int(places.max()))
    return position_rows(*position_sums(values, places, edges), edges)
