"""The sets of commands of the Neural Data Router paper, as its reference implementation draws them.

One stream of random integers gives, in this order: the tables, the compositions that are reserved for a test, the pool
of the training distribution, two tests with a function that training shows only alone (`j`, `k`), and the deeper
commands of `validation_ood` and `test_ood`. So all sets but two are published facts. The reference implementation
leaves to an unseeded generator which 8,000 commands of the pool are held out, and which 1,000 of the 3,000 with `k` are
the test; `benchmark.py` chooses those.

With other depths than the paper's, the same process runs with other limits, and takes no more than half of the commands
that exist: the last ones would be waited for too long.

The stream is `RandomState(0x12345678)`, whose integers numpy has frozen. Its bounded integers are the lowest bits of
the next 32-bit word, and another word where they are too large. Reading the words in blocks is ten times as fast as
calling `randint` for each integer.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from .expressions import ARGUMENTS, FUNCTIONS

BLOCK_WORDS = 1 << 14


class LegacyStream:
    """The integers of successive calls of `randint(count)` and `permutation(count)` of numpy's `RandomState(seed)`."""

    def __init__(self, seed: int):
        source = np.random.RandomState(seed)
        blocks = iter(lambda: source.randint(0, 1 << 32, size=BLOCK_WORDS, dtype=np.uint32).tolist(), None)
        self._next = chain.from_iterable(blocks).__next__

    def below(self, count: int) -> int:
        """An integer from 0 to `count` - 1; a single choice costs no word."""
        if count == 1:
            return 0
        mask = (1 << (count - 1).bit_length()) - 1
        while (value := self._next() & mask) >= count:
            pass
        return value

    def several(self, count: int, size: int) -> tuple[int, ...]:
        """`size` integers from 0 to `count` - 1: those of as many calls of `below`, in half the time."""
        draw, mask, found = self._next, (1 << (count - 1).bit_length()) - 1, []
        while len(found) < size:
            value = draw() & mask
            if value < count:
                found.append(value)
        return tuple(found)

    def permutation(self, count: int) -> list[int]:
        items = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items


SEED = 0x12345678
PAPER_MAX_TRAIN_DEPTH = 5
# functions that are composed in training; the two after them are not
COMPOSED = 9
J, K = FUNCTIONS.index("j"), FUNCTIONS.index("k")

MAX_RESERVED, RESERVED_FRACTION = 200, 0.25
POOL = 61_136
NEW_PRIMITIVE_1, NEW_PRIMITIVE_2 = 1000, 3000
DEEPER = 1000

# The reference implementation draws the arguments of the reserved compositions after all other sets, in the order of a
# Python set of tuples, which is an accident of CPython. These are the arguments that come after its default sets
# (6 to 8 and 9 to 10 functions), in the order in which the compositions are drawn.
PAPER_RESERVED_ARGUMENTS = (
    "0623606506675531025247403515763212071112646314501572475232322366054523752343"
    "5153054055304503170357154416421464505261720603525676114577425310364753377617"
    "1445173601173015474755125034663472730537060251244106200503510721106257455436"
    "4514301352072043232723446426054321334556011326157274322624602456376531535141"
    "4043655152301254676567666202667357063272771520070312434626147011737237141520"
    "1675224523474533063251344012351066771342521722346764312031465245130652421540"
    "4450061425004233446735754040410021472456330704335263651012473665025741453234"
    "7202657766700714667115235165055412672314426002067741623646755450654362221041"
)


class Drawn(NamedTuple):
    """A command: its functions by number, the one that is applied last first, and its argument."""

    functions: tuple[int, ...]
    argument: int

    def text(self, config_name: str) -> str:
        names, argument = [FUNCTIONS[i] for i in self.functions], ARGUMENTS[self.argument]
        return " ".join([argument, *reversed(names)] if config_name == "forward" else [*names, argument])


class Sets(NamedTuple):
    """All commands but those of a single function, each set in the order in which it is drawn."""

    pool: list[Drawn]
    new_primitive_1: list[Drawn]
    new_primitive_2: list[Drawn]
    validation_ood: list[Drawn]
    test_ood: list[Drawn]
    new_composition: list[Drawn]


