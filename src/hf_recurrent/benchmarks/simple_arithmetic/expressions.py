"""Arithmetic expressions modulo 10: their words, their value, their difficulty.

text    ( 3 + ( 4 * 5 ) )       -> label 3
depth   1     2                 -> depth 2: operations on the longest chain (a bare digit has depth 0)

Every operation has brackets of its own and joins two operands. Each character is a word.
"""

from collections.abc import Sequence
from typing import NamedTuple

OPEN, CLOSE = "(", ")"
OPERATORS = ("*", "+")
DIGITS = tuple("0123456789")
VOCABULARY = (OPEN, CLOSE, *OPERATORS, *DIGITS)

_VALUES = {digit: int(digit) for digit in DIGITS}
_REDUCE = {"*": lambda a, b: a * b % 10, "+": lambda a, b: (a + b) % 10}
# what an open bracket needs next, by how much of `left operator right` it has
_NEEDS = ("a digit or (", "+ or *", "a digit or (", ")")


class Operation(NamedTuple):
    """An operation of an expression: the place of its bracket (the first word is 0), its operator, value and depth."""

    place: int
    operator: str
    value: int
    depth: int


class Analysis(NamedTuple):
    """The value of an expression and what makes it hard; `operations` are in the order in which they are closed."""

    value: int
    depth: int
    operations: list[Operation]


def analyse(words: Sequence[str]) -> Analysis:
    """Evaluates an expression with an explicit stack, so that no depth is too deep.

    Raises ValueError with the position and the word when `words` are not one well-formed expression.
    """
    # (place of the bracket, [left operand, operator, right operand] as far as they are known)
    opened: list[tuple[int, list]] = []
    operations: list[Operation] = []
    whole = None
    for place, word in enumerate(words):
        if whole is not None:
            raise ValueError(f"the expression ends before word {place + 1} ({word!r})")
        parts = opened[-1][1] if opened else []
        operand = None
        if word == OPEN and len(parts) in (0, 2):
            opened.append((place, []))
        elif word in OPERATORS and len(parts) == 1:
            parts.append(word)
        elif word in _VALUES and len(parts) in (0, 2):
            operand = _VALUES[word], 0
        elif word == CLOSE and len(parts) == 3:
            start, ((left, left_depth), operator, (right, right_depth)) = opened.pop()
            operand = _REDUCE[operator](left, right), 1 + max(left_depth, right_depth)
            operations.append(Operation(start, operator, *operand))
        else:
            raise ValueError(f"word {place + 1} is {word!r}; expected {_NEEDS[len(parts)]}")
        if operand is not None and opened:
            opened[-1][1].append(operand)
        elif operand is not None:
            whole = operand
    if whole is None:
        missing = f"after word {len(words)}, expected {_NEEDS[len(opened[-1][1])]}" if opened else "it is empty"
        raise ValueError(f"the expression is not complete: {missing}")
    return Analysis(*whole, operations)


def evaluate(expression: str | Sequence[str]) -> int:
    """The value (0-9) of an expression given as text or as words."""
    return analyse(expression.split() if isinstance(expression, str) else expression).value


def normalize(text: str) -> str:
    """The benchmark's spelling of an expression typed with loose spacing.

    >>> normalize("(3+(4*5))")
    '( 3 + ( 4 * 5 ) )'

    Raises ValueError when the text is not one well-formed expression.
    """
    words = [character for character in text if not character.isspace()]
    try:
        analyse(words)
    except ValueError as error:
        raise ValueError(f"not an arithmetic expression: {text!r}: {error}") from error
    return " ".join(words)


def make_row(expression: str) -> dict[str, object]:
    """The row of the data set for a well-formed expression without spaces."""
    value, depth, operations = analyse(expression)
    return {
        "text": " ".join(expression),
        "label": value,
        "depth": depth,
        "length": len(expression),
        "num_operators": len(operations),
    }
