"""Checked examples of a place: texts, a label and columns of difficulty."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..benchmarks.files import reader_versions
from ..files import parse_json
from .columns import Columns, keys_beside, value_of
from .labels import MULTI, REGRESSION, TOKENS, Labels, SeenLabels, as_number, parses
from .places import Place

if TYPE_CHECKING:
    from datasets import Dataset

ONE, PAIR, SOURCE, WORDS = ("text",), ("text", "text_pair"), ("source", "target"), ("words",)
SPANS, CHOICES = ("question", "context"), ("context", "choices")
# names of lists of texts
LISTS = ("words", "choices")
# keys of answers: their texts, and where these begin in the context
ANSWER_TEXT, ANSWER_START = "text", "answer_start"
# broken rows that a message names
SHOWN = 3
# labels in the place of secret ones
HIDDEN = {"-1", "-1.0"}
# types of difficulty, the widest first
SLICE_TYPES = {"string": str, "float64": float, "int64": int}


class Reading(NamedTuple):
    """How the rows of a place become examples.

    Attributes:
        columns: those of the place.
        names: what the texts are called in an example; `WORDS` are lists of words, with a label for each, the second of
            `SPANS` has the answers to the first, and the second of `CHOICES` are lists of texts.
        label_delimiter: text between the labels of an example that has several in one text.
        prefix: text before every first text.
        skip: whether a row that is broken is left out, rather than an error.
        label_names: names of the labels, where the data declare them; label values are then numbers.
    """

    columns: Columns
    names: tuple[str, ...]
    label_delimiter: str | None = None
    prefix: str = ""
    skip: bool = False
    label_names: tuple[str, ...] = ()


@dataclass
class Scan:
    """The findings of a first pass over the rows of a place.

    `empty` counts documents without text, which are left out. `unlabelled` counts examples without a label: -1 where
    the data declare names, or there is no such column.
    `slice_types` are the types of values of each column of difficulty, see `slice_type`. `skipped` are the places of
    broken rows, and the reasons.
    """

    examples: int = 0
    empty: int = 0
    unlabelled: int = 0
    labels: SeenLabels = field(default_factory=SeenLabels)
    slice_types: dict[str, set[str]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def left_out(self) -> str:
        """A sentence on what was left out; empty if nothing was."""
        empty = f"{self.empty:,} empty texts were left out" if self.empty else ""
        return "; ".join(filter(None, [empty, broken_rows(self.skipped)]))

    @property
    def hides_labels(self) -> bool:
        """Whether no example has a label, or all have -1, by which data sets keep those of their tests secret."""
        seen = self.labels.counts.keys()
        return self.unlabelled == self.examples or (bool(seen) and seen <= HIDDEN)


def broken_rows(skipped: Sequence[tuple[str, str]]) -> str:
    """A sentence on the rows that were left out; empty if there are none."""
    shown = "; ".join(f"{place}: {reason}" for place, reason in skipped[:SHOWN])
    more = f"; and {len(skipped) - SHOWN} more" if len(skipped) > SHOWN else ""
    return f"{len(skipped):,} broken rows were left out: {shown}{more}" if skipped else ""


def raw_examples(
    place: Place, reading: Reading, skipped: list[tuple[str, str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Examples with their place, whose label is as it was read.

    Args:
        skipped: takes the places of the rows that are left out, and the reasons.

    Raises:
        ValueError: a row is broken, an example has an empty text, something that is no text, or no label.
    """
    for where, row in place.rows(skipped if reading.skip else None):
        try:
            example = example_of(row, reading)
        except ValueError as error:
            if not reading.skip:
                raise ValueError(f"{where}: {error}; correct it, or pass --on_error skip") from error
            skipped.append((where, str(error)))
            continue
        yield where, example


