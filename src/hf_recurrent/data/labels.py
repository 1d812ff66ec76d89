"""Labels of examples: classes, sets of classes, numbers, or a class for each word."""

import ast
import math
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .columns import value_of

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
# a class for each word, which is no problem type of a config
TOKENS = "token_classification"
# between the names of several labels, where results show them, and what they show without any
JOINED, NO_LABEL = " + ", "(none)"
SHOWN = 8
# examples, so that labels of one each are no accident
FEWEST_TO_JUDGE = 50
# of numbers of 32 bits
LARGEST = 3.4028234e38
# integers that stand for no label: of secret labels, and of tokens that losses leave out
HIDDEN, IGNORED = -1, -100
LIST = re.compile(r"\s*\[.*\]\s*", re.DOTALL)


def is_number(value: str | float) -> bool:
    """Whether a value is a finite number, or a text that stands for one."""
    try:
        return math.isfinite(float(value))
    except (ValueError, OverflowError):
        return False


def as_number(value: str | float) -> float | None:
    """A number that 32 bits can hold, also one in a text; None for anything else."""
    return float(value) if is_number(value) and abs(float(value)) <= LARGEST else None


def spelled(value: Any) -> str:
    """A label as a text; letters with accents are composed, so that labels that look the same are one."""
    return unicodedata.normalize("NFC", str(value))


def raw_label(
    row: Mapping[str, Any],
    column: str | tuple[str, ...],
    declared: Sequence[str] = (),
    delimiter: str | None = None,
    is_list: bool = False,
) -> str | list[str | None] | None:
    """The label of a row as a text, or a list of texts; None where it has none (-1 of names, -100 of integers).

    Args:
        column: of labels, or several with 0 or 1 for each label.
        declared: names of labels, where the data declare them; values are then their numbers.
        delimiter: text between the labels of a value.
        is_list: whether a list has a label for each word, some of which may have none.

    Raises:
        ValueError: the value is no label; the message does not name the row.
    """
    if isinstance(column, tuple):
        return [name for name in column if applies(name, value_of(row, name))]
    value = value_of(row, column)
    try:
        if isinstance(value, str) and delimiter is not None:
            value = [part.strip() for part in value.split(delimiter) if part.strip()]
        elif isinstance(value, str) and LIST.fullmatch(value):
            value = listed_in(value)
        if not isinstance(value, list):
            return one_label(value, declared)
        labels = [one_label(item, declared) for item in value]
        return labels if is_list or None not in labels else None
    except ValueError as error:
        raise ValueError(f"{column} is {error}") from error


def applies(name: str, value: Any) -> bool:
    if str(value) not in ("0", "1", "0.0", "1.0", "True", "False"):
        raise ValueError(f"{name} is {value!r:.60}: expected 0 or 1 in a column for one of several labels")
    return str(value) in ("1", "1.0", "True")


def listed_in(value: str) -> list[Any]:
    """The labels of a list that is written as a text, as in Python or JSON."""
    try:
        found = ast.literal_eval(value.strip())
        if isinstance(found, list):
            return found
    except (ValueError, SyntaxError):
        pass
    raise ValueError(
        f"{value!r:.60}, a list written as a text that cannot be read: write ['a', 'b'], or pass --label_delimiter"
    )


def one_label(value: Any, declared: Sequence[str]) -> str | None:
    if (
        value == ""
        or not isinstance(value, str | int | float)
        or value != value
        or value in (float("inf"), -float("inf"))
    ):
        raise ValueError(f"{value!r:.60}: expected a label")
    if not isinstance(value, str) and value == IGNORED:
        return None
    if not declared or isinstance(value, str):
        return spelled(value)
    if value == HIDDEN:
        return None
    if not 0 <= value < len(declared) or value != int(value):
        raise ValueError(f"{value}, but the data name labels 0 to {len(declared) - 1}")
    return declared[int(value)]


