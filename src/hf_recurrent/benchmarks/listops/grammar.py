"""The random grammar that ListOps trees are drawn from, and free sampling from it.

    node -> digit                                   with probability `value_probability`, uniform over 0-9
    node -> operator node{n} ]                      otherwise, n uniform in 2..`max_arguments`

A node under `max_depth` open lists is always a digit. The original data count levels instead of lists: their
20 levels are `max_depth=19` here, and the 10 levels of Long Range Arena are `max_depth=9`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .expressions import DIGITS, END, OPERATORS


@dataclass(frozen=True)
class Grammar:
    max_depth: int = 19
    max_arguments: int = 5
    value_probability: float = 0.75
    operators: tuple[str, ...] = OPERATORS

    @property
    def arities(self) -> range:
        return range(2, self.max_arguments + 1)

    @property
    def arity_probability(self) -> float:
        """The probability that a node which may be a list is one with a given number of arguments."""
        return (1.0 - self.value_probability) / len(self.arities)

    def expected_length(self) -> float:
        """The mean number of words of a freely drawn tree."""
        mean_arguments = (2 + self.max_arguments) / 2
        length = 1.0
        for _ in range(self.max_depth):
            length = self.value_probability + (1 - self.value_probability) * (2 + mean_arguments * length)
        return length


def draw_tree(
    grammar: Grammar, rng: Random, keep: Callable[[list[str]], bool] | None = None, prefix: int = 0
) -> list[str] | None:
    """One tree of the grammar as words, in reading order.

    `keep` may refuse a tree of more than `prefix` words by its first `prefix` words: the rest is then not drawn
    and the result is None.
    """
    random, value_probability = rng.random, grammar.value_probability
    if random() < value_probability:
        return [DIGITS[int(random() * 10)]]
    operators, max_depth = grammar.operators, grammar.max_depth
    num_operators, num_arities = len(operators), len(grammar.arities)
    tokens = [operators[int(random() * num_operators)]]
    missing = [2 + int(random() * num_arities)]  # arguments still to come, for each open list
    while True:
        if len(missing) < max_depth and random() >= value_probability:
            tokens.append(operators[int(random() * num_operators)])
            missing.append(2 + int(random() * num_arities))
            continue
        tokens.append(DIGITS[int(random() * 10)])
        while missing:
            missing[-1] -= 1
            if missing[-1]:
                break
            missing.pop()
            tokens.append(END)
        if not missing:
            return tokens
        if keep is not None and len(tokens) >= prefix:
            if not keep(tokens[:prefix]):
                return None
            keep = None


def count_trees(grammar: Grammar, ceiling: int = 10**18) -> int:
    """How many different trees the grammar has, or `ceiling` if there are more."""
    count = 10
    for _ in range(grammar.max_depth):
        lists = sum(count**arity for arity in grammar.arities)
        count = min(ceiling, 10 + len(grammar.operators) * lists)
    return count
