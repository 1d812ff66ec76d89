"""Evaluation of a split whose labelled tokens count one by one: accuracy, steps and further scores."""

import math
from typing import Any

from ..analysis.halting import HaltingRecord, halting_table
from ..analysis.token_halting import collect_tokens
from .metrics import LARGEST_EXPONENT, tag_scores
from .token_data import TokenSplit


def evaluate_tokens(
    model: Any, tokenizer: Any, split: TokenSplit, batch_size: int, **options: Any
) -> tuple[HaltingRecord, dict[str, Any]]:
    """What a model predicts of the labelled tokens of a split, and its table (see `halting_table`) with `scores`.

    Args:
        options: of `collect_tokens`.
    """
    record = collect_tokens(model, split.batches(tokenizer, batch_size), slices=split.slices, **options)
    scores = masked_scores if split.labels is None else word_scores
    return record, {**halting_table(record), "scores": scores(record, split)}


def word_scores(record: HaltingRecord, split: TokenSplit) -> dict[str, float]:
    """Scores of labels beside their accuracy, with those of entities."""
    found, labels = (record.examples[name].to_numpy() for name in ("prediction", "label"))
    scores = tag_scores(found, labels, split.counts, split.labels.names)
    return {name: score for name, score in scores.items() if name != "accuracy"}


def masked_scores(record: HaltingRecord, split: TokenSplit) -> dict[str, float]:
    """Perplexity of masked tokens and, where training is known, that of their frequencies there."""
    nll = float(record.examples["nll"].mean())
    scores = {"nll": nll, "perplexity": perplexity(nll)}
    if "nll" in split.baseline:
        scores["perplexity_of_frequencies"] = perplexity(split.baseline["nll"])
    return scores


def perplexity(nll: float) -> float:
    """The exponential of nats a token, or of as many as a float can hold."""
    return math.exp(min(nll, LARGEST_EXPONENT))