@dataclass(frozen=True)
class Labels:
    """The labels of a task: `problem_type` as in a model's config, or `TOKENS`, and `names` of classes by their ids."""

    problem_type: str
    names: tuple[str, ...] = ()

    @cached_property
    def ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @property
    def positive(self) -> dict[str, str]:
        """What tables say of the class that `f1` is of, the second of two; nothing where it is of all."""
        two = self.problem_type in (SINGLE, TOKENS) and len(self.names) == 2
        return {"positive_label": self.names[1]} if two else {}

    def encode(self, label: Any) -> Any:
        """A label as a model takes it: one or several class ids, a list with 1 for each that applies, or a number."""
        if self.problem_type == REGRESSION:
            return as_number(label)
        if self.problem_type == SINGLE:
            return self.ids[label]
        if self.problem_type == TOKENS:
            return [IGNORED if value is None else self.ids[value] for value in label]
        return [float(name in label) for name in self.names]

    @property
    def feature(self) -> Any:
        """The type of a column of encoded labels."""
        from datasets import ClassLabel, List, Value

        kinds = {REGRESSION: Value("float32"), MULTI: List(Value("float32")), TOKENS: List(Value("int64"))}
        return kinds.get(self.problem_type) or ClassLabel(names=list(self.names))

    def require_known(self, seen: "Seen", place: str, known: str = "training") -> None:
        """Raise a ValueError where examples have labels that are not of this task, whose names `known` gave."""
        if self.problem_type == REGRESSION:
            wrong = next((name for name in seen.counts if as_number(name) is None), None)
            if wrong is not None:
                remedy = "with classes, pass --do_regression false" if known == "training" else "correct it"
                raise ValueError(
                    f"{place}, row {seen.first[wrong]}: the label is {wrong!r:.60}: expected a number of 32 bits "
                    f"(regression); {remedy}"
                )
            return
        if len(seen.kinds) > 1:
            raise ValueError(
                f"{place} has a list of labels in row {seen.kinds[True]} and a single one in row {seen.kinds[False]}: "
                "make them alike"
            )
        several = self.problem_type in (MULTI, TOKENS)
        if seen.counts and seen.lists != several:
            kinds = ("lists", "single labels") if seen.lists else ("single labels", "lists")
            raise ValueError(f"{place} has {kinds[0]}, and {known} {kinds[1]}: make them alike")
        unknown = [name for name in seen.counts if name not in self.ids]
        if unknown:
            shown = ", ".join(f"{name!r:.60} ({seen.counts[name]} times)" for name in unknown[:SHOWN])
            raise ValueError(
                f"{place} has {len(unknown)} label{'s' if len(unknown) > 1 else ''} that {known} has not: {shown}, "
                f"first in row {seen.first[unknown[0]]}; {known} has {listed(self.names)}: correct them"
                + (", or name all labels with --label_list" if known == "training" else "")
            )


class Seen:
    """The labels of a split: how often each occurs, the first row that has it, and how many examples have none."""

    def __init__(self, labels: Sequence[Any]):
        self.counts: Counter[str] = Counter()
        self.first: dict[str, int] = {}
        self.examples, self.unlabelled = len(labels), 0
        # whether labels are lists -> the first row that has such
        self.kinds: dict[bool, int] = {}
        for row, label in enumerate(labels, 1):
            self.unlabelled += label is None
            if label is not None:
                self.kinds.setdefault(isinstance(label, list), row)
            for name in label if isinstance(label, list) else [label]:
                if name is not None:
                    self.counts[name] += 1
                    self.first.setdefault(name, row)
        # what all examples have alike teaches nothing
        self.differ = len({tuple(label) if isinstance(label, list) else label for label in labels}) > 1

    @property
    def lists(self) -> bool:
        return True in self.kinds

    @property
    def hidden(self) -> bool:
        """Whether no example has a label, or all have -1, by which data sets keep those of their tests secret."""
        return self.unlabelled == self.examples or (bool(self.counts) and self.counts.keys() <= {"-1", "-1.0"})


def is_multi_hot(labels: Sequence[Any]) -> bool:
    """Whether all labels are lists of one length with 0 and 1 alone."""
    lists = [label for label in labels if isinstance(label, list)]
    digits = {"0", "1", "0.0", "1.0", "True", "False"}
    return (
        len(lists) == len(labels)
        and len({len(label) for label in lists}) == 1
        and len(lists[0]) > 1
        and all(digits.issuperset(label) for label in lists)
    )


def from_multi_hot(label: Sequence[str], names: Sequence[str]) -> list[str]:
    """The names of the labels that a list of 0 and 1 marks."""
    return [name for name, value in zip(names, label, strict=True) if value in ("1", "1.0", "True")]


def listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"{name!r:.60}" for name in names[:SHOWN]) + rest


