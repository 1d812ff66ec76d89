"""The dependency depth of ListOps expressions: how many operations lie on the way from digits to the value.

An operation depends on the arguments that it selects, not on the others:

    [MIN  [MAX  [MIN  the first argument that has the value
    [MED              the middle one of a stable sort; of an even number, the deeper one of the middle two
    [SM               the deepest argument: the sum is of all

    text    [MAX 2 9 [MIN 4 7 ] 0 ]         9 is a digit: one operation
            [SM 2 9 [MIN 4 7 ] 0 ]          [SM of [MIN: two operations

The authors count levels, a bare digit being one; operations are one less. Equal values are told apart by their place,
which matters for every third deep expression.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..listops.expressions import DIGITS, OPERATORS, REDUCE, fold, list_lines
from ..listops.expressions import analyse as analyse_values
from ..rendering import Line, draw

MINIMUM, MAXIMUM, MEDIAN, SUM = OPERATORS


class Part(NamedTuple):
    """A list or digit: its value, and the operations that its value depends on."""

    value: int
    depth: int


def apply(operator: str, arguments: Sequence[Part]) -> Part:
    """The value and dependency depth of a list with these arguments."""
    value = REDUCE[operator]([part.value for part in arguments])
    if operator == SUM:
        selected = arguments
    elif operator == MEDIAN:
        # of equal values, the first stays first
        ordered = sorted(arguments, key=lambda part: part.value)
        selected = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    else:
        selected = [next(part for part in arguments if part.value == value)]
    return Part(value, 1 + max(part.depth for part in selected))


def analyse(tokens: Sequence[str]) -> dict[int, Part]:
    """Every list of a well-formed expression by the position of its operator, and the whole at -1."""
    return fold(tokens, lambda digit: Part(int(digit), 0), apply)


def make_example(tokens: Sequence[str]) -> dict[str, object]:
    """The example of an expression.

    Raises ValueError with the position and the token when `tokens` is not one well-formed expression.
    """
    facts = analyse_values(tokens)
    return {
        "text": " ".join(tokens),
        "label": facts.value,
        "depth": analyse(tokens)[-1].depth,
        "structural_depth": facts.depth,
        "length": len(tokens),
        "num_operators": facts.num_operators,
    }


def render(text: str, max_lines: int) -> str:
    """An expression as a tree that shows the value of every list, and how many operations it depends on.

    [MAX 2 9 [MIN 4 7 ] 0 ]         MAX = 9 (depth 1)
                                      2 9
                                      MIN = 4 (depth 1)
                                        4 7
                                      0
    """
    return draw(list(_lines(text.split())), max_lines)


def _lines(tokens: Sequence[str]) -> Iterator[Line]:
    """One line per list, and one per run of digits between lists."""
    parts = analyse(tokens)
    # lists come in the order of their operators
    depths = (parts[position].depth for position in sorted(parts) if position >= 0)
    for line in list_lines(tokens):
        is_list = line.text[0] not in DIGITS
        yield Line(line.level, f"{line.text} (depth {next(depths)})") if is_list else line
