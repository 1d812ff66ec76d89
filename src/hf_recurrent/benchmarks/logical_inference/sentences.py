"""Sentences of propositional logic and the relation between two of them.

    text        ( not ( a ( or b ) ) )      not (a or b)
    text_pair   ( not a )
    label       <                           the first entails the second, and not the other way round

A sentence is a variable, `( not S )` or `( S ( and S ) )` with `and` or `or`. Its meaning is the set of those
of the 64 assignments of truth values to a-f that make it true, held as the bits of an integer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

VARIABLES = tuple("abcdef")
VOCABULARY = ("(", ")", *VARIABLES, "and", "or", "not")
CONNECTIVES = ("and", "or")

# independence, forward and reverse entailment, equivalence, negation, alternation, cover
RELATIONS = ("#", "<", ">", "=", "^", "|", "v")

ALL_WORLDS = (1 << 64) - 1
WORLDS = {variable: sum(1 << world for world in range(64) if world >> i & 1) for i, variable in enumerate(VARIABLES)}


class Node(NamedTuple):
    """A variable, `not` of one node, or `and` / `or` of two; `meaning` is the set of worlds that make it true."""

    symbol: str
    children: tuple["Node", ...]
    meaning: int


def parse(tokens: Sequence[str]) -> Node:
    """The tree of a sentence, by shifting and reducing (no recursion).

    Raises ValueError with the position and the token when `tokens` is not one well-formed sentence.
    """
    stack: list[Any] = []
    for position, token in enumerate(tokens, start=1):
        if token in WORLDS:
            stack.append(Node(token, (), WORLDS[token]))
        elif token == ")":
            stack.append(_reduce(stack, position))
        elif token in VOCABULARY:
            stack.append(token)
        else:
            raise ValueError(f"token {position} is {token!r}; expected one of {' '.join(VOCABULARY)}")
    if len(stack) != 1 or not isinstance(stack[0], Node):
        found = "it is empty" if not stack else "it is not closed, or there is more than one"
        raise ValueError(f"expected one whole sentence, but {found}")
    return stack[0]


def _reduce(stack: list[Any], position: int) -> Node | list[Any]:
    """The content of the bracket closed at `position`, taken from the stack: a node, or `( and S )` as a list."""
    right = stack.pop() if stack else None
    left = stack.pop() if stack else None
    opening = stack.pop() if stack else None
    if opening == "(":
        if isinstance(left, Node) and isinstance(right, list):
            connective, other = right
            both = left.meaning & other.meaning if connective == "and" else left.meaning | other.meaning
            return Node(connective, (left, other), both)
        if isinstance(right, Node) and left == "not":
            return Node("not", (right,), ALL_WORLDS & ~right.meaning)
        if isinstance(right, Node) and left in CONNECTIVES:
            return [left, right]
    raise ValueError(
        f"the bracket closed at token {position} is none of '( not S )', '( S ( and S ) )', '( S ( or S ) )'"
    )


def relation(first: int, second: int) -> str:
    """The one of the seven relations that holds between two meanings.

    Defined for sentences that are neither always true nor always false, the only ones in the data.
    """
    if first == second:
        return "="
    if first & ~second == 0:
        return "<"
    if second & ~first == 0:
        return ">"
    exclusive = first & second == 0
    exhaustive = first | second == ALL_WORLDS
    if exclusive and exhaustive:
        return "^"
    if exclusive:
        return "|"
    return "v" if exhaustive else "#"


def normalize(text: str) -> str:
    """The benchmark's spelling of a sentence typed with loose spacing.

    >>> normalize("(a(and (not b)))")
    '( a ( and ( not b ) ) )'
    """
    tokens = text.lower().replace("(", " ( ").replace(")", " ) ").split()
    try:
        parse(tokens)
    except ValueError as error:
        raise ValueError(f"not a sentence of logical inference: {text!r}: {error}") from error
    return " ".join(tokens)


def make_example(text: str, text_pair: str) -> dict[str, object]:
    """The example of two well-formed sentences.

    `num_operators` is that of the longer sentence, counted as in the authors' file names: 12 is "12 or more".
    """
    first, second = sentences = text.split(), text_pair.split()
    longer = max(sum(tokens.count(name) for name in ("and", "or", "not")) for tokens in sentences)
    return {
        "text": " ".join(first),
        "text_pair": " ".join(second),
        "label": RELATIONS.index(relation(parse(first).meaning, parse(second).meaning)),
        "num_operators": min(12, longer),
        "length": len(first),
        "length_pair": len(second),
    }
