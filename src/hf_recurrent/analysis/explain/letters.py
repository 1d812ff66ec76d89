"""The bytes of a text as they are drawn, one letter each."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

FONT = "DejaVu Sans Mono"
CONTINUES = "\u00b7"
NAMED = {"\n": "\u21b5", "\t": "\u2192", "\r": "\u2190"}


class Letter(NamedTuple):
    """What stands in a byte's cell. `kind` is "text"; "mark", which stands for what has no letter; or "hex"."""

    text: str
    kind: str


def letters_of(content: np.ndarray) -> list[Letter]:
    """(n,) bytes -> n letters.

    A character of several bytes stands at the first, with a dot at each other. Line ends and tabs have marks; a byte of
    no character, of a control character or of one that the font lacks is shown in hexadecimal.
    """
    letters: list[Letter] = []
    # what is no UTF-8 becomes a surrogate, one for each byte
    for character in content.astype(np.uint8).tobytes().decode("utf-8", "surrogateescape"):
        encoded = character.encode("utf-8", "surrogateescape")
        if character in NAMED:
            letters.append(Letter(NAMED[character], "mark"))
        elif character.isprintable() and has_glyph(character):
            letters.append(Letter(character, "text"))
            letters += [Letter(CONTINUES, "mark")] * (len(encoded) - 1)
        else:
            letters += [Letter(f"{byte:02x}", "hex") for byte in encoded]
    return letters


def has_glyph(character: str) -> bool:
    return font().get_char_index(ord(character)) > 0


@lru_cache(maxsize=1)
def font() -> FT2Font:
    return font_manager.get_font(font_manager.findfont(FONT))
