"""Commands as trees that show the value of every part.

101 a b         b = 010
                  a = 100
                    101
"""

from collections.abc import Mapping
from typing import Any

from ..text_tree import Line, draw
from .expressions import ARGUMENTS, parse, values


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """The tree of a row of the data set: each function above what it is applied to."""
    command = parse(row["text"].split())
    parts = [*(f"{name} = {value}" for name, value in zip(command.functions, values(command), strict=True))][::-1]
    return draw([Line(level, text) for level, text in enumerate([*parts, command.argument])], max_lines)


def answer(row: Mapping[str, Any]) -> str:
    """What the label of a row says, in words."""
    return f"its value is {ARGUMENTS[row['label']]}"
