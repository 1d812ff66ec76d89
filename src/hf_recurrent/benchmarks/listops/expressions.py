"""ListOps expressions: their tokens, their value, their difficulty, their rendering.

text    [MAX 2 9 [MIN 4 7 ] 0 ]
value                   ^4       -> label 9
depth    1       2               -> depth 2 (a bare digit has depth 0)
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ..rendering import Line, draw

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple("0123456789")
END = "]"
VOCABULARY = (*OPERATORS, END, *DIGITS)
# a token in loosely spaced text, and the authors' parentheses, which the benchmark leaves out
TOKEN_PATTERN, IGNORED_PATTERN = r"\[[A-Z]+|\]|[0-9]", r"[()]"

T = TypeVar("T")

_VALUES = {digit: int(digit) for digit in DIGITS}
_LOOSE = re.compile(r"\[\s*[A-Za-z]+|[A-Za-z0-9]+|[^\s()]")


def _median(values: list[int]) -> int:
    """The median; of an even number of values, the mean of the middle two rounded down."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


REDUCE = {"[MIN": min, "[MAX": max, "[MED": _median, "[SM": lambda values: sum(values) % 10}


class Analysis(NamedTuple):
    """The value of an expression and what makes it hard."""

    value: int
    depth: int
    num_operators: int
    max_arguments: int


def analyse(tokens: Sequence[str]) -> Analysis:
    """Evaluates an expression with an explicit stack, so that no depth is too deep.

    Raises ValueError with the position and the token when `tokens` is not one well-formed expression.
    """
    stack: list[tuple[str, list[int]]] = []
    root: list[int] = []
    arguments = root
    depth = num_operators = max_arguments = 0
    for position, token in enumerate(tokens):
        if arguments is root and root:
            raise ValueError(f"the expression ends before token {position + 1} ({token!r})")
        value = _VALUES.get(token)
        if value is not None:
            arguments.append(value)
        elif token in REDUCE:
            arguments = []
            stack.append((token, arguments))
            num_operators += 1
            depth = max(depth, len(stack))
        elif token != END:
            raise ValueError(f"token {position + 1} is {token!r}; expected one of {' '.join(VOCABULARY)}")
        elif not stack:
            raise ValueError(f"token {position + 1} is {END!r} but no list is open")
        elif not arguments:
            raise ValueError(f"token {position + 1} closes {stack[-1][0]!r}, which has no arguments")
        else:
            operator, values = stack.pop()
            max_arguments = max(max_arguments, len(values))
            arguments = stack[-1][1] if stack else root
            arguments.append(REDUCE[operator](values))
    if stack:
        raise ValueError(f"{len(stack)} list(s) are not closed; the innermost is {stack[-1][0]!r}")
    if not root:
        raise ValueError("the expression is empty")
    return Analysis(root[0], depth, num_operators, max_arguments)


def evaluate(expression: str | Sequence[str]) -> int:
    """The value (0-9) of an expression given as text or as tokens."""
    return analyse(expression.split() if isinstance(expression, str) else expression).value


def normalize(text: str) -> str:
    """The benchmark's spelling of an expression typed by hand or in the authors' binary form.

    >>> normalize("[max 2 9[MIN 4 7]0]")
    '[MAX 2 9 [MIN 4 7 ] 0 ]'
    >>> normalize("( ( ( [MAX 2 ) 9 ) ] )")
    '[MAX 2 9 ]'
    """
    tokens = ["".join(token.split()).upper() for token in _LOOSE.findall(text)]
    try:
        analyse(tokens)
    except ValueError as error:
        raise ValueError(f"not a ListOps expression: {text!r}: {error}") from error
    return " ".join(tokens)


def make_example(tokens: Sequence[str]) -> dict[str, object]:
    """The example of a well-formed expression."""
    value, depth, num_operators, max_arguments = analyse(tokens)
    return {
        "text": " ".join(tokens),
        "label": value,
        "length": len(tokens),
        "depth": depth,
        "num_operators": num_operators,
        "max_arguments": max_arguments,
    }


def fold(tokens: Sequence[str], of_digit: Callable[[str], T], of_list: Callable[[str, list[T]], T]) -> dict[int, T]:
    """The result of every list of a well-formed expression by the position of its operator, and of the whole at -1.

    Args:
        of_digit: the result of a digit.
        of_list: the result of an operator and the results of its arguments.
    """
    found: dict[int, T] = {}
    whole: list[T] = []
    opened = [(-1, whole)]
    for position, token in enumerate(tokens):
        if token in REDUCE:
            opened.append((position, []))
            continue
        if token == END:
            start, arguments = opened.pop()
            result = found[start] = of_list(tokens[start], arguments)
        else:
            result = of_digit(token)
        opened[-1][1].append(result)
    return found | {-1: whole[0]}


def list_lines(tokens: Sequence[str]) -> Iterator[Line]:
    """One line per list, and one per run of digits between lists."""
    value_of = fold(tokens, int, lambda operator, arguments: REDUCE[operator](arguments))
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


def render(text: str, max_lines: int) -> str:
    """An expression as a tree that shows the value of every sub-expression.

    [MAX 2 9 [MIN 4 7 ] 0 ]         MAX = 9
                                      2 9
                                      MIN = 4
                                        4 7
                                      0
    """
    return draw(list(list_lines(text.split())), max_lines)
