"""JSON arrays that are larger than memory."""

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

BLOCK = 1 << 20
# an object of so many characters that does not end is damaged
LONGEST = 1 << 26
_SPACE = re.compile(r"\s*")
# what may follow a character
_NEXT = {"[": "{]", ",": "{"}


def read_items(file: TextIO, path: str, block: int = BLOCK) -> Iterator[dict[str, Any]]:
    """The items of a file with one array of objects; memory holds `block` characters and the item that they end in.

    Raises:
        ValueError: it is no whole array of objects; `path` names the file.
    """
    decoder = json.JSONDecoder()
    text, place, expected = "", 0, "["
    while True:
        place = _SPACE.match(text, place).end()
        wanted = " or ".join(map(repr, expected)) or "the end after ']'"
        if place == len(text):
            text, place = file.read(block), 0
            if not text and expected:
                raise ValueError(f"{path} ends where {wanted} was expected: is it whole?")
            if not text:
                return
            continue
        character = text[place]
        if character not in expected:
            raise ValueError(f"{path}: expected {wanted}, got {text[place : place + 40]!r}")
        if character != "{":
            place, expected = place + 1, _NEXT.get(character, "")
            continue
        try:
            item, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            more = file.read(block)
            if not more or len(text) - place > LONGEST:
                raise ValueError(f"{path}: an object is damaged or not whole ({error})") from error
            text, place = text[place:] + more, 0
            continue
        yield item
        expected = ",]"
