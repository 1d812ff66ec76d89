"""Arithmetic expressions as trees that show the value of every operation.

( 3 + ( 4 * 5 ) )       + = 3
                          3
                          * = 0
                            4 5
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..text_tree import Line, draw
from .expressions import CLOSE, DIGITS, OPEN, analyse


def lines(words: Sequence[str]) -> Iterator[Line]:
    """One line per operation, and one per run of digits that no bracket parts."""
    operation_of = {operation.place: operation for operation in analyse(words).operations}
    level = 0
    digits: list[str] = []
    for place, word in enumerate(words):
        if word in DIGITS:
            digits.append(word)
        if digits and word in (OPEN, CLOSE):
            yield Line(level, " ".join(digits))
            digits = []
        if word == OPEN:
            yield Line(level, f"{operation_of[place].operator} = {operation_of[place].value}")
        level += (word == OPEN) - (word == CLOSE)
    if digits:
        yield Line(level, " ".join(digits))


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """The tree of a row of the data set."""
    return draw(list(lines(row["text"].split())), max_lines)


def answer(row: Mapping[str, Any]) -> str:
    """What the label of a row says, in words."""
    return f"its value is {DIGITS[row['label']]}"
