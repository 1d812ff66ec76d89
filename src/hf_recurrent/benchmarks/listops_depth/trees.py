"""ListOps expressions as trees that show the value of every list, and how many operations it depends on.

[MAX 2 9 [MIN 4 7 ] 0 ]         MAX = 9 (depth 1)
                                  2 9
                                  MIN = 4 (depth 1)
                                    4 7
                                  0
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..listops.trees import answer
from ..listops.trees import lines as value_lines
from ..text_tree import Line, draw
from .expressions import DIGITS, analyse

__all__ = ["answer", "lines", "tree"]


def lines(tokens: Sequence[str]) -> Iterator[Line]:
    """One line per list, and one per run of digits between lists."""
    parts = analyse(tokens)
    # lists come in the order of their operators
    depths = (parts[position].depth for position in sorted(parts) if position >= 0)
    for line in value_lines(tokens):
        is_list = line.text[0] not in DIGITS
        yield Line(line.level, f"{line.text} (depth {next(depths)})") if is_list else line


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """The tree of a row of the data set."""
    return draw(list(lines(row["text"].split())), max_lines)
