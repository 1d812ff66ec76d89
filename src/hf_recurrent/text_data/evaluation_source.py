"""A user's own examples for a model that is trained already, whose labels are known."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .columns import Columns, has_column
from .documents import DocumentSource
from .examples import Reading, Scan
from .labels import SINGLE, Labels
from .places import Place
from .questions import ChoiceSource, SpanSource
from .source import TextSource, require_split, warn_of_unlabelled
from .words import WordSource

if TYPE_CHECKING:
    from datasets import Dataset


SECRET = "the labels of {} are secret: nothing can be measured on it; `hf-recurrent predict` writes predictions"


@dataclass(frozen=True)
class EvaluationSource(TextSource):
    """Splits to evaluate a model on: nothing is held out, and none is for training.

    Attributes:
        known: the labels of the model; None for sources and targets.
        wanted: splits of a data set; none named: those whose names begin with "test" or, without any whose labels are
            not secret, "validation".
        title: what the data are called, if not by their file.
        labelled: whether classes or numbers are needed; without, they are read if every split has a column of them.
        trained_columns: field -> column or columns of training, for those that are not named, where a place has them.
    """

    known: Labels | None = None
    wanted: tuple[str, ...] = ()
    title: str | None = None
    labelled: bool = True
    trained_columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.title or super().name

    @cached_property
    def loaded(self) -> "Mapping[str, Dataset]":
        loaded = self.load_data_set()
        for name in self.wanted:
            require_split("split", name, loaded, self.dataset_name)
        return {
            name: loaded[name] for name in self.wanted or default_splits(loaded, self.dataset_name, self.label_column)
        }

    def needs_label(self, split: str) -> bool:
        return self.labelled

    def columns_of(self, place: Place, split: str) -> Columns:
        known, absent = {}, []
        for name, value in self.trained_columns.items():
            columns = value if isinstance(value, tuple) else (value,)
            if getattr(self, name):
                continue
            if all(has_column(place.columns, column) for column in columns):
                known[name] = value
            else:
                absent += columns
        try:
            return super(EvaluationSource, replace(self, **known)).columns_of(place, split)
        except ValueError as error:
            if not absent:
                raise
            raise ValueError(f"{error}; training read {' and '.join(map(repr, absent))}") from error

    @cached_property
    def readings(self) -> dict[str, Reading]:
        found = super().readings
        if self.labelled or all(reading.columns.label is not None for reading in found.values()):
            return found
        return {
            split: reading._replace(columns=replace(reading.columns, label=None)) for split, reading in found.items()
        }

    @property
    def answers(self) -> Labels | None:
        """The labels of the model that the examples have, too; None where they are not read."""
        unread = any(reading.columns.label is None for reading in self.readings.values())
        return None if unread and not self.labelled else self.known

    @cached_property
    def scans(self) -> dict[str, Scan]:
        """Split -> the findings of a first pass over it.

        Raises:
            ValueError: an example that cannot be used, or a split without labels.
        """
        found = self.scan_all()
        for split, result in found.items() if self.answers is not None else ():
            if result.hides_labels and not result.labels.counts.keys() & set(self.answers.names):
                raise ValueError(SECRET.format(split))
            warn_of_unlabelled(self.places[split].name, result)
        return found

    @cached_property
    def labels(self) -> Labels | None:
        """The labels of the model.

        Raises:
            ValueError: the examples have others.
        """
        if self.answers is not None:
            for split, found in self.scans.items():
                self.answers.require_known(found.labels, split, "the model")
        return self.answers

    @cached_property
    def splits(self) -> dict[str, "Dataset"]:
        return self.read_all()


@dataclass(frozen=True)
class WordEvaluationSource(EvaluationSource, WordSource):
    """The same of words with labels."""


@dataclass(frozen=True)
class SpanEvaluationSource(EvaluationSource, SpanSource):
    """The same of questions with texts that have the answers."""


@dataclass(frozen=True)
class ChoiceEvaluationSource(EvaluationSource, ChoiceSource):
    """The same of contexts with several endings, whose labels are their numbers, whatever a model calls them."""

    @cached_property
    def labels(self) -> Labels:
        """The numbers of the endings.

        Raises:
            ValueError: a split has no labels, or others.
        """
        labels = Labels(SINGLE, next(iter(self.readings.values())).label_names)
        for split, found in self.scans.items():
            if found.hides_labels:
                raise ValueError(SECRET.format(split))
            warn_of_unlabelled(self.places[split].name, found)
            labels.require_known(found.labels, split, "the columns of endings")
        return labels


@dataclass(frozen=True)
class DocumentEvaluationSource(EvaluationSource, DocumentSource):
    """The same of documents, whose tokens are predicted."""

    @property
    def holds_out(self) -> bool:
        return False


def default_splits(splits: "Mapping[str, Dataset]", dataset: str, label_column: str | None = None) -> list[str]:
    """The splits that a model is measured on; those with secret labels if there are no others.

    Raises:
        ValueError: there is none.
    """
    named = {role: [name for name in splits if name.startswith(role)] for role in ("test", "validation")}
    column, open_tests = label_column or "label", []
    for name in named["test"]:
        numbers = getattr(splits[name].features.get(column), "dtype", "").startswith("int")
        # by -1 data sets keep labels secret
        if not numbers or splits[name].unique(column) != [-1]:
            open_tests.append(name)
    for found in (open_tests, named["validation"], named["test"]):
        if found:
            return found
    raise ValueError(f"{dataset} has the splits {', '.join(splits)}, none of them for tests: name one with --split")
