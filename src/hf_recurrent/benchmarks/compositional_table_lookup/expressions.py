"""Commands of compositional table lookup: their words, their value, their depth.

    forward     101 a b         a is applied first, then b
    backward    b a 101         the same: b(a(101))

Functions are bijections of the eight arguments. The depth is the number of functions.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

ARGUMENTS = tuple(f"{number:03b}" for number in range(8))
# the values for the arguments 0 to 7, as octal digits: the first eleven permutations of 8 that
# numpy.random.RandomState(0x12345678) draws, as the reference implementation has them
TABLES = {
    "a": "61570423",
    "b": "65732041",
    "c": "15730462",
    "d": "42150736",
    "e": "75640321",
    "f": "46032571",
    "g": "51042673",
    "h": "23014567",
    "i": "65042371",
    "j": "74253106",
    "k": "46213057",
}
FUNCTIONS = tuple(TABLES)
VOCABULARY = (*ARGUMENTS, *FUNCTIONS)

_VALUES = {
    name: {ARGUMENTS[i]: ARGUMENTS[int(digit)] for i, digit in enumerate(digits)} for name, digits in TABLES.items()
}
_LOOSE = re.compile(r"[01]{3}|[^\s01]|[01]+")


class Command(NamedTuple):
    """What a text asks for: an argument, and the functions in the order in which they are applied."""

    argument: str
    functions: tuple[str, ...]


def parse(words: Sequence[str]) -> Command:
    """The command of some words, forward or backward: the argument is the first or the last of them.

    Raises ValueError with the position and the word when they are not one command.
    """
    places = []
    for position, word in enumerate(words, start=1):
        if word in ARGUMENTS:
            places.append(position)
        elif word not in TABLES:
            raise ValueError(f"word {position} is {word!r}; expected one of {' '.join(VOCABULARY)}")
    if not places:
        raise ValueError(
            "it is empty" if not words else "it has no argument: expected 000 to 111 as first or last word"
        )
    if len(places) > 1:
        raise ValueError(f"word {places[1]} is {words[places[1] - 1]!r}, a second argument; expected one of a to k")
    (place,) = places
    if place == 1:
        return Command(words[0], tuple(words[1:]))
    if place == len(words):
        return Command(words[-1], tuple(words[-2::-1]))
    raise ValueError(f"word {place} is {words[place - 1]!r}; expected the argument as first or last word")


def values(command: Command) -> list[str]:
    """The value after each function, in the order in which they are applied."""
    found, value = [], command.argument
    for name in command.functions:
        value = _VALUES[name][value]
        found.append(value)
    return found


def evaluate(text: str | Sequence[str]) -> str:
    """The value (000 to 111) of a command given as text or as words, forward or backward.

    >>> evaluate("101 a b"), evaluate("b a 101")
    ('010', '010')
    """
    command = parse(text.split() if isinstance(text, str) else text)
    return values(command)[-1] if command.functions else command.argument


def normalize(text: str) -> str:
    """The benchmark's spelling of a command typed with loose spacing; its direction stays.

    >>> normalize("101ab")
    '101 a b'

    Raises ValueError when the text is not one command.
    """
    words = _LOOSE.findall(text.lower())
    try:
        parse(words)
    except ValueError as error:
        raise ValueError(f"not a command of compositional table lookup: {text!r}: {error}") from error
    return " ".join(words)


def make_row(text: str) -> dict[str, object]:
    """The row of the data set for a well-formed command."""
    command = parse(text.split())
    return {"text": text, "label": ARGUMENTS.index(evaluate(text)), "depth": len(command.functions)}
