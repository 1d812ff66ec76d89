"""What the arguments of a list must be like for an operation to depend on given ones.

The event "the list has value v and depth d" is cut into disjoint parts, its *arrangements*. Each names the argument
that is selected (for the median of an even number, the lower and the upper of the two), and says of every other
argument how its value compares with theirs, so that equal values are ordered as a stable sort orders them. Given
its arrangement and the selected values, the arguments of a list are independent, which is what makes exact sampling
easy. [SM needs no arrangement: it depends on all.
"""

from functools import lru_cache
from itertools import combinations, permutations
from typing import NamedTuple

from .expressions import MAXIMUM, MEDIAN, MINIMUM

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
    if operator != MEDIAN:
        raise ValueError(f"operator is {operator!r}: expected one that selects arguments")
    middles = [(i, i) for i in places] if size % 2 else list(permutations(places, 2))
    found = []
    for low, high in middles:
        others = [j for j in places if j not in (low, high)]
        for below in combinations(others, len(others) // 2):
            found.append(Arrangement(low, high, tuple((j, _relation(j, j in below, low, high)) for j in others)))
    return tuple(found)


def _relation(place: int, below: bool, low: int, high: int) -> str:
    if below:
        return "le" if place < low else "lt"
    return "ge" if place > high else "gt"
