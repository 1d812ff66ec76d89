"""Commands of compositional table lookup: their tokens, their value, their depth, their rendering.

    forward     101 a b         a is applied first, then b
    backward    b a 101         the same: b(a(101))

Functions are bijections of the eight arguments. The depth is the number of functions.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..rendering import Line, draw

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
    """An argument, and the functions in the order in which they are applied."""

    argument: str
    functions: tuple[str, ...]


def parse(tokens: Sequence[str]) -> Command:
    """The command of some tokens, forward or backward: the argument is the first or the last of them.

    Raises ValueError with the position and the token when they are not one command.
    """
    places = []
    for position, token in enumerate(tokens, start=1):
        if token in ARGUMENTS:
            places.append(position)
        elif token not in TABLES:
            raise ValueError(f"token {position} is {token!r}; expected one of {' '.join(VOCABULARY)}")
    if not places:
        raise ValueError(
            "it is empty" if not tokens else "it has no argument: expected 000 to 111 as first or last token"
        )
    if len(places) > 1:
        raise ValueError(f"token {places[1]} is {tokens[places[1] - 1]!r}, a second argument; expected one of a to k")
    (place,) = places
    if place == 1:
        return Command(tokens[0], tuple(tokens[1:]))
    if place == len(tokens):
        return Command(tokens[-1], tuple(tokens[-2::-1]))
    raise ValueError(f"token {place} is {tokens[place - 1]!r}; expected the argument as first or last token")


def values(command: Command) -> list[str]:
    """The value after each function, in the order in which they are applied."""
    found, value = [], command.argument
    for name in command.functions:
        value = _VALUES[name][value]
        found.append(value)
    return found


def evaluate(text: str | Sequence[str]) -> str:
    """The value (000 to 111) of a command given as text or as tokens, forward or backward.

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
    tokens = _LOOSE.findall(text.lower())
    try:
        parse(tokens)
    except ValueError as error:
        raise ValueError(f"not a command of compositional table lookup: {text!r}: {error}") from error
    return " ".join(tokens)


def make_example(text: str) -> dict[str, object]:
    """The example of a well-formed command."""
    command = parse(text.split())
    return {"text": text, "label": ARGUMENTS.index(evaluate(text)), "depth": len(command.functions)}


def render(text: str, max_lines: int) -> str:
    """A command as a tree that shows the value of every part: each function above its operand.

    101 a b         b = 010
                      a = 100
                        101
    """
    command = parse(text.split())
    parts = [*(f"{name} = {value}" for name, value in zip(command.functions, values(command), strict=True))][::-1]
    return draw([Line(level, text) for level, text in enumerate([*parts, command.argument])], max_lines)
