"""Exact sampling of expressions whose dependency depth is given.

Plain rejection draws about 13,000 samples for one with 8 operations. Here expressions are drawn from the root down,
each choice with its weight given all that is decided already: value, depth, which arguments the operation selects.

The limit of the length is met by tilting. An expression T is drawn with probability proportional to w(T) z^length(T),
w(T) being its probability in the authors' process and z <= 1, and is accepted if it is short enough, with probability
z^(limit - length). An accepted expression has the weight

    w(T) z^length z^(limit - length) = w(T) z^limit,  that is, exactly the authors' distribution given depth and
    limit.

With z chosen for the depth, a quarter or more of the draws are accepted at the authors' sizes (the chance with z = 1
is one in two hundred for 8 operations).
"""

from functools import lru_cache
from math import log
from random import Random

import numpy as np

from ..listops.expressions import END
from ..sampling import Choice
from .expressions import DIGITS, OPERATORS, SUM
from .rules import MIDDLES, OPERATOR_LENGTH, ROOT, Form, Name, Source, arrangements, sampling_rules
from .weights import Weights, tilts

# candidates for z
TILTS = (1.0, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.88, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.03)

# a subtree still to be drawn, whose depth and value are known
Node = tuple[Name, int, int]
# arguments whose depth is at most `depth` and whose value is `first` to `last`: (rule, depth, first, last)
Range = tuple[Name, int, int, int]


@lru_cache(maxsize=8)
def tilted_weights(source: Source) -> Weights:
    return Weights(sampling_rules(source), source.high, tilts(TILTS))


def best_tilt(source: Source, depth: int) -> int:
    """The place in TILTS of the z with which most draws of this depth are accepted."""
    totals = tilted_weights(source).distributions[ROOT].exact[depth].sum(axis=0)
    # accepted are P(depth, length <= limit) z^limit / total(z)
    return max(range(len(TILTS)), key=lambda i: source.length_limit * log(TILTS[i]) - log(totals[i]))