def example_of(row: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """One example. Raises a ValueError, which does not name the row, for one that cannot be used."""
    columns = reading.columns
    if reading.names == WORDS:
        example = words_of(row, columns.texts[0])
    else:
        example = {SPANS: span_of, CHOICES: choices_of}.get(reading.names, texts_of)(row, reading)
    if columns.label is not None:
        try:
            label = example["label"] = label_value(value_of(row, columns.label), reading)
            # None are labels that are kept secret
            if reading.names == WORDS and label is not None:
                words = len(example["words"])
                if not isinstance(label, list):
                    raise ValueError(f"{label!r:.60}: expected a list of labels, one for each word")
                if len(label) != words:
                    raise ValueError(f"a list of {len(label)} labels for {words} words: expected one for each")
        except ValueError as error:
            raise ValueError(f"{columns.label} is {error}") from error
    return example | slices_of(row, columns)


def slices_of(row: Mapping[str, Any], columns: Columns) -> dict[str, str | int | float]:
    """The values of difficulty. Raises a ValueError, which does not name the row, for none and for other values."""
    found = {column: value_of(row, column) for column in columns.slices}
    for column, value in found.items():
        if not isinstance(value, str | int | float) or value in ("", math.inf, -math.inf) or value != value:
            raise ValueError(f"{column} is {value!r:.60}: expected a number or text (slice_by)")
    return found


def texts_of(row: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The texts of an example, by their names there."""
    example = {}
    for name, column in zip(reading.names, reading.columns.texts, strict=True):
        example[name] = text_of(row, column)
    example[reading.names[0]] = reading.prefix + example[reading.names[0]]
    return example


def text_of(row: Mapping[str, Any], column: str) -> str:
    """The text of a column, which is not empty."""
    text = value_of(row, column)
    if not isinstance(text, str):
        raise ValueError(f"{column} is {text!r:.60}, which is no text{keys_beside(row, column)}")
    if not text.strip():
        raise ValueError(f"{column} is empty")
    return text


def span_of(row: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """A question, a context, and the `answers` within that: their texts and where these begin, in characters.

    Answers are as SQuAD has them, also written as JSON in a table of texts.
    """
    example = texts_of(row, reading)
    column, context, keys = reading.columns.answers, example["context"], (ANSWER_TEXT, ANSWER_START)
    answers = value_of(row, column)
    if isinstance(answers, str):
        answers = parse_json(answers, f"{column} is {answers!r:.60}, which")
    lists = [answers.get(key) for key in keys] if isinstance(answers, Mapping) else [None]
    if not all(isinstance(values, list) for values in lists) or len(set(map(len, lists))) > 1:
        raise ValueError(
            f"{column} is {answers!r:.60}: expected lists of the answers' texts and of their first characters in the "
            'context, such as {"text": ["Paris"], "answer_start": [17]}'
        )
    for text, start in zip(*lists, strict=True):
        stands = isinstance(text, str) and text.strip() and type(start) is int and start >= 0
        if not stands or not context.startswith(text, start):
            raise ValueError(
                f"{column} is an answer {text!r:.60} at {start!r:.60}, where the context has "
                f"{context[start : start + 60] if type(start) is int else None!r}: expected the characters there"
            )
    return example | {"answers": dict(zip(keys, lists, strict=True))}


def choices_of(row: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """A context, and the `choices` of how it goes on, which the text of the column `start` begins if there is one."""
    context, *endings = reading.columns.texts
    start = reading.columns.start
    before = "" if start is None else f"{text_of(row, start)} "
    return {"context": text_of(row, context), "choices": [before + text_of(row, ending) for ending in endings]}


def words_of(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    """The words of an example, by their name there."""
    words = value_of(row, column)
    if not isinstance(words, list) or not words:
        raise ValueError(f"{column} is {words!r:.60}: expected a list of words, as files of JSON and Parquet have them")
    for number, word in enumerate(words, 1):
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"{column} has {word!r:.60} as word {number}: expected a text that is not empty")
    return {"words": words}


def label_value(value: Any, reading: Reading) -> Any:
    """A label, or a list of them, by name where the data declare names; None for -1, a label that is kept secret."""
    if reading.label_delimiter is not None and isinstance(value, str):
        value = [part.strip() for part in value.split(reading.label_delimiter) if part.strip()]
    if not isinstance(value, list):
        return one_label(value, reading.label_names)
    labels = [one_label(item, reading.label_names) for item in value]
    return None if None in labels else [str(label) for label in labels]


def one_label(value: Any, names: Sequence[str]) -> str | int | float | None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value}: expected a label")
    if value == "" or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r:.60}: expected a label")
    if not names or isinstance(value, str):
        return value
    if value == -1:
        return None
    if not 0 <= value < len(names) or value != int(value):
        raise ValueError(f"{value}, but the data name labels 0 to {len(names) - 1}")
    return names[int(value)]


def scan(place: Place, reading: Reading) -> Scan:
    """A first pass over all rows, so that every error comes before anything is written.

    Raises:
        ValueError: as `raw_examples`, or there is no example.
    """
    found = Scan()
    for where, example in raw_examples(place, reading, found.skipped):
        found.examples += 1
        label = example.get("label")
        if label is None:
            found.unlabelled += 1
        else:
            found.labels.add(label, where)
        for column in reading.columns.slices:
            found.slice_types.setdefault(column, set()).add(slice_type(example[column]))
    if not found.examples:
        raise ValueError(": ".join(filter(None, [f"{place.name} has no examples", found.left_out])))
    return found


def slice_type(value: str | float) -> str:
    """The type of a value of difficulty, one of `SLICE_TYPES`; CSV files hold numbers as texts."""
    if isinstance(value, bool) or as_number(value) is None:
        return "string"
    if isinstance(value, float) or not parses(int, str(value)):
        return "float64"
    return "int64" if abs(int(value)) < 2**63 else "float64"


def encoded_examples(
    place: Place, reading: Reading, labels: Labels | None, slice_types: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Examples whose label is as a model takes it; those without a label that the task has are left out."""
    for _, example in raw_examples(place, reading, []):
        if labels is not None:
            if example["label"] is None:
                continue
            example["label"] = labels.encode(example["label"])
        yield example | {column: SLICE_TYPES[kind](example[column]) for column, kind in slice_types.items()}


def dataset_of(
    place: Place, reading: Reading, labels: Labels | None, slice_types: Mapping[str, str], cache_dir: str | None
) -> "Dataset":
    """The examples of a place that was scanned, as a `Dataset`.

    Args:
        labels: those of the task; None where there are none.
        slice_types: columns of difficulty -> their types.
        cache_dir: folder for them, instead of the cache of `datasets`.
    """
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets.fingerprint import Hasher

    text, texts = Value("string"), List(Value("string"))
    features: dict[str, Any] = {name: texts if name in LISTS else text for name in reading.names}
    if reading.names == SPANS:
        features["answers"] = {ANSWER_TEXT: texts, ANSWER_START: List(Value("int64"))}
    if labels is not None:
        kinds = {REGRESSION: Value("float32"), MULTI: List(Value("float32"))}
        classes = ClassLabel(names=list(labels.names)) if labels.names else None
        features["label"] = kinds.get(labels.problem_type) or (
            List(classes) if labels.problem_type == TOKENS else classes
        )
    features |= {column: Value(kind) for column, kind in slice_types.items()}
    arguments = {"place": place, "reading": reading, "labels": labels, "slice_types": slice_types}
    # the same bytes are other texts in another encoding
    identity = Hasher.hash([place.fingerprint, place.encoding, reading, labels, slice_types, reader_versions()])
    return Dataset.from_generator(
        encoded_examples, Features(features), cache_dir, gen_kwargs=arguments, fingerprint=identity
    )
