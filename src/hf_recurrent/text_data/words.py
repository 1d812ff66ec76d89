"""A user's own examples of words with a label for each: lists of both in the rows of a file or data set."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from .columns import Columns, word_columns
from .examples import WORDS, Reading
from .labels import TOKENS, Labels, labels_of
from .places import Place
from .source import TextSource


@dataclass(frozen=True)
class WordSource(TextSource):
    """Where lists of words and of their labels come from. Nothing is read before `splits` or `info` is."""

    def columns_of(self, place: Place, split: str) -> Columns:
        (words,) = self.text_columns or (None,)
        label, slices = self.label_column, self.slice_by
        return word_columns(place.columns, place.name, words, label, slices, self.needs_label(split))

    @cached_property
    def readings(self) -> Mapping[str, Reading]:
        return {split: reading._replace(names=WORDS) for split, reading in super().readings.items()}

    @cached_property
    def labels(self) -> Labels:
        """The labels of words: in the order of `label_names` or, if the data declare names, of those; else sorted.

        Raises:
            ValueError: labels that training has not, or one only.
        """
        seen, declared = self.scans["train"].labels, self.readings["train"].label_names
        labels = replace(labels_of(seen, declared, self.label_names), problem_type=TOKENS)
        if len(labels.names) < 2:
            raise ValueError(f"all words of training have the label {labels.names[0]!r}: there is nothing to learn")
        for split, scan in self.scans.items():
            labels.require_known(scan.labels, split, "label_list" if self.label_names else "training")
        return labels
