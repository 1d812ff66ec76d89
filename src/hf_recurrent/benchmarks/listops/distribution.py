"""The random grammar that ListOps trees are drawn from, free sampling from it, and sampling of given lengths.

    node -> digit                                   with probability `value_probability`, uniform over 0-9
    node -> operator node{n} ]                      otherwise, n uniform in 2..`max_arguments`

A node under `max_depth` open lists is always a digit. The original data count levels instead of lists: their
20 levels are `max_depth=19` here, and the 10 levels of Long Range Arena are `max_depth=9`.

Trees whose length, and if wanted whose depth, is given are sampled exactly. Rejection is hopeless for long trees: only
about one free sample in two thousand has 900-1000 tokens. Instead, dynamic programming gives the probability of every
length for every number of levels, and trees are drawn from the root down with the probabilities of the grammar
conditioned on the length.

For exact depths, nodes come in three kinds, by the depth they reach below the levels they have:

    any     at most k lists deep
    lower   at most k - 1 lists deep
    full    exactly k lists deep

A forest of n `full` subtrees here means: at least one of the n reaches depth k. Its first child is `full` and
the others are `any`, or its first child is `lower` and the others are still to reach the depth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np

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
        """The mean number of tokens of a freely drawn tree."""
        mean_arguments = (2 + self.max_arguments) / 2
        length = 1.0
        for _ in range(self.max_depth):
            length = self.value_probability + (1 - self.value_probability) * (2 + mean_arguments * length)
        return length


def draw_tree(
    grammar: Grammar, rng: Random, keep: Callable[[list[str]], bool] | None = None, prefix: int = 0
) -> list[str] | None:
    """One tree of the grammar as tokens, in reading order.

    `keep` may refuse a tree of more than `prefix` tokens by its first `prefix` tokens: the rest is then not drawn
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


# (kind of the first child, kind of the forest of the others), for each kind of forest
_SPLITS = {
    "any": (("any", "any"),),
    "lower": (("lower", "lower"),),
    "full": (("full", "any"), ("lower", "full")),
}

# lengths tried one by one before a vectorised search
_WALK = 40

# float64 counts are exact up to here
COUNT_CEILING = float(2**53)


class LengthTables:
    """Weights of subtrees with k levels of lists left: `node[kind][k][length]`, `forest[kind][k][n][length]`.

    Weights are probabilities, or with `counting` the number of different trees, cut off at `COUNT_CEILING`.
    """

    def __init__(self, grammar: Grammar, max_length: int, counting: bool = False):
        self.grammar = grammar
        self.max_length = max_length
        self.counting = counting
        if counting:
            self.digit = self.last_digit = 10.0
            self.list = float(len(grammar.operators))
        else:
            # at the deepest level a digit is certain
            self.digit, self.last_digit, self.list = grammar.value_probability, 1.0, grammar.arity_probability
        # lists are faster to read one by one, arrays to search
        kinds = tuple(_SPLITS)
        self.node_array: dict[str, list] = {kind: [] for kind in kinds}
        self.forest_array: dict[str, list] = {kind: [] for kind in kinds}
        for level in range(grammar.max_depth + 1):
            nodes = {kind: self._node(kind, level) for kind in _SPLITS}
            forests = {kind: [None, weights] for kind, weights in nodes.items()}
            for _ in grammar.arities:
                # all three kinds of a size need the same smaller size, so they grow together
                grown = {}
                for kind, splits in _SPLITS.items():
                    total = np.zeros(max_length + 1)
                    for first, rest in splits:
                        total += np.convolve(nodes[first], forests[rest][-1])[: max_length + 1]
                    grown[kind] = self._clip(total)
                for kind, weights in grown.items():
                    forests[kind].append(weights)
            for kind, weights in nodes.items():
                self.node_array[kind].append(weights)
                self.forest_array[kind].append(forests[kind])
        self.node = {kind: [w.tolist() for w in levels] for kind, levels in self.node_array.items()}
        self.forest = {
            kind: [[None, *(w.tolist() for w in sizes[1:])] for sizes in levels]
            for kind, levels in self.forest_array.items()
        }

    def _node(self, kind: str, level: int) -> np.ndarray:
        weights = np.zeros(self.max_length + 1)
        if level == 0:
            weights[1] = 0.0 if kind == "lower" else self.last_digit
            return weights
        if kind != "full":
            weights[1] = self.digit
        for arity in self.grammar.arities:
            weights[2:] += self.list * self.forest_array[kind][level - 1][arity][:-2]
        return self._clip(weights)

    def _clip(self, weights: np.ndarray) -> np.ndarray:
        return np.minimum(weights, COUNT_CEILING) if self.counting else weights

    def root(self, depth: int | None) -> list[float]:
        """The weight of every length for whole trees: of any depth, or of one exact depth."""
        if depth is None:
            return self.node["any"][self.grammar.max_depth]
        return self.node["full"][depth]


@lru_cache(maxsize=32)
def length_tables(grammar: Grammar, max_length: int, counting: bool = False) -> LengthTables:
    return LengthTables(grammar, max_length, counting)


