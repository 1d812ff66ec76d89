"""The random process of the reference implementation, and exact sampling from it with the depth given.

The process has three parameters: a maximum depth R, a minimum depth m, and a probability p.

    tree(k)     a digit, uniform, if k = 0 or with probability 1 - p; otherwise tree(k-1) op tree(k-1), op uniform
    expression  s = tree(R); while the depth of s is below m: s = tree(R-1) op s

Grown parts are always right operands: the reference implementation draws whether to swap the operands, and never
does. Expressions of more than `max_operators` operators are thrown away.

It fills bins, one for each depth: it draws until every bin has enough different expressions, and throws away those of
full bins. That costs nothing but time. The draws that fall into one bin are independent draws from the distribution of
the process *given that depth* (and given that the expression is short enough), independent of those in other bins. So a
bin holds the first n different ones of such draws, and these are drawn here, without those to be thrown away.

The distribution given depth d is sampled from the root down. `plain[k][d, n]` is the probability that tree(k) has depth
d and n operators. `reached[d, n]` is the probability that growing ever reaches an s of depth d with n operators: depth
rises at each turn, so that no s is there twice. The parts of s are then chosen with the probability that each pair has
among all that lead to (d, n).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np

from ..sampling import Choice
from .expressions import DIGITS, OPERATORS


class Process(NamedTuple):
    """Depths of `min_depth` to `max_depth` operations; `branch_probability` is p."""

    min_depth: int
    max_depth: int
    branch_probability: float
    max_operators: int


class Part(NamedTuple):
    """A part of known depth and number of operators; `levels` is k of tree(k), or None for one that may be grown."""

    levels: int | None
    depth: int
    operators: int


class ConditionalSampler:
    """Draws expressions of a process with a given depth."""

    def __init__(self, process: Process):
        self.process = process
        digit = np.zeros((process.max_depth + 1, process.max_operators + 1))
        digit[0, 0] = 1.0
        self.plain = [digit]
        for _ in range(process.max_depth):
            below, above = self.plain[-1], np.zeros_like(digit)
            above[0, 0] = 1.0 - process.branch_probability
            for depth in range(1, process.max_depth + 1):
                above[depth] = process.branch_probability * _joined(below, below, depth)
            self.plain.append(above)
        # from the minimum depth to the maximum
        self.reached = self.plain[-1].copy()
        for depth in range(1, process.max_depth + 1):
            self.reached[depth] += _joined(self.plain[-2], self.reached[: process.min_depth], depth)
        # numbers of operators, and pairs of operands, filled as they are needed
        self._sizes: dict[int, Choice] = {}
        self._pairs: dict[Part, Choice] = {}

    def draw(self, depth: int, rng: Random) -> str:
        """An expression without spaces, of a depth that has a probability."""
        if depth not in self._sizes:
            weights = self.reached[depth].tolist()
            self._sizes[depth] = Choice(range(len(weights)), weights)
        return self._write(Part(None, depth, self._sizes[depth].draw(rng.random())), rng)

    def _write(self, part: Part, rng: Random) -> str:
        if part.operators == 0:
            return DIGITS[int(rng.random() * len(DIGITS))]
        if part not in self._pairs:
            self._pairs[part] = Choice(*zip(*self._operands(part), strict=True))
        left, right = self._pairs[part].draw(rng.random())
        operator = OPERATORS[int(rng.random() * len(OPERATORS))]
        return f"({self._write(left, rng)}{operator}{self._write(right, rng)})"

    def _operands(self, part: Part) -> Iterator[tuple[tuple[Part, Part], float]]:
        """The pairs of operands that a part can have, and their weights."""
        process, levels = self.process, self.process.max_depth if part.levels is None else part.levels
        ways = [(process.branch_probability, self.plain[levels - 1], levels - 1, part.depth)]
        if part.levels is None:
            ways.append((1.0, self.reached, None, process.min_depth))
        left_weights = self.plain[levels - 1]
        for factor, right_weights, right_levels, end in ways:
            for left_depth in range(part.depth):
                # one of the two has the depth that the part needs
                right_depths = range(part.depth) if left_depth == part.depth - 1 else (part.depth - 1,)
                for right_depth in right_depths:
                    if right_depth >= end:
                        continue
                    for n in range(part.operators):
                        rest = part.operators - 1 - n
                        weight = factor * float(left_weights[left_depth, n] * right_weights[right_depth, rest])
                        yield (Part(levels - 1, left_depth, n), Part(right_levels, right_depth, rest)), weight


def _joined(left: np.ndarray, right: np.ndarray, depth: int) -> np.ndarray:
    """The weight of each number of operators of an operation of depth `depth`, whose operands have the weights
    `left[d, n]` and `right[d, n]`; depths that `right` lacks have none."""
    last = depth - 1
    total = np.convolve(left[last], right[:depth].sum(axis=0))
    if last < len(right):
        total += np.convolve(left[:last].sum(axis=0), right[last])
    # the operation is an operator too
    return np.concatenate(([0.0], total))[: left.shape[1]]


# of all expressions of a depth, a bin takes no more than this part: the last ones would be waited for too long
MAX_SHARE = 0.75
# the random process never makes expressions of one operation; all of them are listed instead
LISTED_DEPTH = 1


def listed() -> list[str]:
    """All 200 expressions of one operation, without spaces."""
    return [f"({left}{operator}{right})" for left, operator, right in product(DIGITS, OPERATORS, DIGITS)]


@lru_cache(maxsize=256)
def count_expressions(depth: int, max_operators: int) -> int:
    """How many different expressions of exactly this depth there are."""
    shapes = _count_shapes(depth, max_operators)[depth]
    return sum(count * len(DIGITS) ** (n + 1) * len(OPERATORS) ** n for n, count in enumerate(shapes))


@lru_cache(maxsize=8)
def _count_shapes(max_depth: int, max_operators: int) -> list[list[int]]:
    """The number of binary trees by depth and number of operators."""
    shapes = [[1] + [0] * max_operators]
    shallower = [0] * (max_operators + 1)
    for _ in range(max_depth):
        deepest, grown = shapes[-1], [0] * (max_operators + 1)
        for n in range(1, max_operators + 1):
            # one of the operands is a deepest one, or both are
            grown[n] = sum(deepest[i] * (deepest[n - 1 - i] + 2 * shallower[n - 1 - i]) for i in range(n))
        shallower = [a + b for a, b in zip(shallower, deepest, strict=True)]
        shapes.append(grown)
    return shapes


def capacity(depth: int, max_operators: int) -> int:
    """The most expressions of a depth that all bins together may take."""
    count = count_expressions(depth, max_operators)
    return count if depth == LISTED_DEPTH else int(MAX_SHARE * count)


def bin_sizes(size: int, capacities: Mapping[int, int]) -> dict[int, int] | None:
    """How many of the examples have each depth: equal parts, and the remainder of full shallow bins goes
    to the deeper ones.

    None where `size` is more than all bins take. What does not divide evenly goes to the shallowest.
    """
    sizes, left = {}, size
    for done, (depth, most) in enumerate(sorted(capacities.items())):
        sizes[depth] = min(-(-left // (len(capacities) - done)), most)
        left -= sizes[depth]
    return None if left else sizes


def first_different(sampler: ConditionalSampler, depth: int, rng: Random, taken: frozenset[str]) -> Iterator[str]:
    """Draws of a depth, those left out that are in `taken` or have been there before. It never ends by itself."""
    seen = set(taken)
    while True:
        expression = sampler.draw(depth, rng)
        if expression not in seen:
            seen.add(expression)
            yield expression