def reserved_sizes(max_depth: int) -> list[int]:
    """How many compositions of 0, 1, ..., `max_depth` functions are reserved."""
    return [math.ceil(min(MAX_RESERVED, RESERVED_FRACTION * COMPOSED**depth)) for depth in range(max_depth + 1)]


def pool_size(max_depth: int) -> int:
    free = sum(COMPOSED**depth - size for depth, size in enumerate(reserved_sizes(max_depth)) if depth >= 2)
    return min(POOL, len(ARGUMENTS) * free // 2)


def new_primitive_sizes(max_depth: int) -> tuple[int, int]:
    """How many commands with `j`, and how many with `k`, are drawn."""
    count = len(ARGUMENTS) * sum((COMPOSED + 1) ** depth - COMPOSED**depth for depth in range(2, max_depth + 1))
    return min(NEW_PRIMITIVE_1, count // 2), min(NEW_PRIMITIVE_2, count // 2)


@lru_cache(maxsize=4)
def draw_sets(max_train_depth: int, max_validation_depth: int, max_test_depth: int) -> Sets:
    """The sets for 2 to `max_train_depth` functions in the pool, up to `max_validation_depth` in `validation_ood`, and
    more, up to `max_test_depth`, in `test_ood`."""
    stream = LegacyStream(SEED)
    for _ in FUNCTIONS:
        stream.permutation(len(ARGUMENTS))
    reserved = [
        functions
        for depth, size in enumerate(reserved_sizes(max_train_depth))
        for functions in _distinct(lambda depth=depth: stream.several(COMPOSED, depth), size)
    ]
    taken = set(reserved)
    with_j, with_k = new_primitive_sizes(max_train_depth)
    drawn = {
        "pool": _distinct(lambda: _pool_command(stream, max_train_depth, taken), pool_size(max_train_depth)),
        "new_primitive_1": _distinct(lambda: _new_primitive(stream, max_train_depth, J), with_j),
        "new_primitive_2": _distinct(lambda: _new_primitive(stream, max_train_depth, K), with_k),
        "validation_ood": _distinct(lambda: _deeper(stream, max_train_depth + 1, max_validation_depth), DEEPER),
        "test_ood": _distinct(lambda: _deeper(stream, max_validation_depth + 1, max_test_depth), DEEPER),
    }
    arguments = (
        map(int, PAPER_RESERVED_ARGUMENTS)
        if max_train_depth == PAPER_MAX_TRAIN_DEPTH
        else [stream.below(len(ARGUMENTS)) for _ in reserved]
    )
    return Sets(**drawn, new_composition=[Drawn(*pair) for pair in zip(reserved, arguments, strict=True)])


def _distinct(draw: Callable, size: int) -> list:
    found = {}
    while len(found) < size:
        found[draw()] = None
    return list(found)


def _shortened(stream: LegacyStream, functions: tuple[int, ...], low: int) -> tuple[int, ...]:
    """The first of them, `low` to all with equal probability."""
    return functions[: low + stream.below(len(functions) - low + 1)]


def _pool_command(stream: LegacyStream, max_depth: int, reserved: set[tuple[int, ...]]) -> Drawn:
    while True:
        functions = _shortened(stream, stream.several(COMPOSED, max_depth), 2)
        if functions not in reserved:
            return Drawn(functions, stream.below(len(ARGUMENTS)))


def _new_primitive(stream: LegacyStream, max_depth: int, new: int) -> Drawn:
    """A command of `a` to `i` and the function `new`, which is in it at least once."""
    argument = stream.below(len(ARGUMENTS))
    functions = _shortened(stream, stream.several(COMPOSED + 1, max_depth), 2)
    functions = [new if i == COMPOSED else i for i in functions]
    functions[stream.below(len(functions))] = new
    return Drawn(tuple(functions), argument)


def _deeper(stream: LegacyStream, low: int, high: int) -> Drawn:
    argument = stream.below(len(ARGUMENTS))
    return Drawn(_shortened(stream, stream.several(COMPOSED, high), low), argument)
