"""Labels of a user's examples: classes, sets of classes, numbers, or a class for each word."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
# a class for each word, which is no problem type of a config
TOKENS = "token_classification"
# between the names of several labels, where results show them
JOINED = " + "
# what results show for an example without any of several labels
NO_LABEL = "(none)"
# labels that are shown of many
SHOWN = 8
# examples, so that labels of one each are no accident
FEWEST_TO_JUDGE = 50
# of numbers of 32 bits
LARGEST = 3.4028234e38


@dataclass
class SeenLabels:
    """Labels of a split, as texts: how many of each, and the first place of each label and kind.

    `kinds` are "text", "integer", "number" and "list".
    """

    counts: Counter = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, label: Any, place: str) -> None:
        """Count one label, or each of a list."""
        kinds = {bool: "text", str: "text", list: "list", int: "integer"}
        kind = kinds.get(type(label), "number")
        self.kinds.setdefault(kind, place)
        for name in map(str, label if kind == "list" else [label]):
            self.counts[name] += 1
            self.first.setdefault(name, place)


def as_number(value: str | float) -> float | None:
    """A number that 32 bits can hold, also one in a text; None for anything else."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST else None


@dataclass(frozen=True)
class Labels:
    """The labels of a task: `problem_type` as in a model's config, or `TOKENS`, and `names` of classes by their ids."""

    problem_type: str
    names: tuple[str, ...] = ()

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each class by its name."""
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
            return self.ids[str(label)]
        if self.problem_type == TOKENS:
            return [self.ids[str(value)] for value in label]
        chosen = {str(value) for value in label}
        return [float(name in chosen) for name in self.names]

    def require_known(self, seen: SeenLabels, split: str, known: str = "training") -> None:
        """Raise a ValueError where a split has labels that are not of this task, whose names `known` gave."""
        if self.problem_type == REGRESSION:
            wrong = [name for name in seen.counts if as_number(name) is None]
            if wrong:
                remedy = "with classes, pass --do_regression false" if known == "training" else "correct it"
                raise ValueError(
                    f"{seen.first[wrong[0]]}: the label is {wrong[0]!r:.60}: expected a number of 32 bits "
                    f"(regression); {remedy}"
                )
            return
        several = self.problem_type in (MULTI, TOKENS)
        if ("list" in seen.kinds) != several:
            raise ValueError(
                f"{next(iter(seen.kinds.values()))}: labels of {split} are {' and '.join(seen.kinds)}, those of "
                f"{known} {'lists' if several else 'single ones'}: make them alike"
            )
        unknown = [name for name in seen.counts if name not in self.names]
        if unknown:
            shown = ", ".join(f"{name!r:.60} ({seen.counts[name]} times)" for name in unknown[:SHOWN])
            raise ValueError(
                f"{split} has {len(unknown)} label{'s' if len(unknown) > 1 else ''} that {known} has not: {shown}, "
                f"first at {seen.first[unknown[0]]}; {known} has {listed(self.names)}: correct them"
                + (", or name all labels with --label_list" if known == "training" else "")
            )


def listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"{name!r:.60}" for name in names[:SHOWN]) + rest


def labels_of(
    seen: SeenLabels, declared: Sequence[str] = (), named: Sequence[str] = (), do_regression: bool | None = None
) -> Labels:
    """The labels of a task, from those of its training examples.

    Lists are sets of classes. Numbers, also in texts, make a regression if one of them is written as a fraction (1.0).
    Everything else names classes: in the order of `named` or, if the data declare names, of those; else sorted, numbers
    by value.

    Args:
        seen: labels of the training examples, by name where the data declare names.
        declared: names that the data declare.
        named: names that the user gives.
        do_regression: the user's choice; None: by the labels.

    Raises:
        ValueError: labels are of several kinds, one class only, or do not fit the choice.
    """
    kinds = seen.kinds
    if "list" in kinds and len(kinds) > 1:
        raise mixture(kinds)
    # NaN is written as a number, and as no whole one
    texts = seen.counts
    numbers = "list" not in kinds and all(parses(float, text) for text in texts)
    numbers = numbers and not all(parses(int, text) for text in texts)
    if do_regression or (do_regression is None and not declared and not named and numbers):
        labels = Labels(REGRESSION)
        if named:
            raise ValueError(f"label_list is {', '.join(named)} and do_regression true: numbers have no names")
        labels.require_known(seen, "train")
        if do_regression is None and all(number.is_integer() for number in map(float, seen.counts)):
            warnings.warn(
                f"labels are {listed(sorted_names(seen.counts))}: numbers, which the model learns by regression; pass "
                "--do_regression false if they are classes",
                stacklevel=2,
            )
        if len(set(map(as_number, seen.counts))) == 1:
            raise ValueError(
                f"all training examples have the label {next(iter(seen.counts))}: there is nothing to learn"
            )
        return labels
    if not declared and len({"text", "integer", "number"} & kinds.keys()) > 1:
        raise mixture(kinds)
    names = tuple(named or declared or sorted_names(seen.counts))
    if len(set(names)) < len(names):
        raise ValueError(f"label_list is {', '.join(names)}: name each label once")
    labels = Labels(MULTI if "list" in kinds else SINGLE, names)
    taken = [name for name in names if JOINED in name or name == NO_LABEL]
    if labels.problem_type == MULTI and taken:
        raise ValueError(
            f"a label is called {taken[0]!r}: results join several labels by {JOINED!r}, and show {NO_LABEL!r} for "
            "none: rename it"
        )
    labels.require_known(seen, "train", "label_list" if named else "the data set")
    warn_of_unlikely(seen.counts, are_declared=bool(declared or named))
    if not seen.counts:
        raise ValueError("no training example has any label: there is nothing to learn")
    if labels.problem_type == SINGLE and len(names) < 2:
        raise ValueError(f"all training examples have the label {names[0]!r}: there is nothing to learn")
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
    numbers = [name for name in counts if as_number(name) is not None]
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


def mixture(kinds: Mapping[str, str]) -> ValueError:
    """The error for labels of several kinds."""
    found = ", ".join(f"{kind} ({place})" for kind, place in kinds.items())
    return ValueError(f"labels are a mixture of {found}: make them all of one type")


def parses(kind: type, label: str) -> bool:
    """Whether a label is written as a number of a kind, `int` or `float`."""
    try:
        kind(label)
    except ValueError:
        return False
    return True


def sorted_names(names: Iterable[str]) -> list[str]:
    """Labels in alphabetical order; numbers by their value."""
    names = list(names)
    numeric = all(as_number(name) is not None for name in names)
    return sorted(names, key=(lambda name: (float(name), name)) if numeric else None)
