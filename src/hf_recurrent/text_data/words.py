"""A user's own examples of words with a label for each: lists of both in the rows of a file or data set."""

from dataclasses import dataclass, replace
from typing import ClassVar

from .columns import Columns, word_columns
from .examples import WORDS
from .labels import TOKENS, Labels
from .places import Place
from .source import TextSource


@dataclass(frozen=True)
class WordSource(TextSource):
    """Where lists of words and of their labels come from. Nothing is read before `splits` or `info` is."""

    text_names: ClassVar[tuple[str, ...]] = WORDS

    def columns_of(self, place: Place, split: str) -> Columns:
        (words,) = self.text_columns or (None,)
        label, slices = self.label_column, self.slice_by
        return word_columns(place.columns, place.name, words, label, slices, self.needs_label(split))

    def labels_of_training(self) -> Labels:
        """The labels of words. Raises a ValueError if there is one only."""
        labels = replace(super().labels_of_training(), problem_type=TOKENS)
        if len(labels.names) < 2:
            raise ValueError(f"all words of training have the label {labels.names[0]!r}: there is nothing to learn")
        return labels
