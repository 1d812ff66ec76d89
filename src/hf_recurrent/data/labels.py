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

from .reading import value_of

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
APPLIES, DIGITS = {"1", "1.0", "True"}, {"0", "0.0", "False", "1", "1.0", "True"}


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
        values = {name: str(value_of(row, name)) for name in column}
        for name, value in values.items():
            if value not in DIGITS:
                raise ValueError(f"{name} is {value!r:.60}: expected 0 or 1 in a column for one of several labels")
        return [name for name, value in values.items() if value in APPLIES]
    value = value_of(row, column)
    try:
        if isinstance(value, str) and delimiter is not None:
            value = [part.strip() for part in value.split(delimiter) if part.strip()]
        elif isinstance(value, str) and re.fullmatch(r"\[.*\]", value.strip(), re.DOTALL):
            value = listed_in(value)
        if not isinstance(value, list):
            return one_label(value, declared)
        labels = [one_label(item, declared) for item in value]
        return labels if is_list or None not in labels else None
    except ValueError as error:
        raise ValueError(f"{column} is {error}") from error


def listed_in(value: str) -> list[Any]:
    """The labels of a list that is written as a text, as in Python or JSON."""
    try:
        return list(ast.literal_eval(value.strip()))
    except (ValueError, SyntaxError) as error:
        raise ValueError(
            f"{value!r:.60}, a list written as a text that cannot be read: write ['a', 'b'], or pass --label_delimiter"
        ) from error


def one_label(value: Any, declared: Sequence[str]) -> str | None:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if not is_number and (not isinstance(value, str) or not value):
        raise ValueError(f"{value!r:.60}: expected a label")
    if is_number and value == IGNORED:
        return None
    if not declared or not is_number:
        # letters with accents are composed, so that labels that look the same are one
        return unicodedata.normalize("NFC", str(value))
    if value == HIDDEN:
        return None
    if value not in range(len(declared)):
        raise ValueError(f"{value}, but the data name labels 0 to {len(declared) - 1}")
    return declared[int(value)]


def is_multi_hot(labels: Sequence[Any]) -> bool:
    """Whether all labels are lists of one length with 0 and 1 alone."""
    return (
        all(isinstance(label, list) and DIGITS.issuperset(label) for label in labels)
        and len({len(label) for label in labels}) == 1
        and len(labels[0]) > 1
    )


def from_multi_hot(labels: Sequence[Any], names: Sequence[str], place: str) -> list[list[str] | None]:
    """The names that lists of 0 and 1 mark. Raises a ValueError for a list of another length."""
    for label in labels:
        if label is not None and len(label) != len(names):
            raise ValueError(
                f"labels of {place} are lists of {len(label)} values 0 or 1, and there are {len(names)} names, "
                f"{listed(names)}: name as many with --label_list"
            )
    return [label and [name for name, value in zip(names, label, strict=True) if value in APPLIES] for label in labels]


def names_in(label: Any) -> list[str]:
    """The names of a label, of which lists have several, or none."""
    return [name for name in (label if isinstance(label, list) else [label]) if name is not None]


def counted(labels: Sequence[Any]) -> Counter[str]:
    """How often each label occurs, in the order of their first examples."""
    return Counter(name for label in labels for name in names_in(label))


def is_hidden(labels: Sequence[Any]) -> bool:
    """Whether no example has a label, or all have -1, by which data sets keep those of their tests secret."""
    names = {*counted(labels)}
    return all(label is None for label in labels) or (bool(names) and names <= {"-1", "-1.0"})


