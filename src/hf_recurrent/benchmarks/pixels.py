"""Pictures as text: the grey values of a square, row by row, in decimal, separated by single spaces."""

import math

import numpy as np

_WORDS = np.array([str(value) for value in range(256)], dtype=object)


def spell(picture: np.ndarray) -> str:
    """The text of a square (side, side) of grey values from 0 to 255.

    Raises:
        ValueError: it is no square, or holds other values.
    """
    picture = np.asarray(picture)
    if picture.ndim != 2 or picture.shape[0] != picture.shape[1] or not picture.size:
        raise ValueError(f"picture: expected a square (side, side) of grey values, got shape {picture.shape}")
    if picture.dtype.kind not in "iu" or picture.min() < 0 or picture.max() > 255:
        raise ValueError("picture: expected whole numbers from 0 to 255")
    return " ".join(_WORDS[picture.ravel()])


def unspell(text: str) -> np.ndarray:
    """The (side, side) grey values, uint8, of a text made by `spell`.

    Raises:
        ValueError: a word is no number from 0 to 255, or the number of words is no square.
    """
    words = text.split(" ")
    side = math.isqrt(len(words))
    if side * side != len(words):
        raise ValueError(f"pixels: {len(words)} values make no square picture")
    for place, word in enumerate(words):
        if not (word.isascii() and word.isdecimal() and int(word) < 256):
            raise ValueError(f"pixels: value {place} is {word!r:.40}; expected a whole number from 0 to 255")
    return np.array(words, dtype=np.int64).astype(np.uint8).reshape(side, side)
