"""JSON arrays that are larger than memory."""

import json
from collections.abc import Iterator
from typing import Any, TextIO

from .. import limits
from ..files import unique_keys

BLOCK = 1 << 20
# what may follow: each character, and what may follow that one
_AFTER_ITEM = ",]"
_NEXT = {"[": "{]", ",": "{"}


def array_items(path: str, block: int = BLOCK) -> Iterator[dict[str, Any]]:
    """The items of a JSON file that holds one array of objects, one at a time.

    Memory holds the last `block` characters and the item that they end in, so that gigabytes can be read.

    Raises:
        ValueError: the file is no whole array of objects, or one of them has a key more than once.
    """
    with open(path, encoding="utf-8") as file:
        try:
            yield from read_items(file, path, block)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text ({error})") from error


def read_items(file: TextIO, path: str, block: int = BLOCK) -> Iterator[dict[str, Any]]:
    """The items of an open file, as `array_items`; `path` names it in errors."""
    decoder = json.JSONDecoder(object_pairs_hook=unique_keys)
    text, place, expected = "", 0, "["
    while True:
        while place < len(text) and text[place].isspace():
            place += 1
        if place == len(text):
            text, place = file.read(block), 0
            if not text:
                raise ValueError(f"{path} ends where {_wanted(expected)} was expected: is it whole?")
            continue
        character = text[place]
        if character not in expected:
            raise ValueError(f"{path}: expected {_wanted(expected)}, got {text[place : place + 40]!r}")
        if character == "]":
            require_end(file, text[place + 1 :], path, block)
            return
        if character == "{":
            try:
                item, place = decoder.raw_decode(text, place)
            except RecursionError as error:
                raise limits.NESTING.exceeded(path) from error
            except json.JSONDecodeError as error:
                more = file.read(block)
                if not more or len(text) - place > limits.JSON.value:
                    most = f"larger than {limits.JSON.value:,} bytes ({limits.JSON.variable})"
                    raise ValueError(f"{path}: an object is damaged, not whole, or {most} ({error})") from error
                text, place = text[place:] + more, 0
                continue
            except ValueError as error:
                raise ValueError(f"{path}: {error}: {text[place : place + 40]!r}") from error
            yield item
            expected = _AFTER_ITEM
        else:
            place, expected = place + 1, _NEXT[character]


def require_end(file: TextIO, text: str, path: str, block: int) -> None:
    """Raise a ValueError if anything but white space follows an array."""
    while not text.strip():
        text = file.read(block)
        if not text:
            return
    raise ValueError(f"{path}: expected the end after ']', got {text.strip()[:40]!r}: give one array")


def _wanted(expected: str) -> str:
    return " or ".join(repr(character) for character in expected)
