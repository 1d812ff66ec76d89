r"""Arithmetic expressions modulo 10: their tokens, their value, their difficulty, their rendering.

text    ( 3 + ( 4 * 5 ) )       -> label 3
depth   1     2                 -> depth 2: operations on the longest chain (a bare digit has depth 0)

Every operation has brackets of its own and joins two operands. Each character is a token.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..rendering import Line, draw

OPEN, CLOSE = "(", ")"
OPERATORS = ("*", "+")
DIGITS = tuple("0123456789")
VOCABULARY = (OPEN, CLOSE, *OPERATORS, *DIGITS)

_VALUES = {digit: int(digit) for digit in DIGITS}
_REDUCE = {"*": lambda a, b: a * b % 10, "+": lambda a, b: (a + b) % 10}
# the next token of an open bracket, by how much of `left operator right` it has
_NEEDS = ("a digit or (", "+ or *", "a digit or (", ")")


class Operation(NamedTuple):
    """An operation of an expression: the place of its bracket (the first token is 0), its operator, value and depth."""

    place: int
    operator: str
    value: int
    depth: int


class Analysis(NamedTuple):
    """The value of an expression and what makes it hard; `operations` are in the order in which they are closed."""

    value: int
    depth: int
    operations: list[Operation]


def analyse(tokens: Sequence[str]) -> Analysis:
    """Evaluates an expression with an explicit stack, so that no depth is too deep.

    Raises ValueError with the position and the token when `tokens` are not one well-formed expression.
    """
    # (place of the bracket, [left operand, operator, right operand] as far as they are known)
    opened: list[tuple[int, list]] = []
    operations: list[Operation] = []
    whole = None
    for place, token in enumerate(tokens):
        if whole is not None:
            raise ValueError(f"the expression ends before token {place + 1} ({token!r})")
        parts = opened[-1][1] if opened else []
        operand = None
        if token == OPEN and len(parts) in (0, 2):
            opened.append((place, []))
        elif token in OPERATORS and len(parts) == 1:
            parts.append(token)
        elif token in _VALUES and len(parts) in (0, 2):
            operand = _VALUES[token], 0
        elif token == CLOSE and len(parts) == 3:
            start, ((left, left_depth), operator, (right, right_depth)) = opened.pop()
            operand = _REDUCE[operator](left, right), 1 + max(left_depth, right_depth)
            operations.append(Operation(start, operator, *operand))
        else:
            raise ValueError(f"token {place + 1} is {token!r}; expected {_NEEDS[len(parts)]}")
        if operand is not None and opened:
            opened[-1][1].append(operand)
        elif operand is not None:
            whole = operand
    if whole is None:
        missing = f"after token {len(tokens)}, expected {_NEEDS[len(opened[-1][1])]}" if opened else "it is empty"
        raise ValueError(f"the expression is not complete: {missing}")
    return Analysis(*whole, operations)


def evaluate(expression: str | Sequence[str]) -> int:
    """The value (0-9) of an expression given as text or as tokens."""
    return analyse(expression.split() if isinstance(expression, str) else expression).value


def normalize(text: str) -> str:
    """The benchmark's spelling of an expression typed with loose spacing.

    >>> normalize("(3+(4*5))")
    '( 3 + ( 4 * 5 ) )'

    Raises ValueError when the text is not one well-formed expression.
    """
    tokens = [character for character in text if not character.isspace()]
    try:
        analyse(tokens)
    except ValueError as error:
        raise ValueError(f"not an arithmetic expression: {text!r}: {error}") from error
    return " ".join(tokens)


def make_example(expression: str) -> dict[str, object]:
    """The example of a well-formed expression without spaces."""
    value, depth, operations = analyse(expression)
    return {
        "text": " ".join(expression),
        "label": value,
        "depth": depth,
        "length": len(expression),
        "num_operators": len(operations),
    }


def render(text: str, max_lines: int) -> str:
    """An expression as a tree that shows the value of every operation.

    ( 3 + ( 4 * 5 ) )       + = 3
                              3
                              * = 0
                                4 5
    """
    return draw(list(_lines(text.split())), max_lines)


def _lines(tokens: Sequence[str]) -> Iterator[Line]:
    """One line per operation, and one per run of digits that no bracket parts."""
    operation_of = {operation.place: operation for operation in analyse(tokens).operations}
    level = 0
    digits: list[str] = []
    for place, token in enumerate(tokens):
        if token in DIGITS:
            digits.append(token)
        if digits and token in (OPEN, CLOSE):
            yield Line(level, " ".join(digits))
            digits = []
        if token == OPEN:
            yield Line(level, f"{operation_of[place].operator} = {operation_of[place].value}")
        level += (token == OPEN) - (token == CLOSE)
    if digits:
        yield Line(level, " ".join(digits))
