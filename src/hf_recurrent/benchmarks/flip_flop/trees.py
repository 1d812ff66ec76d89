"""Flip-flop strings as columns of an instruction and its bit, with what each read must recall.

w0  i1  r0  w1  r1          the reads have the bits of write 1 and of write 2
1       =1  2   =2
"""

from collections.abc import Mapping
from typing import Any

from .strings import WRITE, check_string

PAIRS_PER_LINE = 16


def lines(text: str) -> list[list[str]]:
    """Groups of one or two lines: so many pairs, and what is to be said below them, if anything."""
    words = text.split()
    marks = {read.position: f"={read.write}" + ("" if read.right else "!") for read in check_string(text)}
    writes = [position + 1 for position in range(0, len(words), 2) if words[position] == WRITE]
    marks |= {position: str(number) for number, position in enumerate(writes, start=1)}
    width = 2 + max(2, *map(len, marks.values()))
    groups = []
    for start in range(0, len(words), 2 * PAIRS_PER_LINE):
        bits = range(start + 1, min(start + 2 * PAIRS_PER_LINE, len(words)), 2)
        drawn = ["".join(f"{words[i - 1]}{words[i]}".ljust(width) for i in bits)]
        drawn.append("".join(marks.get(i, "").ljust(width) for i in bits))
        groups.append([line.rstrip() for line in drawn if line.strip()])
    return groups


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """The string of a row; of a long one its beginning, and its end, where the last read is."""
    *head, tail = lines(row["text"])
    drawn: list[str] = []
    for group in head:
        if len(drawn) + len(group) + len(tail) > max_lines:
            break
        drawn += group
    hidden = sum(map(len, head)) - len(drawn)
    if hidden:
        drawn[-1] += f" ... ({hidden} more)"
    return "\n".join([*drawn, *tail])


def answer(row: Mapping[str, Any]) -> str:
    """What the last read must recall, in words."""
    reads = check_string(row["text"])
    if not reads:
        return "there is no read"
    last = reads[-1]
    between = last.position - last.write_position - 2
    return f"the last read must recall {last.expected}, from write {last.write}, {between} words before it"