def is_number(text: str) -> bool:
    """Whether a text stands for a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def listed(names: Iterable[str]) -> str:
    names = list(names)
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"{name!r:.60}" for name in names[:SHOWN]) + rest


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
            return float(label)
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

    def check(self, labels: Sequence[Any], place: str, known: str = "training") -> None:
        """Raise a ValueError where labels of examples are not of this task, whose names `known` gave."""
        several = self.problem_type in (MULTI, TOKENS)
        for row, label in enumerate(labels, 1):
            if label is not None and isinstance(label, list) != several:
                raise ValueError(
                    f"{place}, row {row}: the label is {label!r:.60}: expected "
                    f"{'a list of labels' if several else 'a single label'}, as {known} has them"
                )
            is_expected = label is not None and self.problem_type == REGRESSION
            if is_expected and not (is_number(label) and abs(float(label)) <= LARGEST):
                remedy = "with classes, pass --do_regression false" if known == "training" else "correct it"
                raise ValueError(
                    f"{place}, row {row}: the label is {label!r:.60}: expected a number of 32 bits (regression); "
                    f"{remedy}"
                )
        if self.problem_type == REGRESSION:
            return
        counts = counted(labels)
        unknown = [name for name in counts if name not in self.ids]
        if unknown:
            shown = ", ".join(f"{name!r:.60} ({counts[name]} times)" for name in unknown[:SHOWN])
            row = next(row for row, label in enumerate(labels, 1) if unknown[0] in names_in(label))
            raise ValueError(
                f"{place} has {len(unknown)} label{'s' if len(unknown) > 1 else ''} that {known} has not: {shown}, "
                f"first in row {row}; {known} has {listed(self.names)}: correct them"
                + (", or name all labels with --label_list" if known == "training" else "")
            )


def labels_of(
    labels: Sequence[Any],
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
        labels: those of the training examples, by name where the data declare names.
        place: the training examples, as messages call them.
        declared: names that the data declare.
        named: names that the user gives.
        do_regression: the user's choice; None: by the labels.

    Raises:
        ValueError: labels do not vary, or do not fit the choice.
    """
    counts, several = counted(labels), any(isinstance(label, list) for label in labels)
    if not counts:
        raise ValueError("no training example has any label: there is nothing to learn")
    numbers = not several and all(map(is_number, counts))
    fractions = numbers and not all(re.fullmatch(r"\s*[-+]?\d+\s*", text) for text in counts)
    if do_regression or (do_regression is None and not declared and not named and fractions):
        if named:
            raise ValueError(f"label_list is {', '.join(named)} and do_regression true: numbers have no names")
        found, given = Labels(REGRESSION), "training"
        if do_regression is None and all(float(number).is_integer() for number in counts):
            warnings.warn(
                f"labels are {listed(in_order(counts))}: numbers, which the model learns by regression; pass "
                "--do_regression false if they are classes",
                stacklevel=2,
            )
    else:
        names = tuple(named or declared or in_order(counts))
        if len(set(names)) < len(names):
            raise ValueError(f"label_list is {', '.join(names)}: name each label once")
        found, given = Labels(TOKENS if of_words else MULTI if several else SINGLE, names), "the data set"
        taken = next((name for name in names if JOINED in name or name == NO_LABEL), None)
        if found.problem_type == MULTI and taken is not None:
            raise ValueError(
                f"a label is called {taken!r}: results join several labels by {JOINED!r}, and show {NO_LABEL!r} for "
                "none: rename it"
            )
    found.check(labels, place, "label_list" if named else given)
    if found.problem_type != REGRESSION:
        warn_of_unlikely(counts, are_declared=bool(declared or named))
    values = set(counts) if of_words else {str(label) for label in labels}
    if len(values) == 1:
        what = "the same labels" if several and not of_words else f"the label {next(iter(counts))}"
        raise ValueError(f"all training examples have {what}: there is nothing to learn; name another column of labels")
    return found


def warn_of_unlikely(counts: Counter, are_declared: bool) -> None:
    """Warn of classes that may not be meant: spelled in two ways, numbers among names, or of an example each."""
    alike: dict[str, list[str]] = {}
    for name in sorted(counts):
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    shown = [
        ", ".join(f"{name!r:.60} ({counts[name]} times)" for name in own) for own in alike.values() if len(own) > 1
    ]
    found = [
        f"labels {names} differ in case or spaces alone, and are classes of their own: correct the data if they are "
        "meant to be one"
        for names in shown
    ]
    numbers, names = ([name for name in in_order(counts) if is_number(name) is kind] for kind in (True, False))
    if not are_declared and numbers and names:
        found.append(
            f"labels {listed(numbers)} are numbers and {listed(names)} not, and all are classes: correct the data, or "
            "name the classes with --label_list if that is meant"
        )
    total, alone = counts.total(), sum(number == 1 for number in counts.values())
    if total >= FEWEST_TO_JUDGE and 2 * alone > total:
        found.append(
            f"{alone:,} of {total:,} training examples have a label that no other one has, such as "
            f"{listed(in_order(counts)[:2])}: from one example nothing is learned; is it the right column?"
        )
    for message in found:
        warnings.warn(message, stacklevel=3)


def in_order(names: Iterable[str]) -> list[str]:
    """Labels in alphabetical order; numbers by their value."""
    names = list(names)
    numeric = all(map(is_number, names))
    return sorted(names, key=(lambda name: (float(name), name)) if numeric else None)