class ConditionalSampler:
    """Draws trees of `min_length` to `max_length` tokens, exactly as the grammar would given that length.

    With `depth`, trees have exactly that many levels of lists: the grammar with `max_depth=depth`,
    conditioned on reaching its depth.
    """

    def __init__(self, grammar: Grammar, min_length: int, max_length: int, depth: int | None = None):
        self.tables = length_tables(grammar, max_length)
        self.level = grammar.max_depth if depth is None else depth
        self.kind = "any" if depth is None else "full"
        self.min_length = min_length
        self.operators, self.arities = grammar.operators, grammar.arities
        cumulative = np.cumsum(self.tables.root(depth)[min_length:])
        self.total = float(cumulative[-1])
        self.cumulative = cumulative

    def draw(self, rng: Random) -> list[str]:
        """One tree as tokens."""
        random = rng.random
        place = int(np.searchsorted(self.cumulative, random() * self.total, side="right"))
        tokens: list[str] = []
        # forests still to be written, innermost last: (kind, level, length, size); size 0 closes a list
        pending = [(self.kind, self.level, self.min_length + place, 1)]
        while pending:
            kind, level, length, size = pending.pop()
            if size == 0:
                tokens.append(END)
                continue
            taken = 1
            while size > 1 and taken == 1:
                first, kind, taken = self._split(kind, level, length, size, random())
                length -= taken
                size -= 1
                if taken == 1:
                    tokens.append(DIGITS[int(random() * 10)])
                else:
                    pending.append((kind, level, length, size))
                    kind, length = first, taken
            if length == 1:
                tokens.append(DIGITS[int(random() * 10)])
            else:
                tokens.append(self.operators[int(random() * len(self.operators))])
                forests = self.tables.forest[kind][level - 1]
                weights = [forests[arity][length - 2] for arity in self.arities]
                left, chosen = random() * sum(weights), 0
                for arity, weight in zip(self.arities, weights, strict=True):
                    if weight > 0.0:
                        chosen = arity
                        left -= weight
                        if left < 0.0:
                            break
                pending.append((kind, 0, 0, 0))
                pending.append((kind, level - 1, length - 2, chosen))
        return tokens

    def _split(self, kind: str, level: int, length: int, size: int, place: float) -> tuple[str, str, int]:
        """The kind of a forest's first subtree, the kind of the forest that remains, the first's length."""
        node, forest = self.tables.node, self.tables.forest
        node_array, forest_array = self.tables.node_array, self.tables.forest_array
        left = place * forest[kind][level][size][length]
        chosen = None
        for first, rest in _SPLITS[kind]:
            firsts, rests = node[first][level], forest[rest][level][size - 1]
            longest = length - size + 1
            # most subtrees are short: walk up from the shortest, search only when that takes too long
            for taken in range(1, min(longest, _WALK) + 1):
                weight = firsts[taken] * rests[length - taken]
                if weight > 0.0:
                    chosen = first, rest, taken
                    left -= weight
                    if left < 0.0:
                        return chosen
            if longest > _WALK:
                weights = node_array[first][level][_WALK + 1 : longest + 1]
                # reading backwards pairs every first length with the length that it leaves
                weights = weights * forest_array[rest][level][size - 1][size - 1 : length - _WALK][::-1]
                cumulative = np.cumsum(weights)
                if left < cumulative[-1]:
                    return first, rest, _WALK + 1 + int(np.searchsorted(cumulative, left, side="right"))
                left -= float(cumulative[-1])
                if cumulative[-1] > 0.0:
                    chosen = first, rest, _WALK + 1 + int(np.flatnonzero(weights)[-1])
        # only rounding gets here: the last possible choice
        return chosen


@dataclass(frozen=True)
class Source:
    """A distribution of trees: a grammar, conditioned on lengths and on an exact depth where given."""

    grammar: Grammar
    min_length: int | None = None
    max_length: int | None = None
    depth: int | None = None

    def count(self) -> int:
        """How many different trees there are (a huge number stands for any huge number)."""
        if self.max_length is None:
            count = 10
            for _ in range(self.grammar.max_depth):
                lists = sum(count**arity for arity in self.grammar.arities)
                count = min(10**18, 10 + len(self.grammar.operators) * lists)
            return count
        counts = length_tables(self.grammar, self.max_length, counting=True).root(self.depth)
        return int(min(COUNT_CEILING, sum(counts[self.min_length or 1 :])))

    def describe(self) -> str:
        depth = f"depth {self.depth}" if self.depth is not None else f"depth up to {self.grammar.max_depth}"
        lengths = f", {self.min_length or 1}-{self.max_length} tokens" if self.max_length else ""
        operators = " ".join(self.grammar.operators)
        return f"{depth}, up to {self.grammar.max_arguments} arguments{lengths}, operators {operators}"


@dataclass(frozen=True)
class Request:
    """`size` examples of a split, from `source`; with `limit`, only trees of at most so many tokens."""

    split: str
    size: int | None
    source: Source
    limit: int | None = None


@lru_cache(maxsize=64)
def conditional_sampler(source: Source) -> ConditionalSampler:
    low, high = source.min_length or 1, source.max_length
    sampler = ConditionalSampler(source.grammar, low, high, source.depth) if low <= high else None
    if sampler is None or not sampler.total > 0.0:
        raise ValueError(f"there is no tree with {source.describe()}; widen the lengths, depth or arguments")
    return sampler


def draw(source: Source, rng: Random) -> list[str]:
    if source.max_length is None:
        return draw_tree(source.grammar, rng)
    return conditional_sampler(source).draw(rng)
