"""BLEU of translations, as `sacrebleu` computes it: of plain texts, and of words with their compounds split.

The first is comparable between papers that give the same signature. Most papers on WMT14 English-German give the
second: hyphens within words count as words, and nothing is smoothed, as in Moses' multi-bleu script.

## Inputs

- `predictions`: N texts, as people write them unless `tokenizer` is "none".
- `references`: N texts, one for each; none of them is empty.
- `tokenizer`: method that cuts both into words: "13a" (the default, that of WMT), "intl", "char", or "none" for texts
  whose words are separated by spaces already.

## Outputs

- `bleu`: corpus BLEU, 0 to 100; higher is better.
- `compound_split_bleu`: the same of words with their compounds split.
- `brevity_penalty`: factor of `bleu` for predictions that are shorter, 0 to 1.
- `signature`: all choices behind `bleu`, to be given with it.
- `n`: number of examples.

## Example

```python
>>> import evaluate
>>> metric = evaluate.load("translation_bleu")
>>> references = ["Der Vor-Ort-Test war ein Erfolg.", "Die Katze sitzt auf der Matte."]
>>> predictions = ["Der Vor-Ort-Test war ein Erfolg.", "Die Katze sitzt auf einer Matte."]
>>> result = metric.compute(predictions=predictions, references=references)
>>> round(result["bleu"], 2), round(result["compound_split_bleu"], 2), result["n"]
(73.24, 82.19, 2)
>>> metric.compute(predictions=references, references=references)["bleu"] > 99.9
True
```

## Limits

- The package `sacrebleu` has to be installed.
- A score of tokenized words depends on who tokenized them: compare it with others of the same tokenizer only.
- There is one reference for each text.
"""

import datasets
import evaluate

from .bleu import bleu, compound_split_bleu
from .metric_base import STRING, Columns, describe


class TranslationBleu(Columns, evaluate.Metric):
    """`evaluate` metric: BLEU of plain texts, and of words with compounds split."""

    def _info(self):
        return describe(__doc__, [datasets.Features(predictions=STRING, references=STRING)])

    def scores(self, predictions, references, tokenizer="13a"):
        plain = bleu(predictions, references, tokenizer)
        return {
            "bleu": plain.score,
            "compound_split_bleu": compound_split_bleu(predictions, references, tokenizer).score,
            "brevity_penalty": plain.brevity_penalty,
            "signature": plain.signature,
            "n": len(references),
        }
