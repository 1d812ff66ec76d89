"""Texts with marked spans, such as named entities, as annotation tools write them: a label for each word."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from datasets import Value

from ..data.reading import Columns, text_of, value_of
from ..metrics.functional import Row
from .arguments import EntityArguments
from .base import Split
from .token_classification import WORDS, TokenClassification

OUTSIDE = "O"


class Span(NamedTuple):
    """Characters of a text from `start` up to `end`, and their label."""

    start: int
    end: int
    label: str


class EntitySpans(TokenClassification):
    """Words between spaces are labelled B- and I- of the span that they are of, or O."""

    data_kind = "has texts with marked spans"
    arguments = EntityArguments
    fields = (("text", "text_column", ("text", "data", "content"), "the texts"),)
    label_names, label_kind = ("spans", "entities", "label", "labels"), "the lists of spans"

    def example(self, row: Row, columns: Columns) -> Row:
        text = text_of(row, columns.inputs["text"])
        return {WORDS: [word.group() for word in words_in(text)], "text": text}

    def features(self, columns: Columns) -> Row:
        return {**super().features(columns), "text": Value("string")}

    def label(self, row: Row, columns: Columns, declared: Sequence[str] = ()) -> list[str]:
        return tags_of(text_of(row, columns.inputs["text"]), spans_of(row, str(columns.label)))

    def predictions(self, split: Split, examples: pd.DataFrame, model: Any, tokenizer: Any) -> Iterator[Row]:
        """The text of each example with its spans, true and predicted, beside what is known of its words."""
        # a long text is cut, and the rest of its words have no labels
        rows = super().predictions(split, examples, model, tokenizer)
        for text, row in zip(split.dataset["text"], rows, strict=True):
            spans = {"spans": row["labels"], "predicted_spans": row["predictions"]}
            marked = {name: [span._asdict() for span in spans_in(text, tags)] for name, tags in spans.items()}
            yield {"text": text, **marked, **row}


def words_in(text: str) -> Iterator[re.Match]:
    """The words of a text, with their characters."""
    return re.finditer(r"\S+", text)


def spans_of(row: Row, column: str) -> list[Span]:
    """The spans of a row: lists of start, end and label, or mappings.

    Raises:
        ValueError: a value is no list of spans; the message does not name the row.
    """
    found = value_of(row, column)
    if not isinstance(found, list):
        raise ValueError(f"{column} is {found!r:.60}: expected a list of spans, such as [[0, 5, 'PER']]")
    spans = []
    for item in found:
        try:
            start, end, label = map(item.get, Span._fields) if isinstance(item, Mapping) else item
            spans.append(Span(int(start), int(end), str(label)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{column} holds {item!r:.60}: expected start, end and label of a span") from error
    return sorted(spans)


def tags_of(text: str, spans: Sequence[Span]) -> list[str]:
    """The B-, I- or O label of each word of a text.

    Raises:
        ValueError: a span has no word, or shares one with another.
    """
    words = list(words_in(text))
    tags = [OUTSIDE] * len(words)
    for span in spans:
        places = [i for i, word in enumerate(words) if word.start() < span.end and span.start < word.end()]
        if not 0 <= span.start < span.end <= len(text) or not places:
            raise ValueError(f"span {list(span)} marks no word of a text of {len(text)} characters")
        if any(tags[place] != OUTSIDE for place in places):
            raise ValueError(f"span {list(span)} has a word that another span has, too: a word has one label")
        for place in places:
            tags[place] = f"{'B' if place == places[0] else 'I'}-{span.label}"
    return tags


def spans_in(text: str, tags: Sequence[str]) -> list[Span]:
    """The spans that the labels of words mark; an I- after another label begins one."""
    spans: list[Span] = []
    before = OUTSIDE
    for word, tag in zip(words_in(text), tags, strict=False):
        kind, _, label = tag.partition("-")
        if kind == "I" and before.endswith(f"-{label}"):
            spans[-1] = spans[-1]._replace(end=word.end())
        elif kind in ("B", "I"):
            spans.append(Span(word.start(), word.end(), label))
        before = tag
    return spans
