"""Pictures of pixels in letters: two rows of pixels to a line.

A pixel is drawn where it is brighter than the mean. A picture that is too tall is shrunk: a square of pixels becomes
its brightest one, so that thin lines stay.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .pixels import unspell

# neither pixel of two, one above the other; the upper; the lower; both
_BLOCKS = np.array([" ", "▀", "▄", "█"])


def tree(texts: Mapping[str, str], max_lines: int) -> str:
    """The picture of a row in at most `max_lines` lines."""
    (text,) = texts.values()
    return draw(unspell(text), max_lines)


def answer(row: Mapping[str, Any]) -> str:
    """The label says it all."""
    return ""


def draw(picture: np.ndarray, max_lines: int) -> str:
    """Grey values (side, side) as lines of text; blank space at their ends is left out."""
    side = len(picture)
    factor = -(-side // (2 * max_lines))
    drawn = _shrunk(picture, factor) > picture.mean()
    upper, lower = drawn[::2], drawn[1::2]
    if len(lower) < len(upper):
        lower = np.vstack([lower, np.zeros_like(upper[:1])])
    return "\n".join("".join(line).rstrip() for line in _BLOCKS[upper + 2 * lower])


def _shrunk(picture: np.ndarray, factor: int) -> np.ndarray:
    """The brightest pixel of each square of `factor` x `factor`."""
    padded = np.pad(picture, (0, -len(picture) % factor))
    blocks = padded.reshape(len(padded) // factor, factor, -1, factor)
    return blocks.max(axis=(1, 3))
