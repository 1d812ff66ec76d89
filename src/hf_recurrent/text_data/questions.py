"""A user's own questions: with a text that has the answer, or with several answers to choose from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from .columns import Columns, choice_columns, span_columns
from .examples import CHOICES, SPANS, Reading
from .places import Place
from .source import TextSource


@dataclass(frozen=True)
class SpanSource(TextSource):
    """Where questions, contexts and the answers within these come from. Nothing is read before `splits` is.

    Attributes:
        question_column, context_column, answer_column: names of columns; those of SQuAD if none are given.
    """

    text_flags: ClassVar[str] = "--question_column and --context_column"
    text_names: ClassVar[tuple[str, ...]] = SPANS
    # answers are none
    has_labels = False

    question_column: str | None = None
    context_column: str | None = None
    answer_column: str | None = None

    def columns_of(self, place: Place, split: str) -> Columns:
        names = ("question_column", "context_column", "answer_column")
        return span_columns(place.columns, place.name, {name: getattr(self, name) for name in names}, self.slice_by)

    @property
    def facts(self) -> dict[str, Any]:
        found = super().facts
        return {**found, "label_column": self.readings["train"].columns.answers}


@dataclass(frozen=True)
class ChoiceSource(TextSource):
    """Where contexts, what may come next, and the number of what does come from. Nothing is read before `splits` is.

    Attributes:
        context_column, start_column, ending_columns: names of columns; those of SWAG if none are given.
    """

    text_flags: ClassVar[str] = "--context_column and --ending_columns"
    text_names: ClassVar[tuple[str, ...]] = CHOICES

    context_column: str | None = None
    start_column: str | None = None
    ending_columns: tuple[str, ...] = ()

    def columns_of(self, place: Place, split: str) -> Columns:
        names = (self.context_column, self.start_column, self.ending_columns, self.label_column)
        return choice_columns(place.columns, place.name, *names, self.slice_by, self.needs_label(split))

    @cached_property
    def readings(self) -> Mapping[str, Reading]:
        """Split -> how its rows become examples, whose labels are numbers of choices.

        Raises:
            ValueError: a column is not there.
        """
        found = super().readings
        numbers = {split: tuple(map(str, range(len(own.columns.texts) - 1))) for split, own in found.items()}
        return {split: own._replace(label_names=numbers[split]) for split, own in found.items()}

    @property
    def facts(self) -> dict[str, Any]:
        return {**super().facts, "start_column": self.readings["train"].columns.start}
