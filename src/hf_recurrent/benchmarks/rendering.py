"""Trees of any depth as indented text of limited height."""

from collections.abc import Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """One line of a tree, in reading order; `level` 0 is the root."""

    level: int
    text: str


def draw(lines: Sequence[Line], max_lines: int) -> str:
    """Indented text of at most `max_lines` lines.

    A tree that is too tall is cut at the deepest level that still fits; a line whose children are left out ends
    with the number of hidden lines.

    >>> draw([Line(0, "MAX = 9"), Line(1, "MIN = 4"), Line(2, "4 7"), Line(1, "9")], 3)
    'MAX = 9\\n  MIN = 4 ... (1 more)\\n  9'
    """
    counts = [0] * (1 + max(line.level for line in lines))
    for line in lines:
        counts[line.level] += 1
    # the most levels that fit; the root always does
    level, total = 0, counts[0]
    while level + 1 < len(counts) and total + counts[level + 1] <= max_lines:
        level += 1
        total += counts[level]
    drawn: list[str] = []
    hidden = 0
    for line in lines:
        if line.level > level:
            hidden += 1
            continue
        _mark(drawn, hidden)
        hidden = 0
        drawn.append("  " * line.level + line.text)
    _mark(drawn, hidden)
    return "\n".join(drawn)


def _mark(drawn: list[str], hidden: int) -> None:
    if hidden:
        drawn[-1] += f" ... ({hidden} more)"
