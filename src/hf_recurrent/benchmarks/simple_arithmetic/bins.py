"""As many expressions of every depth, as far as there are so many."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from random import Random

from .expressions import DIGITS, OPERATORS
from .law import ConditionalSampler

# of all expressions of a depth, a bin takes no more than this part: the last ones would be waited for too long
MOST_OF_ALL = 0.75
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
    return count if depth == LISTED_DEPTH else int(MOST_OF_ALL * count)


def bin_sizes(rows: int, capacities: Mapping[int, int]) -> dict[int, int] | None:
    """How many of the rows have each depth: equal parts, and what a shallow bin cannot take goes to the deeper ones.

    None where `rows` are more than all bins take. What does not divide evenly goes to the shallowest.
    """
    sizes, left = {}, rows
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
