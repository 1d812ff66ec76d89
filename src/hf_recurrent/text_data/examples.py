"""Checked examples of a place: texts, a label and columns of difficulty."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .columns import Columns, keys_beside, value_of
from .labels import MULTI, REGRESSION, Labels, SeenLabels
from .places import Place

if TYPE_CHECKING:
    from datasets import Dataset

ONE, PAIR, SOURCE = ("text",), ("text", "text_pair"), ("source", "target")
# broken rows that a message names
SHOWN = 3


class Reading(NamedTuple):
    """How the rows of a place become examples.

    Attributes:
        columns: those of the place.
        names: what the texts are called in an example.
        label_delimiter: text between the labels of an example that has several in one text.
        prefix: text before every first text.
        skip: whether a row that is broken is left out, rather than an error.
    """

    columns: Columns
    names: tuple[str, ...]
    label_delimiter: str | None = None
    prefix: str = ""
    skip: bool = False


@dataclass
class Scan:
    """The findings of a first pass over the rows of a place.

    `unlabelled` counts examples that the data declare to have no label (-1). `slice_types` maps columns of difficulty
    to "int64", "float64" or "string". `skipped` are the places of broken rows, and the reasons.
    """

    examples: int = 0
    unlabelled: int = 0
    labels: SeenLabels = field(default_factory=SeenLabels)
    slice_types: dict[str, str] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def report(self) -> str | None:
        """A sentence on the rows that were left out; None if there are none."""
        if not self.skipped:
            return None
        shown = "; ".join(f"{place}: {reason}" for place, reason in self.skipped[:SHOWN])
        more = f"; and {len(self.skipped) - SHOWN} more" if len(self.skipped) > SHOWN else ""
        return f"{len(self.skipped)} broken rows were left out: {shown}{more}"


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
            example = example_of(row, place, reading)
        except ValueError as error:
            if not reading.skip:
                raise ValueError(f"{where}: {error}; correct it, or pass --on_error skip") from error
            skipped.append((where, str(error)))
            continue
        yield where, example


def example_of(row: dict[str, Any], place: Place, reading: Reading) -> dict[str, Any]:
    """One example. Raises a ValueError, which does not name the row, for one that cannot be used."""
    columns, example = reading.columns, {}
    for name, column in zip(reading.names, columns.texts, strict=True):
        text = value_of(row, column)
        if not isinstance(text, str):
            raise ValueError(f"{column} is {text!r:.60}, which is no text{keys_beside(row, column)}")
        if not text.strip():
            raise ValueError(f"{column} is empty")
        example[name] = text
    example[reading.names[0]] = reading.prefix + example[reading.names[0]]
    if columns.label is not None:
        example["label"] = label_value(value_of(row, columns.label), columns.label, place, reading.label_delimiter)
    for column in columns.slices:
        value = value_of(row, column)
        if not isinstance(value, str | int | float) or value == "" or (isinstance(value, float) and math.isnan(value)):
            raise ValueError(f"{column} is {value!r:.60}: expected a number or text (slice_by)")
        example[column] = value
    return example


def label_value(value: Any, column: str, place: Place, delimiter: str | None) -> Any:
    """A label, or a list of them, by name where the data declare names; None for -1, a label that is kept secret."""
    names = place.label_names
    if delimiter is not None and isinstance(value, str):
        return [part.strip() for part in value.split(delimiter) if part.strip()]
    if isinstance(value, list | tuple):
        return [label_value(item, column, place, None) for item in value]
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{column} is {value!r}: expected a label")
    if not isinstance(value, str | int | float):
        raise ValueError(f"{column} is {value!r:.60}: expected a label")
    if names and not isinstance(value, str):
        if value == -1:
            return None
        if not 0 <= value < len(names):
            raise ValueError(f"{column} is {value}, but the data name labels 0 to {len(names) - 1}")
        return names[value]
    return value


def scan(place: Place, reading: Reading) -> Scan:
    """A first pass over all rows, so that every error comes before anything is written.

    Raises:
        ValueError: as `raw_examples`, or there is no example.
    """
    found, kinds = Scan(), {}
    for where, example in raw_examples(place, reading, found.skipped):
        found.examples += 1
        label = example.get("label")
        if label is not None:
            found.labels.add(label, where)
        elif reading.columns.label is not None:
            found.unlabelled += 1
        for column in reading.columns.slices:
            kinds.setdefault(column, set()).add(slice_type(example[column]))
    if not found.examples:
        raise ValueError(f"{place.name} has no examples" + (f": {found.report}" if found.skipped else ""))
    order = ("string", "float64", "int64")
    found.slice_types = {column: next(kind for kind in order if kind in seen) for column, seen in kinds.items()}
    return found


def slice_type(value: Any) -> str:
    """The type of a value of difficulty; CSV files hold numbers as texts."""
    if isinstance(value, bool):
        return "string"
    if isinstance(value, str):
        for kind, parse in (("int64", int), ("float64", float)):
            try:
                parse(value)
            except ValueError:
                continue
            return kind
        return "string"
    return "int64" if isinstance(value, int) else "float64"


PARSERS = {"int64": int, "float64": float, "string": str}


def encoded_examples(
    place: Place, reading: Reading, labels: Labels | None, slice_types: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Examples whose label is as a model takes it; those without a label that the task has are left out."""
    for _, example in raw_examples(place, reading, []):
        if labels is not None:
            if example["label"] is None:
                continue
            example["label"] = labels.encode(example["label"])
        for column, kind in slice_types.items():
            example[column] = PARSERS[kind](example[column])
        yield example


def dataset_of(place: Place, reading: Reading, labels: Labels | None, found: Scan, cache_dir: str | None) -> "Dataset":
    """The examples of a place that was scanned, as a `Dataset`."""
    from datasets import ClassLabel, Dataset, Features, List, Value
    from datasets.fingerprint import Hasher

    features: dict[str, Any] = {name: Value("string") for name in reading.names}
    if labels is not None:
        kinds = {REGRESSION: Value("float32"), MULTI: List(Value("float32"))}
        features["label"] = kinds.get(labels.problem_type) or ClassLabel(names=list(labels.names))
    features |= {column: Value(kind) for column, kind in found.slice_types.items()}
    arguments = {"place": place, "reading": reading, "labels": labels, "slice_types": found.slice_types}
    identity = Hasher.hash([place.fingerprint, reading, labels, found.slice_types])
    return Dataset.from_generator(
        encoded_examples, Features(features), cache_dir, gen_kwargs=arguments, fingerprint=identity
    )
