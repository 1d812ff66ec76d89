"""Labels of a user's examples: classes, sets of classes, or numbers."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SINGLE, MULTI, REGRESSION = "single_label_classification", "multi_label_classification", "regression"
# between the names of several labels, where results show them
JOINED = " + "
# labels that are shown of many
SHOWN = 8


@dataclass
class SeenLabels:
    """Labels of a split as they were read: how many of each, and the first place of each label and kind.

    `kinds` are "text", "integer", "number" and "list".
    """

    counts: Counter = field(default_factory=Counter)
    first: dict[Any, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, label: Any, place: str) -> None:
        """Count one label."""
        kind = kind_of(label)
        self.kinds.setdefault(kind, place)
        for value in label if kind == "list" else [label]:
            self.counts[value] += 1
            self.first.setdefault(value, place)


def kind_of(label: Any) -> str:
    if isinstance(label, list):
        return "list"
    if isinstance(label, bool | str):
        return "text"
    return "integer" if isinstance(label, int) else "number"


def as_number(value: Any) -> float | None:
    """A finite number, also one in a text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Labels:
    """The labels of a task: `problem_type` as in a model's config, and the `names` of classes in order of their ids."""

    problem_type: str
    names: tuple[str, ...] = ()

    def encode(self, label: Any) -> Any:
        """A label as a model takes it: a class id, a list with 1 for each class that applies, or a number."""
        if self.problem_type == REGRESSION:
            return as_number(label)
        if self.problem_type == SINGLE:
            return self.names.index(str(label))
        chosen = {str(value) for value in label}
        return [float(name in chosen) for name in self.names]

    def require_known(self, seen: SeenLabels, split: str, owner: str = "training") -> None:
        """Raise a ValueError where a split has labels that are not of this task; `owner` is what has these."""
        if self.problem_type == REGRESSION:
            wrong = [value for value in seen.counts if as_number(value) is None]
            if wrong:
                raise ValueError(
                    f"{seen.first[wrong[0]]}: the label is {wrong[0]!r}: expected a number (regression); with classes, "
                    "pass --do_regression false"
                )
            return
        if ("list" in seen.kinds) != (self.problem_type == MULTI):
            raise ValueError(
                f"{next(iter(seen.kinds.values()))}: labels of {split} are {' and '.join(seen.kinds)}, those of "
                f"{owner} {'lists' if self.problem_type == MULTI else 'single ones'}: make them alike"
            )
        unknown = [value for value in seen.counts if str(value) not in self.names]
        if unknown:
            shown = ", ".join(f"{value!r} ({seen.counts[value]} times)" for value in unknown[:SHOWN])
            raise ValueError(
                f"{split} has {len(unknown)} label{'s' if len(unknown) > 1 else ''} that {owner} has not: {shown}, "
                f"first at {seen.first[unknown[0]]}; {owner} has {listed(self.names)}: correct them"
                + (", or name all labels with --label_list" if owner == "training" else "")
            )


def listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + rest


def labels_of(
    seen: SeenLabels, declared: Sequence[str] = (), named: Sequence[str] = (), do_regression: bool | None = None
) -> Labels:
    """The labels of a task, from those of its training examples.

    Lists are sets of classes. Numbers, also in texts, make a regression if one of them is not whole. Everything else
    names classes: in the order of `named` or, if the data declare names, of those; else sorted, whole numbers by value.

    Args:
        seen: labels of the training examples; of data that declare names, the names.
        declared: names that the data declare.
        named: names that the user gives.
        do_regression: the user's choice; None: by the labels.

    Raises:
        ValueError: labels are of several kinds, one class only, or do not fit the choice.
    """
    kinds = seen.kinds
    if "list" in kinds and len(kinds) > 1:
        raise mixture(kinds)
    if do_regression or (do_regression is None and not declared and not named and is_regression(seen.counts, kinds)):
        labels = Labels(REGRESSION)
        if named:
            raise ValueError(f"label_names is {', '.join(named)} and do_regression true: numbers have no names")
        labels.require_known(seen, "train")
        return labels
    if not declared and len({"text", "integer", "number"} & kinds.keys()) > 1:
        raise mixture(kinds)
    names = tuple(named or declared or sorted_names(seen.counts))
    if len(set(names)) < len(names):
        raise ValueError(f"label_names is {', '.join(names)}: name each label once")
    labels = Labels(MULTI if "list" in kinds else SINGLE, names)
    joined = [name for name in names if JOINED in name]
    if labels.problem_type == MULTI and joined:
        raise ValueError(f"a label is called {joined[0]!r}: {JOINED!r} joins several labels, rename it")
    labels.require_known(seen, "train")
    if labels.problem_type == SINGLE and len(names) < 2:
        raise ValueError(f"all training examples have the label {names[0]!r}: there is nothing to learn")
    return labels


def mixture(kinds: Mapping[str, str]) -> ValueError:
    """The error for labels of several kinds."""
    found = ", ".join(f"{kind} ({place})" for kind, place in kinds.items())
    return ValueError(f"labels are a mixture of {found}: make them all of one type")


def is_regression(counts: Mapping[Any, int], kinds: Mapping[str, str]) -> bool:
    """Whether labels are numbers of which one is not whole."""
    if "list" in kinds:
        return False
    numbers = [as_number(value) for value in counts]
    return None not in numbers and any(not number.is_integer() for number in numbers)


def sorted_names(counts: Mapping[Any, int]) -> list[str]:
    """Labels as names, in alphabetical order; whole numbers by their value."""
    names = {str(value) for value in counts}
    numeric = all(as_number(name) is not None for name in names)
    return sorted(names, key=(lambda name: (float(name), name)) if numeric else None)
