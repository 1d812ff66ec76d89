"""The authors' random process as rules of a weighted grammar.

    subtree(levels)     a digit if no level is left, or with probability `value_probability`; else a list of 2 to 5
                        subtree(levels - 1), the number and the operator uniform
    sample              r = subtree(high); while fewer than `low` lists of r lie inside one another: r becomes an
                        argument of a new list, before a random one of its 2 to 4 others, each subtree(high - 1)
    accepted            if 3 x operators + digits <= length_limit

Three kinds of non-terminals describe it without a loop:

    ("subtree", k)      subtree(k)
    ("bounded", k)      a subtree with more than k levels that used at most k: at the lowest, lists are lost
    ("grown", k)        every r that the loop meets with at most k lists inside one another, k < low
    ROOT                every r that the loop meets at all

A sample whose dependency depth is `low` or more has at least as many lists inside one another, so that it ends the
loop: for these depths ROOT is the law of accepted samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .expressions import OPERATORS

MAX_ARGUMENTS = 5
ROOT = ("root", 0)
# what the authors' length counts for an operator; a digit counts as 1
OPERATOR_LENGTH = 3

Name = tuple[str, int]


def shortest(depth: int) -> int:
    """The least length of so many operations inside one another: each has one argument more than the next."""
    return (OPERATOR_LENGTH + 1) * depth + 1


@dataclass(frozen=True)
class Source:
    """A distribution of expressions of `low` to `high` dependent operations."""

    low: int
    high: int
    length_limit: int = 50
    value_probability: float = 0.7


class Form(NamedTuple):
    """Lists whose arguments have the given laws; `weight` is that of each operator."""

    weight: float
    arguments: tuple[Name, ...]


class Rule(NamedTuple):
    """A non-terminal becomes one of the ten digits, each with weight `digit`, or a list of one of the `forms`."""

    digit: float
    forms: tuple[Form, ...]


Rules = Mapping[Name, Rule]


def sampling_rules(source: Source) -> Rules:
    """The rules for samples of a source, those that others use before them."""
    value = source.value_probability
    rules: dict[Name, Rule] = {}
    for kind, levels, bottom in (("subtree", source.high + 1, 1.0), ("bounded", source.high, value)):
        for level in range(levels):
            rules[kind, level] = Rule((value if level else bottom) / 10, _lists(kind, level, 1 - value))
    for level in range(source.low):
        base = rules["bounded", level]
        growth = _growth(("grown", level - 1), ("bounded", level - 1)) if level else ()
        rules["grown", level] = Rule(base.digit, base.forms + growth)
    base = rules["subtree", source.high]
    growth = _growth(("grown", source.low - 1), ("subtree", source.high - 1))
    rules[ROOT] = Rule(base.digit, base.forms + growth)
    return rules


def counting_rules(high: int) -> Rules:
    """Rules with weights of 1, by which ("subtree", high) counts different expressions."""
    sizes = range(2, MAX_ARGUMENTS + 1)
    return {
        ("subtree", k): Rule(1.0, tuple(Form(1.0, (("subtree", k - 1),) * size) for size in sizes) if k else ())
        for k in range(high + 1)
    }


def _lists(kind: str, level: int, probability: float) -> tuple[Form, ...]:
    sizes = range(2, MAX_ARGUMENTS + 1) if level else ()
    return tuple(
        Form(probability / (MAX_ARGUMENTS - 1) / len(OPERATORS), ((kind, level - 1),) * size) for size in sizes
    )


def _growth(inner: Name, other: Name) -> tuple[Form, ...]:
    """`inner` before one of 2 to 4 others, and so never the last."""
    sizes = range(2, MAX_ARGUMENTS)
    return tuple(
        Form(1 / len(sizes) / size / len(OPERATORS), (*(other,) * place, inner, *(other,) * (size - place)))
        for size in sizes
        for place in range(size)
    )
