"""BLEU of what a model wrote, for the benchmarks that are measured by it."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from ..benchmarks import benchmark_info
from ..benchmarks.wmt14_en_de.text_forms import join_pieces, plain_text
from ..metrics.bleu import bleu, compound_split_bleu
from .arguments import BenchmarkArguments

TRANSLATION = "wmt14_en_de"


def text_form(data: BenchmarkArguments) -> str | None:
    """Whether texts are plain, tokenized or cut into BPE pieces; None where a benchmark has one form only."""
    defaults = benchmark_info(data.benchmark).parameters[data.benchmark_config]
    return {**defaults, **data.benchmark_params}.get("text_form")


def require_scores(data: BenchmarkArguments) -> None:
    """Raise a ValueError if what measures a benchmark is not installed: better before training than after."""
    if data.benchmark == TRANSLATION and importlib.util.find_spec("sacrebleu") is None:
        raise ValueError(
            f"benchmark {data.benchmark!r} is measured by BLEU, which needs the package sacrebleu: pip install "
            "'hf-recurrent[translation]'"
        )


def scores(data: BenchmarkArguments, written: Sequence[str], true: Sequence[str]) -> dict[str, Any]:
    """`bleu`, in points of 100, and the `bleu_signature` that says what was compared; nothing if it is not measured so.

    Plain texts are compared as they are; tokenized ones, as in most papers, by words with compounds split, and put back
    together as people write them besides (`detokenized_bleu`).
    """
    if data.benchmark != TRANSLATION:
        return {}
    form = text_form(data)
    if form == "plain":
        found = bleu(written, true)
    else:
        words = [[join_pieces(text) for text in texts] if form == "bpe" else texts for texts in (written, true)]
        found = compound_split_bleu(*words)
    named = {"bleu": found.score, "bleu_signature": found.signature}
    if form != "plain":
        whole = ([plain_text(text, form) for text in texts] for texts in (written, true))
        named["detokenized_bleu"] = bleu(*whole).score
    return named
