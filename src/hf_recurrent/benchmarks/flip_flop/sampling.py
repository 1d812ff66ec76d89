"""Random flip-flop strings, many at once.

Every string has its own place in a stream of random words: string i of a stream is always the same, however many
are drawn, and in whatever pieces. Only the raw words of Philox are used: numpy keeps these stable across versions.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..sampling import digest
from .strings import IGNORE, READ, VOCABULARY, WRITE

# random words drawn at a time: 8 MiB of them
BLOCK_WORDS = 1 << 20
# Philox makes four words at each step of its counter
_WORDS_PER_STEP = 4
_W, _I, _R = (VOCABULARY.index(word) for word in (WRITE, IGNORE, READ))
_ZERO = VOCABULARY.index("0")


class Source(NamedTuple):
    """A distribution of strings: their `length` in words, and 100 p_i."""

    length: int
    ignore_percent: int

    def count(self) -> int:
        """How many different strings there are: 2 bits to write first, then `w 0`, `w 1`, `i 0`, `i 1` or a read."""
        return 2 * 5 ** (self.length // 2 - 2)

    def describe(self) -> str:
        return f"{self.length} words and p_ignore={self.ignore_percent / 100}"


def draw(source: Source, key: tuple, start: int, stop: int) -> Iterator[np.ndarray]:
    """Strings `start` to `stop` of the stream `key`, in blocks `(B, length)` of indices into VOCABULARY (uint8)."""
    pairs = source.length // 2
    steps = -(-pairs // _WORDS_PER_STEP)
    stream = np.random.Philox(key=int(digest("flip_flop", *source, *key)[:32], 16))
    stream.advance(start * steps)
    size = max(1, BLOCK_WORDS // (steps * _WORDS_PER_STEP))
    for first in range(start, stop, size):
        rows = min(size, stop - first)
        words = stream.random_raw(rows * steps * _WORDS_PER_STEP).reshape(rows, -1)[:, :pairs]
        yield _strings(words, source.ignore_percent)


def _strings(words: np.ndarray, ignore_percent: int) -> np.ndarray:
    """One random word `(B, pairs)` for each instruction (its upper 63 bits) with its bit (the lowest)."""
    ignore = (1 << 63) * ignore_percent // 100
    write = ignore + ((1 << 63) - ignore) // 2
    uniform = words >> np.uint64(1)
    instructions = np.full(words.shape, _R, dtype=np.uint8)
    instructions[uniform < np.uint64(write)] = _W
    instructions[uniform < np.uint64(ignore)] = _I
    instructions[:, 0] = _W
    instructions[:, -1] = _R
    bits = (words & np.uint64(1)).astype(np.uint8)
    written = np.take_along_axis(bits, last_write(instructions), axis=1)
    bits = np.where(instructions == _R, written, bits)
    return np.stack((instructions, bits + np.uint8(_ZERO)), axis=2).reshape(len(words), -1)


def last_write(instructions: np.ndarray) -> np.ndarray:
    """For each instruction `(B, pairs)`, the index of the last `w` up to it."""
    places = np.arange(instructions.shape[1])
    return np.maximum.accumulate(np.where(instructions == _W, places, 0), axis=1)
