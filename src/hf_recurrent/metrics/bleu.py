"""BLEU of translations, as `sacrebleu` computes it: of plain texts, and of words with compounds split.

Bad input raises a ValueError that names the argument.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

TOKENIZERS = ("13a", "intl", "char", "none")

_COMPOUND = re.compile(r"(\S)-(\S)")


class Bleu(NamedTuple):
    """`score` and `precisions` of 1 to 4 words are from 0 to 100; `signature` names all settings of the score."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    signature: str


def bleu(predictions: Sequence[str], references: Sequence[str], tokenizer: str = "13a") -> Bleu:
    """Corpus BLEU of N texts, comparable between papers that give the same signature.

    Args:
        predictions: N texts as people write them, so without any tokenization.
        references: N texts, one for each.
        tokenizer: method that cuts both into words: "13a" (that of WMT), "intl", "char", or "none" at white space.

    Raises:
        ValueError: another number of predictions than of references, an empty reference, an unknown tokenizer.
        ImportError: `sacrebleu` is not installed.
    """
    # texts that look tokenized make it warn, unless they are
    return _corpus(_metric(tokenizer, force=tokenizer == "none"), predictions, references)


def compound_split_bleu(predictions: Sequence[str], references: Sequence[str], tokenizer: str = "none") -> Bleu:
    """Corpus BLEU of words, each part of a hyphenated compound a word, as in most papers on WMT14 English-German.

    The score is that of Moses' multi-bleu script, 0 if no 4 words in a row are right. Splitting compounds makes more
    words, and mostly a greater score.

    Args:
        predictions: N texts, words with single spaces between them.
        references: N texts, one for each, from the same tokenizer.
        tokenizer: as for `bleu`, for texts that are not tokenized yet.

    Raises:
        ValueError, ImportError: as `bleu`.
    """
    _check(predictions, references)
    tokenize = _metric(tokenizer).tokenizer
    split = [[split_compounds(tokenize(text.rstrip())) for text in texts] for texts in (predictions, references)]
    # the signature of sacrebleu does not include the split
    score = _corpus(_metric("none", smooth_method="none", force=True), *split)
    return score._replace(signature=f"{score.signature}|compounds:split|words:{tokenizer}")


def split_compounds(text: str) -> str:
    """The text with the hyphens within words as words of their own.

    >>> split_compounds("ein Vor-Ort Test")
    'ein Vor ##AT##-##AT## Ort Test'
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def _metric(tokenizer: str, **options: Any) -> "BLEU":
    if tokenizer not in TOKENIZERS:
        raise ValueError(f"tokenizer={tokenizer!r}: expected one of {', '.join(TOKENIZERS)}")
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError(
            "BLEU is computed by the package sacrebleu, which is not installed: pip install 'hf-recurrent[translation]'"
        ) from error
    return BLEU(tokenize=tokenizer, **options)


def _corpus(metric: "BLEU", predictions: Sequence[str], references: Sequence[str]) -> Bleu:
    _check(predictions, references)
    found = metric.corpus_score(list(predictions), [list(references)])
    return Bleu(float(found.score), tuple(found.precisions), float(found.bp), str(metric.get_signature()))


def _check(predictions: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(predictions, str) or isinstance(references, str):
        raise ValueError("predictions and references must be lists of texts, not one text")
    if len(predictions) != len(references) or not len(references):
        raise ValueError(
            "predictions and references must be equally long and not empty, got "
            f"{len(predictions)} and {len(references)} texts"
        )
    empty = next((place for place, text in enumerate(references) if not text.strip()), None)
    if empty is not None:
        raise ValueError(f"references[{empty}] is empty: there is nothing to compare with; leave that example out")