class DepthSampler:
    """Draws expressions of a source that have `depth` dependent operations, as the authors' process would."""

    def __init__(self, source: Source, depth: int):
        self.limit, self.depth = source.length_limit, depth
        self.z = best_tilt(source, depth)
        self.rules, self.weights = sampling_rules(source), tilted_weights(source)
        self.root = Choice(list(range(10)), self.weights.distributions[ROOT].exact[depth, :, self.z].tolist())
        # filled as they are needed
        self._lists: dict[Node, Choice] = {}
        self._nodes: dict[Range, Choice] = {}
        self._selections: dict[tuple, Choice] = {}
        self._sums: dict[tuple, Choice] = {}

    def draw(self, rng: Random) -> list[str]:
        """One expression as tokens."""
        while (tokens := self._attempt(rng)) is None:
            pass
        return tokens

    def _attempt(self, rng: Random) -> list[str] | None:
        random, limit = rng.random, self.limit
        tokens: list[str] = []
        length = 1
        # None closes a list
        pending: list[Node | None] = [(ROOT, self.depth, self.root.draw(random()))]
        while pending:
            node = pending.pop()
            if node is None:
                tokens.append(END)
                continue
            if node[1] == 0:
                tokens.append(DIGITS[node[2]])
                continue
            if node not in self._lists:
                name, depth, value = node
                outcomes = [(form, operator) for form in self.rules[name].forms for operator in OPERATORS]
                weights = [self._at(self.weights.lists[form][operator], depth, value) for form, operator in outcomes]
                self._lists[node] = Choice(outcomes, weights)
            form, operator = self._lists[node].draw(random())
            # a list takes the place of one digit, and its arguments have one digit each at least
            length += OPERATOR_LENGTH - 1 + len(form.arguments)
            if length > limit:
                return None
            tokens.append(operator)
            pending.append(None)
            arguments = self._sum if operator == SUM else self._selection
            pending += reversed(arguments(form, operator, node[1] - 1, node[2], random))
        return tokens if random() < TILTS[self.z] ** (limit - length) else None

    def _at(self, weights: np.ndarray, *place: int) -> float:
        return float(weights[place][self.z])

    def _node(self, where: Range, place: float) -> Node:
        """An argument that is known to be in a range."""
        if where not in self._nodes:
            name, depth, first, last = where
            outcomes = [(name, d, v) for d in range(depth + 1) for v in range(first, last + 1)]
            exact = self.weights.distributions[name].exact
            weights = exact[: depth + 1, first : last + 1, self.z].ravel().tolist()
            self._nodes[where] = Choice(outcomes, weights)
        return self._nodes[where].draw(place)

    def _selection(self, form: Form, operator: str, depth: int, value: int, random) -> list[Node]:
        """The arguments of a list that selects some of them, the deepest of which has `depth`."""
        key = form.arguments, operator, depth, value
        if key not in self._selections:
            self._selections[key] = self._selection_choice(*key)
        arrangement, low, high = self._selections[key].draw(random())
        arguments: list = [None] * len(form.arguments)
        arguments[arrangement.low], arguments[arrangement.high] = low, high
        for place, relation in arrangement.others:
            # an argument that is not selected may have any depth
            name = form.arguments[place]
            least, most = low[2], high[2]
            values = {"lt": (0, least - 1), "le": (0, least), "gt": (most + 1, 9), "ge": (most, 9)}[relation]
            arguments[place] = name, len(self.weights.distributions[name].exact) - 1, *values
        # a range is a node whose depth and value are still open
        return [self._node(known, random()) if len(known) == 4 else known for known in arguments]

    def _selection_choice(self, names: tuple[Name, ...], operator: str, depth: int, value: int) -> Choice:
        """Arrangements with the selected arguments: a node each, or a range where only its value is known."""
        outcomes, weights = [], []
        for arrangement in arrangements(operator, len(names)):
            low, high = names[arrangement.low], names[arrangement.high]
            low_weights, high_weights = self.weights.distributions[low], self.weights.distributions[high]
            rest = self.weights.factor(names, arrangement)
            if arrangement.low == arrangement.high:
                node = low, depth, value
                outcomes.append((arrangement, node, node))
                weights.append(self._at(low_weights.exact, depth, value) * self._at(rest, value))
                continue
            for x, y in MIDDLES[value]:
                others = self._at(rest, x, y) if len(names) > 2 else float(rest[x, y, 0])
                outcomes.append((arrangement, (low, depth, x), (high, depth, y, y)))
                weights.append(self._at(low_weights.exact, depth, x) * self._at(high_weights.upto, depth, y) * others)
                if depth:
                    outcomes.append((arrangement, (low, depth - 1, x, x), (high, depth, y)))
                    weights.append(
                        self._at(low_weights.upto, depth - 1, x) * self._at(high_weights.exact, depth, y) * others
                    )
        return Choice(outcomes, weights)

    def _sum(self, form: Form, operator: str, depth: int, value: int, random) -> list[Node]:
        """The arguments of a list that depends on all of them, the deepest of which has `depth`."""
        names = form.arguments
        exact, arguments = True, []
        for place in range(len(names) - 1):
            key = names, place, depth, value, exact
            if key not in self._sums:
                self._sums[key] = self._sum_choice(*key)
            where, exact = self._sums[key].draw(random())
            node = where if len(where) == 3 else self._node(where, random())
            arguments.append(node)
            value = (value - node[2]) % 10
        last = (names[-1], depth, value)
        arguments.append(last if exact else self._node((*last, value), random()))
        return arguments

    def _sum_choice(self, names: tuple[Name, ...], place: int, depth: int, value: int, exact: bool) -> Choice:
        """An argument of a list whose arguments from there on sum up to `value` (mod 10) at most `depth` deep, with
        whether those after it must reach `depth`, as all together must if `exact`."""
        name, weights_of = names[place], self.weights.distributions[names[place]]
        exact_left, upto_left = self.weights.suffix(names[place + 1 :])
        outcomes, weights = [], []
        for v in range(10):
            left = (value - v) % 10
            if not exact:
                outcomes.append(((name, depth, v, v), False))
                weights.append(self._at(weights_of.upto, depth, v) * self._at(upto_left, depth, left))
                continue
            outcomes.append(((name, depth, v), False))
            weights.append(self._at(weights_of.exact, depth, v) * self._at(upto_left, depth, left))
            if depth:
                outcomes.append(((name, depth - 1, v, v), True))
                weights.append(self._at(weights_of.upto, depth - 1, v) * self._at(exact_left, depth, left))
        return Choice(outcomes, weights)


@lru_cache(maxsize=32)
def depth_sampler(source: Source, depth: int) -> DepthSampler:
    return DepthSampler(source, depth)
