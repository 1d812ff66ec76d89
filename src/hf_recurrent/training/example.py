"""The example that a card shows how to use a model with."""

from collections.abc import Mapping
from typing import Any

from ..benchmarks import BenchmarkInfo
from ..hub.card import Example
from .evaluation import MAX_EXAMPLE_TOKENS
from .objectives import CLASSIFICATION, Objective

# of a text whose beginning is enough to see what to pass
EXAMPLE_CHARACTERS = 160


def example_of(row: Mapping[str, Any], info: BenchmarkInfo, objective: Objective) -> Example:
    """What the usage section shows: the texts of a row, or a string up to a read with the bit that answers it.

    Of texts that are read byte by byte, it is how they begin.

    A language model's row holds `labels` (S,), -100 where there is nothing to predict, one for each word of its text.
    """
    texts = [row[column] for column in info.text_columns]
    if info.modality == "bytes":
        return Example(*map(beginning, texts))
    if objective is CLASSIFICATION:
        return Example(*texts)
    words = texts[0].split()
    answered = [place for place, label in enumerate(row["labels"]) if label >= 0]
    # the longest prompt that is still readable, or the shortest there is
    place = max((place for place in answered if place <= MAX_EXAMPLE_TOKENS), default=answered[0])
    return Example(" ".join(words[:place]), answer=words[place])


def beginning(text: str) -> str:
    """The first words of a text, those that could be read as places on some machine left out."""
    start = text[: 2 * EXAMPLE_CHARACTERS]
    # a cut goes through a word
    words = start.split() if start == text else start.split()[:-1]
    words = [word for word in words if not any(sign in word for sign in "/\\~")]
    kept = " ".join(words)
    return kept if len(kept) <= EXAMPLE_CHARACTERS else kept[:EXAMPLE_CHARACTERS].rpartition(" ")[0]
