"""Pictures as text, and drawn in letters.

The text has the grey values of a square, row by row, in decimal, separated by single spaces. A drawing has two rows of
pixels to a line. A pixel is drawn where it is brighter than the mean. A picture that is too tall is shrunk: a square of
pixels becomes its brightest one, so that thin lines stay.
"""

import math

import numpy as np

_NUMBERS = np.array([str(value) for value in range(256)], dtype=object)


def format_pixels(picture: np.ndarray) -> str:
    """The text of a square (side, side) of whole grey values from 0 to 255."""
    return " ".join(_NUMBERS[picture.ravel()])


def parse_pixels(text: str) -> np.ndarray:
    """The (side, side) grey values, uint8, of a text made by `format_pixels`.

    Raises:
        ValueError: a part is no number from 0 to 255, or the number of parts is no square.
    """
    values = text.split(" ")
    side = math.isqrt(len(values))
    if side * side != len(values):
        raise ValueError(f"pixels: {len(values)} values make no square picture")
    for place, value in enumerate(values):
        if not (value.isascii() and value.isdecimal() and int(value) < 256):
            raise ValueError(f"pixels: value {place} is {value!r:.40}; expected a whole number from 0 to 255")
    return np.array(values, dtype=np.int64).astype(np.uint8).reshape(side, side)


# neither pixel of two, one above the other; the upper; the lower; both
_BLOCKS = np.array([" ", "▀", "▄", "█"])


def draw_picture(picture: np.ndarray, max_lines: int) -> str:
    """Grey values (side, side) as lines of text; blank space at their ends is left out."""
    factor = -(-len(picture) // (2 * max_lines))
    padded = np.pad(picture, (0, -len(picture) % factor))
    # the brightest pixel of each square of `factor` x `factor`
    shrunk = padded.reshape(len(padded) // factor, factor, -1, factor).max(axis=(1, 3))
    drawn = shrunk > picture.mean()
    upper, lower = drawn[::2], drawn[1::2]
    if len(lower) < len(upper):
        lower = np.vstack([lower, np.zeros_like(upper[:1])])
    return "\n".join("".join(line).rstrip() for line in _BLOCKS[upper + 2 * lower])
