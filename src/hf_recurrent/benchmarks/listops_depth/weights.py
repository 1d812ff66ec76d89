"""The total weight of all expressions of a rule that have a given value and dependency depth.

Dynamic programming, from the rules for few levels up. Weights are numbers of a *ring*, on the last axis of every array:

- `tilts`: for each z, the sum of weight times z ** length. With z = 1 these are probabilities.
- `polynomials`: the weights for each length up to a limit, one by one; a product is a convolution. Their weights are
  also the numbers of different expressions, by which requests for too many are refused at once.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np

from .expressions import OPERATORS, SUM
from .rules import (
    MAX_ARGUMENTS,
    MIDDLES,
    OPERATOR_LENGTH,
    Arrangement,
    Form,
    Name,
    Rules,
    Source,
    arrangements,
    counting_rules,
)

# float64 counts are exact up to here, and cut off
COUNT_CEILING = float(2**53)
# _LEFT[value, total] is the sum of the others, modulo 10
_LEFT = (np.arange(10) - np.arange(10)[:, None]) % 10

Names = tuple[Name, ...]


class Ring(NamedTuple):
    """The weight of a digit `(R,)`, of an operator `(R,)`, and the product of broadcast arrays `(..., R)`."""

    digit: np.ndarray
    operator: np.ndarray
    times: Callable[[np.ndarray, np.ndarray], np.ndarray]


def tilts(values: Sequence[float]) -> Ring:
    digit = np.asarray(values, dtype=np.float64)
    return Ring(digit, digit**OPERATOR_LENGTH, np.multiply)


def polynomials(length_limit: int) -> Ring:
    one = np.eye(max(length_limit, OPERATOR_LENGTH) + 1)[:, : length_limit + 1]

    def times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = np.zeros(np.broadcast_shapes(a.shape, b.shape))
        for length in range(length_limit + 1):
            factor = a[..., length : length + 1]
            if factor.any():
                product[..., length:] += factor * b[..., : length_limit + 1 - length]
        return np.minimum(product, COUNT_CEILING)

    return Ring(one[1], one[OPERATOR_LENGTH], times)


class Distribution:
    """Weights of a non-terminal by depth d and value v.

    `exact[d, v]` for depth d, `upto[d, v]` for at most d, both `(depths + 1, 10, R)`; `relation[name][v]` `(10, R)`
    for all that have a value `lt` (less than), `le`, `gt` or `ge` v, at any depth.
    """

    def __init__(self, exact: np.ndarray):
        self.exact = exact
        self.upto = np.cumsum(exact, axis=0)
        none = np.zeros_like(exact[0, :1])
        le = np.concatenate((none, np.cumsum(self.upto[-1], axis=0)))
        ge = np.concatenate((none, np.cumsum(self.upto[-1, ::-1], axis=0)))[::-1]
        self.relation = {"lt": le[:-1], "le": le[1:], "gt": ge[1:], "ge": ge[:-1]}

    def below(self) -> np.ndarray:
        """Weights for less than each depth."""
        return np.concatenate((np.zeros_like(self.upto[:1]), self.upto[:-1]))


class Weights:
    """The distributions of all rules, for depths up to `depths`, and the weights of their parts."""

    def __init__(self, rules: Rules, depths: int, ring: Ring):
        self.ring = ring
        self.distributions: dict[Name, Distribution] = {}
        # for each form and operator the weights of its lists, (depths + 1, 10, R)
        self.lists: dict[Form, dict[str, np.ndarray]] = {}
        self._suffixes: dict[Names, tuple[np.ndarray, np.ndarray]] = {}
        self._factors: dict[tuple[Names, Arrangement], np.ndarray] = {}
        for name, rule in rules.items():
            exact = np.zeros((depths + 1, 10, len(ring.digit)))
            exact[0] = rule.digit * ring.digit
            for form in rule.forms:
                if form not in self.lists:
                    self.lists[form] = self._lists(form)
                for weights in self.lists[form].values():
                    exact += weights
            # the ceiling of counts holds for sums too
            self.distributions[name] = Distribution(np.minimum(exact, COUNT_CEILING))

    def _lists(self, form: Form) -> dict[str, np.ndarray]:
        found = {}
        for operator in OPERATORS:
            inside = self.suffix(form.arguments)[0] if operator == SUM else self._selecting(operator, form.arguments)
            weights = found[operator] = np.zeros_like(inside)
            weights[1:] = form.weight * self.ring.times(self.ring.operator, inside[:-1])
        return found

    def suffix(self, names: Names) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the (last) arguments of a `[SM`, by their deepest depth (exact, at most) and by their sum."""
        if names not in self._suffixes:
            distribution = self.distributions[names[0]]
            if len(names) == 1:
                self._suffixes[names] = distribution.exact, distribution.upto
            else:
                # for each value of the first, the sum of the others
                exact, upto = (weights[:, _LEFT] for weights in self.suffix(names[1:]))
                times = self.ring.times
                first = times(distribution.exact[:, :, None], upto) + times(distribution.below()[:, :, None], exact)
                self._suffixes[names] = first.sum(axis=1), times(distribution.upto[:, :, None], upto).sum(axis=1)
        return self._suffixes[names]

    def factor(self, names: Names, arrangement: Arrangement) -> np.ndarray:
        """The weight of the arguments that are not selected, by the selected values: `(10, R)`, or for two of them
        `(10, 10, R)`, 0 where the arrangement does not allow them; `(10, 10, 1)`, numbers, if all are selected."""
        key = names, arrangement
        if key not in self._factors:
            self._factors[key] = self._factor(*key)
        return self._factors[key]

    def _factor(self, names: Names, arrangement: Arrangement) -> np.ndarray:
        low, high = (
            [
                self.distributions[names[place]].relation[relation]
                for place, relation in arrangement.others
                if relation in relations
            ]
            for relations in (("lt", "le"), ("gt", "ge"))
        )
        if arrangement.low == arrangement.high:
            return reduce(self.ring.times, low + high)
        allowed = np.triu(np.ones((10, 10)), k=0 if arrangement.ties else 1)[..., None]
        if not low:
            return allowed
        below, above = (reduce(self.ring.times, side) for side in (low, high))
        return self.ring.times(below[:, None], above[None]) * allowed

    def _selecting(self, operator: str, names: Names) -> np.ndarray:
        """Weights by depth and value of the arguments under `[MIN`, `[MAX` or `[MED`."""
        # arrangements whose selected arguments have the same distributions have their factors added first
        factors: dict[tuple[bool, Name, Name], np.ndarray] = {}
        for arrangement in arrangements(operator, len(names)):
            key = arrangement.low == arrangement.high, names[arrangement.low], names[arrangement.high]
            factors[key] = factors.get(key, 0.0) + self.factor(names, arrangement)
        total = np.zeros_like(self.distributions[names[0]].exact)
        times = self.ring.times
        for (single, *selected), weights in factors.items():
            low, high = (self.distributions[name] for name in selected)
            if single:
                total += times(low.exact, weights[None])
                continue
            both = times(low.exact[:, :, None], high.upto[:, None])
            both += times(low.below()[:, :, None], high.exact[:, None])
            # without other arguments the factor is a number
            both = both * weights[None] if len(names) == 2 else times(both, weights[None])
            for value, middles in enumerate(MIDDLES):
                for x, y in middles:
                    total[:, value] += both[:, x, y]
        return total


def fewest(source: Source, depth: int) -> int:
    """A number of expressions that certainly exist, where any fit: chains of `[SM`, with as many digits as fit."""
    digits = min(source.length_limit - OPERATOR_LENGTH * depth, (MAX_ARGUMENTS - 1) * depth + 1)
    return 10**digits


def count(source: Source, depth: int) -> int:
    """The number of different expressions of this dependency depth (a huge number stands for any huge number)."""
    # deeper ones than fit need not be counted
    high = min(source.high, (source.length_limit - 1) // (OPERATOR_LENGTH + 1))
    return _counts(high, source.length_limit)[depth] if depth <= high else 0


@lru_cache(maxsize=16)
def _counts(high: int, length_limit: int) -> list[int]:
    distribution = Weights(counting_rules(high), high, polynomials(length_limit)).distributions["subtree", high]
    return [int(min(COUNT_CEILING, weights.sum())) for weights in distribution.exact]
