"""The random process of the reference implementation, and exact sampling from it with the depth given.

The process has three parameters: a most depth R, a least depth m, and a probability p.

    tree(k)     a digit, uniform, if k = 0 or with probability 1 - p; otherwise tree(k-1) op tree(k-1), op uniform
    expression  s = tree(R); while the depth of s is below m: s = tree(R-1) op s

Grown parts are always right operands: the reference implementation draws whether to swap the operands, and never
does. Expressions of more than `max_operators` operators are thrown away.

It fills bins, one for each depth: it draws until every bin has enough different expressions, and throws away those of
full bins. That costs nothing but time. The draws that fall into one bin are independent draws from the law of the
process *given that depth* (and given that the expression is short enough), independent of those in other bins. So a
bin holds the first n different ones of such draws, which is what is drawn here, without those to be thrown away.

The law given depth d is sampled from the root down. `plain[k][d, n]` is the probability that tree(k) has depth d and n
operators. `reached[d, n]` is the probability that growing ever reaches an s of depth d with n operators: depth rises at
each turn, so that no s is there twice. What s is made of is then chosen with the probability that each pair of parts
has among all that lead to (d, n).
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import NamedTuple, TypeVar

import numpy as np

from .expressions import DIGITS, OPERATORS

T = TypeVar("T")


class Law(NamedTuple):
    """The process with depths of `min_depth` to `max_depth` operations; `branch_probability` is p."""

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
    """Draws expressions of a law with a given depth."""

    def __init__(self, law: Law):
        self.law = law
        self.plain = _plain(law)
        self.reached = _reached(law, self.plain)
        # cumulative weights and what they are of, for each depth and for each part
        self._sizes: dict[int, tuple[list[float], list[int]]] = {}
        self._pairs: dict[Part, tuple[list[float], list[tuple[Part, Part]]]] = {}

    def probability(self, depth: int) -> float:
        """The probability that the process ends with this depth and few enough operators."""
        return float(self.reached[depth].sum()) if self.law.min_depth <= depth <= self.law.max_depth else 0.0

    def draw(self, depth: int, rng: Random) -> str:
        """An expression without spaces, of a depth that has a probability."""
        if depth not in self._sizes:
            self._sizes[depth] = _cumulative((float(weight), n) for n, weight in enumerate(self.reached[depth]))
        return self._write(Part(None, depth, _choose(self._sizes[depth], rng)), rng)

    def _write(self, part: Part, rng: Random) -> str:
        if part.operators == 0:
            return DIGITS[int(rng.random() * len(DIGITS))]
        if part not in self._pairs:
            self._pairs[part] = _cumulative(self._operands(part))
        left, right = _choose(self._pairs[part], rng)
        operator = OPERATORS[int(rng.random() * len(OPERATORS))]
        return f"({self._write(left, rng)}{operator}{self._write(right, rng)})"

    def _operands(self, part: Part) -> Iterator[tuple[float, tuple[Part, Part]]]:
        """The pairs of operands that a part can have, and their weights."""
        law, levels = self.law, self.law.max_depth if part.levels is None else part.levels
        ways = [(law.branch_probability, self.plain[levels - 1], levels - 1, part.depth)]
        if part.levels is None:
            ways.append((1.0, self.reached, None, law.min_depth))
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
                        yield weight, (Part(levels - 1, left_depth, n), Part(right_levels, right_depth, rest))


def _choose(cumulative: tuple[list[float], list[T]], rng: Random) -> T:
    weights, items = cumulative
    return items[bisect(weights, rng.random() * weights[-1], 0, len(weights) - 1)]


def _cumulative(weighted: Iterable[tuple[float, T]]) -> tuple[list[float], list[T]]:
    possible = [(weight, item) for weight, item in weighted if weight > 0.0]
    return list(accumulate(weight for weight, _ in possible)), [item for _, item in possible]


def _plain(law: Law) -> list[np.ndarray]:
    """`plain[k][d, n]` for k from 0 to `max_depth`."""
    digit = np.zeros((law.max_depth + 1, law.max_operators + 1))
    digit[0, 0] = 1.0
    plain = [digit]
    for _ in range(law.max_depth):
        below, above = plain[-1], np.zeros_like(digit)
        above[0, 0] = 1.0 - law.branch_probability
        for depth in range(1, law.max_depth + 1):
            above[depth] = law.branch_probability * _joined(below, below, depth)
        plain.append(above)
    return plain


def _reached(law: Law, plain: Sequence[np.ndarray]) -> np.ndarray:
    """`reached[d, n]`, from the least depth to the most."""
    reached = plain[-1].copy()
    for depth in range(1, law.max_depth + 1):
        reached[depth] += _joined(plain[-2], reached[: law.min_depth], depth)
    return reached


def _joined(left: np.ndarray, right: np.ndarray, depth: int) -> np.ndarray:
    """The weight of each number of operators of an operation of depth `depth`, whose operands have the weights
    `left[d, n]` and `right[d, n]`; depths that `right` lacks have none."""
    last = depth - 1
    total = np.convolve(left[last], right[:depth].sum(axis=0))
    if last < len(right):
        total += np.convolve(left[:last].sum(axis=0), right[last])
    # the operation is an operator too
    return np.concatenate(([0.0], total))[: left.shape[1]]