def labels_of(
    seen: Seen,
    place: str,
    declared: Sequence[str] = (),
    named: Sequence[str] = (),
    do_regression: bool | None = None,
    of_words: bool = False,
) -> Labels:
    """The labels of a task, from those of its training examples.

    Lists are sets of classes or, `of_words`, classes of words. Numbers, also in texts, make a regression if one of them
    is written as a fraction (1.0). Everything else names classes: in the order of `named` or, if the data declare
    names, of those; else sorted, numbers by value.

    Args:
        seen: labels of the training examples, by name where the data declare names.
        place: the training examples, as messages call them.
        declared: names that the data declare.
        named: names that the user gives.
        do_regression: the user's choice; None: by the labels.

    Raises:
        ValueError: labels do not vary, or do not fit the choice.
    """
    if not seen.counts:
        raise ValueError("no training example has any label: there is nothing to learn")
    numbers = not seen.lists and all(map(is_number, seen.counts))
    fractions = numbers and not all(re.fullmatch(r"\s*[-+]?\d+\s*", text) for text in seen.counts)
    one = next(iter(seen.counts))
    if do_regression or (do_regression is None and not declared and not named and fractions):
        labels = Labels(REGRESSION)
        if named:
            raise ValueError(f"label_list is {', '.join(named)} and do_regression true: numbers have no names")
        labels.require_known(seen, place)
        if do_regression is None and all(number.is_integer() for number in map(float, seen.counts)):
            warnings.warn(
                f"labels are {listed(sorted_names(seen.counts))}: numbers, which the model learns by regression; pass "
                "--do_regression false if they are classes",
                stacklevel=2,
            )
        if len(set(map(as_number, seen.counts))) == 1:
            raise ValueError(f"all training examples have the label {one}: there is nothing to learn")
        return labels
    names = tuple(named or declared or sorted_names(seen.counts))
    if len(set(names)) < len(names):
        raise ValueError(f"label_list is {', '.join(names)}: name each label once")
    labels = Labels(TOKENS if of_words else MULTI if seen.lists else SINGLE, names)
    taken = next((name for name in names if JOINED in name or name == NO_LABEL), None)
    if labels.problem_type == MULTI and taken is not None:
        raise ValueError(
            f"a label is called {taken!r}: results join several labels by {JOINED!r}, and show {NO_LABEL!r} for none: "
            "rename it"
        )
    labels.require_known(seen, place, "label_list" if named else "the data set")
    warn_of_unlikely(seen.counts, are_declared=bool(declared or named))
    if len(seen.counts) < 2 and of_words:
        raise ValueError(f"all words of training have the label {one!r}: there is nothing to learn")
    if not seen.differ and not of_words:
        what = "the same labels" if seen.lists else f"the label {one!r}"
        raise ValueError(f"all training examples have {what}: there is nothing to learn; name another column of labels")
    return labels


def warn_of_unlikely(counts: Counter, are_declared: bool) -> None:
    """Warn of classes that may not be meant: spelled in two ways, numbers among names, or of an example each."""
    alike: dict[str, list[str]] = {}
    for name in counts:
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            found = ", ".join(f"{name!r:.60} ({counts[name]} times)" for name in sorted(names))
            warnings.warn(
                f"labels {found} differ in case or spaces alone, and are classes of their own: correct the data if "
                "they are meant to be one",
                stacklevel=3,
            )
    numbers = [name for name in counts if is_number(name)]
    if not are_declared and numbers and len(numbers) < len(counts):
        names = [name for name in counts if name not in numbers]
        warnings.warn(
            f"labels {listed(sorted_names(numbers))} are numbers and {listed(sorted_names(names))} not, and all are "
            "classes: correct the data, or name the classes with --label_list if that is meant",
            stacklevel=3,
        )
    total, alone = counts.total(), sum(number == 1 for number in counts.values())
    if total >= FEWEST_TO_JUDGE and 2 * alone > total:
        warnings.warn(
            f"{alone:,} of {total:,} training examples have a label that no other one has, such as "
            f"{listed(sorted_names(counts)[:2])}: from one example nothing is learned; is it the right column?",
            stacklevel=3,
        )


def sorted_names(names: Iterable[str]) -> list[str]:
    """Labels in alphabetical order; numbers by their value."""
    names = list(names)
    numeric = all(map(is_number, names))
    return sorted(names, key=(lambda name: (float(name), name)) if numeric else None)
