"""Exact sampling of trees whose length, and if wanted whose depth, is given.

Rejection is hopeless for long trees: only about one free sample in two thousand has 900-1000 words. Instead,
dynamic programming gives the probability of every length for every number of levels, and trees are drawn from
the root down with the probabilities of the grammar conditioned on the length.

For exact depths, nodes come in three kinds, by the depth they reach below the levels they have:

    any     at most k lists deep
    lower   at most k - 1 lists deep
    full    exactly k lists deep

A forest of n `full` subtrees here means: at least one of the n reaches depth k. Its first child is `full` and
the others are `any`, or its first child is `lower` and the others are still to reach the depth.
"""

from functools import lru_cache
from random import Random

import numpy as np

from .expressions import DIGITS, END
from .grammar import Grammar

# (kind of the first child, kind of the forest of the others), for each kind of forest
_SPLITS = {
    "any": (("any", "any"),),
    "lower": (("lower", "lower"),),
    "full": (("full", "any"), ("lower", "full")),
}

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
        self.node: dict[str, list] = {"any": [], "lower": [], "full": []}
        self.forest: dict[str, list] = {"any": [], "lower": [], "full": []}
        for level in range(grammar.max_depth + 1):
            self._add_level(level)

    def _add_level(self, level: int) -> None:
        """Adds the tables of one level more, built from those of the level below it."""
        nodes = {kind: self._node(kind, level) for kind in self.node}
        forests = {kind: [None, weights] for kind, weights in nodes.items()}
        for _ in self.grammar.arities:
            # all three kinds of a size need the same smaller size, so they grow together
            grown = {kind: self._combine(kind, nodes, forests) for kind in nodes}
            for kind, weights in grown.items():
                forests[kind].append(weights)
        for kind, weights in nodes.items():
            self.node[kind].append(weights.tolist())
            self.forest[kind].append([None, *(w.tolist() for w in forests[kind][1:])])

    def _node(self, kind: str, level: int) -> np.ndarray:
        weights = np.zeros(self.max_length + 1)
        if level == 0:
            weights[1] = 0.0 if kind == "lower" else self.last_digit
            return weights
        if kind != "full":
            weights[1] = self.digit
        for arity in self.grammar.arities:
            below = np.asarray(self.forest[kind][level - 1][arity])
            weights[2:] += self.list * below[:-2]
        return self._clip(weights)

    def _combine(self, kind: str, nodes: dict[str, np.ndarray], forests: dict[str, list]) -> np.ndarray:
        total = np.zeros(self.max_length + 1)
        for first, rest in _SPLITS[kind]:
            total += np.convolve(nodes[first], forests[rest][-1])[: self.max_length + 1]
        return self._clip(total)

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
    """Draws trees of `min_length` to `max_length` words, exactly as the grammar would given that length.

    With `depth`, trees have exactly that many levels of lists: the grammar with `max_depth=depth`,
    conditioned on reaching its depth.
    """

    def __init__(self, grammar: Grammar, min_length: int, max_length: int, depth: int | None = None):
        self.tables = length_tables(grammar, max_length)
        self.level = grammar.max_depth if depth is None else depth
        self.kind = "any" if depth is None else "full"
        self.lengths = range(min_length, max_length + 1)
        cumulative = np.cumsum(self.tables.root(depth)[min_length:])
        self.total = float(cumulative[-1])
        self.cumulative = cumulative

    def draw(self, rng: Random) -> list[str]:
        """One tree as words."""
        place = int(np.searchsorted(self.cumulative, rng.random() * self.total, side="right"))
        tokens: list[str] = []
        # last in, first out: ("node", kind, level, length), ("forest", kind, level, length, size) or END
        pending: list = [(self.kind, self.level, self.lengths[place], 0)]
        while pending:
            item = pending.pop()
            if item == END:
                tokens.append(END)
                continue
            kind, level, length, size = item
            if size == 0:
                self._open_node(kind, level, length, tokens, pending, rng)
            elif size == 1:
                pending.append((kind, level, length, 0))
            else:
                first, rest, taken = self._split(kind, level, length, size, rng)
                pending.append((rest, level, length - taken, size - 1))
                pending.append((first, level, taken, 0))
        return tokens

    def _open_node(
        self, kind: str, level: int, length: int, tokens: list, pending: list, rng: Random
    ) -> None:
        """Writes a digit, or an operator whose forest of arguments is left pending (size > 0)."""
        if length == 1:
            tokens.append(DIGITS[int(rng.random() * 10)])
            return
        grammar = self.tables.grammar
        forests = self.tables.forest[kind][level - 1]
        weights = [forests[arity][length - 2] for arity in grammar.arities]
        left = rng.random() * sum(weights)
        chosen = None
        for arity, weight in zip(grammar.arities, weights, strict=True):
            if weight > 0.0:
                chosen = arity
                left -= weight
                if left < 0.0:
                    break
        tokens.append(grammar.operators[int(rng.random() * len(grammar.operators))])
        pending.append(END)
        pending.append((kind, level - 1, length - 2, chosen))

    def _split(self, kind: str, level: int, length: int, size: int, rng: Random) -> tuple[str, str, int]:
        """The kind and length of a forest's first subtree, and the kind of the forest that remains."""
        node, forest = self.tables.node, self.tables.forest
        left = rng.random() * forest[kind][level][size][length]
        chosen = None
        for first, rest in _SPLITS[kind]:
            firsts, rests = node[first][level], forest[rest][level][size - 1]
            # most subtrees are short, so walking up from the shortest beats a search over a whole table
            for taken in range(1, length - size + 2):
                weight = firsts[taken] * rests[length - taken]
                if weight > 0.0:
                    chosen = first, rest, taken
                    left -= weight
                    if left < 0.0:
                        return chosen
        # only rounding gets here: the last possible choice
        return chosen
