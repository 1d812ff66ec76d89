"""ListOps expressions as trees that show the value of every sub-expression.

[MAX 2 9 [MIN 4 7 ] 0 ]         MAX = 9
                                  2 9
                                  MIN = 4
                                    4 7
                                  0
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..text_tree import Line, draw
from .expressions import DIGITS, END, REDUCE


def values(tokens: Sequence[str]) -> dict[int, int]:
    """The value of every list of a well-formed expression, by the position of its operator."""
    found: dict[int, int] = {}
    opened: list[tuple[int, list[int]]] = []
    for position, token in enumerate(tokens):
        if token in REDUCE:
            opened.append((position, []))
            continue
        if token == END:
            start, arguments = opened.pop()
            value = found[start] = REDUCE[tokens[start]](arguments)
        else:
            value = int(token)
        if opened:
            opened[-1][1].append(value)
    return found


def lines(tokens: Sequence[str]) -> Iterator[Line]:
    """One line per list, and one per run of digits between lists."""
    value_of = values(tokens)
    level = 0
    digits: list[str] = []
    for position, token in enumerate(tokens):
        if token in DIGITS:
            digits.append(token)
            continue
        if digits:
            yield Line(level, " ".join(digits))
            digits = []
        if token == END:
            level -= 1
        else:
            yield Line(level, f"{token[1:]} = {value_of[position]}")
            level += 1
    if digits:
        yield Line(level, " ".join(digits))


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """The tree of a row of the data set."""
    return draw(list(lines(row["text"].split())), max_lines)


def answer(row: Mapping[str, Any]) -> str:
    """What the label of a row says, in words."""
    return f"its value is {DIGITS[row['label']]}"
