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
loop: for these depths ROOT is the distribution of accepted samples.

An operation depends on some of its arguments only. The event "the list has value v and depth d" is therefore cut into
disjoint parts, its *arrangements*. Each names the argument that is selected (for the median of an even number, the
lower and the upper of the two), and how the value of every other argument compares with theirs, so that equal values
are ordered as a stable sort orders them. Given its arrangement and the selected values, the arguments of a list are
independent, which is what makes exact sampling easy. [SM needs no arrangement: it depends on all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, permutations
from typing import NamedTuple

from .expressions import MAXIMUM, MINIMUM, OPERATORS

MAX_ARGUMENTS = 5
ROOT = ("root", 0)
# the authors' length counts an operator as 3 and a digit as 1
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
    """Lists whose arguments have the given rules; `weight` is that of each operator."""

    weight: float
    arguments: tuple[Name, ...]


class Rule(NamedTuple):
    """A non-terminal becomes one of the ten digits, each with weight `digit`, or a list of one of the `forms`."""

    digit: float
    forms: tuple[Form, ...]


Rules = Mapping[Name, Rule]


def sampling_rules(source: Source) -> Rules:
    """The rules for samples of a source, each after those that it uses."""
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


# values of the lower and upper middle argument, by the median that they give
MIDDLES = tuple(
    tuple((low, high) for low in range(10) for high in range(low, 10) if (low + high) // 2 == value)
    for value in range(10)
)


class Arrangement(NamedTuple):
    """Positions of the selected arguments, `low == high` if it is one, and `(position, relation)` of the others.

    Relations are `lt` and `le` to the value of `low`, `gt` and `ge` to that of `high`.
    """

    low: int
    high: int
    others: tuple[tuple[int, str], ...]

    @property
    def ties(self) -> bool:
        """Whether the selected values may be equal: in a stable sort the first of them is the lower."""
        return self.low <= self.high


@lru_cache
def arrangements(operator: str, size: int) -> tuple[Arrangement, ...]:
    """The arrangements of a list of `size` arguments under `[MIN`, `[MAX` or `[MED`."""
    places = range(size)
    if operator in (MINIMUM, MAXIMUM):
        # the first of equal values is selected
        before, after = ("gt", "ge") if operator == MINIMUM else ("lt", "le")
        return tuple(
            Arrangement(i, i, tuple((j, before if j < i else after) for j in places if j != i)) for i in places
        )
    middles = [(i, i) for i in places] if size % 2 else list(permutations(places, 2))
    found = []
    for low, high in middles:
        others = [j for j in places if j not in (low, high)]
        for below in combinations(others, len(others) // 2):
            relations = []
            for j in others:
                if j in below:
                    relations.append((j, "le" if j < low else "lt"))
                else:
                    relations.append((j, "ge" if j > high else "gt"))
            found.append(Arrangement(low, high, tuple(relations)))
    return tuple(found)
