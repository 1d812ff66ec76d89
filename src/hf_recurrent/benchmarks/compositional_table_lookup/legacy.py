"""The integers of numpy's `RandomState`, one at a time.

The reference implementation draws its commands from `RandomState(0x12345678)`, whose streams numpy has frozen. Its
bounded integers are the lowest bits of the next 32-bit word, and another word where they are too large. Reading the
words in blocks is ten times as fast as calling `randint` for each integer.
"""

from collections.abc import Iterator

import numpy as np

BLOCK_WORDS = 1 << 14


class LegacyStream:
    """What `numpy.random.RandomState(seed)` gives to successive calls of `randint(count)` and `permutation(count)`."""

    def __init__(self, seed: int):
        self._next = _words(seed).__next__

    def below(self, count: int) -> int:
        """An integer from 0 to `count` - 1; a single choice costs no word."""
        if count == 1:
            return 0
        mask = (1 << (count - 1).bit_length()) - 1
        while (value := self._next() & mask) >= count:
            pass
        return value

    def several(self, count: int, size: int) -> list[int]:
        """`size` integers from 0 to `count` - 1: what as many calls of `below` give, in half the time."""
        draw, mask, found = self._next, (1 << (count - 1).bit_length()) - 1, []
        while len(found) < size:
            value = draw() & mask
            if value < count:
                found.append(value)
        return found

    def permutation(self, count: int) -> list[int]:
        items = list(range(count))
        for last in range(count - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
        return items


def _words(seed: int) -> Iterator[int]:
    source = np.random.RandomState(seed)
    while True:
        yield from source.randint(0, 1 << 32, size=BLOCK_WORDS, dtype=np.uint32).tolist()
