"""Sentences as trees and in infix notation, and the relation between two of them as a clause.

( not ( a ( or b ) ) )          not (a or b)          not: true in 16 of 64
                                                        or: true in 48 of 64
                                                          a
                                                          b
"""

from collections.abc import Mapping
from typing import Any

from ..rendering import Line, draw
from .sentences import ALL_WORLDS, Node, parse

# in the order of RELATIONS; {0} and {1} are the sentences
_CLAUSES = (
    "{0} and {1} are independent",
    "{0} entails {1}",
    "{0} is entailed by {1}",
    "{0} and {1} mean the same",
    "{0} is the negation of {1}",
    "{0} and {1} are never both true, but can both be false",
    "{0} and {1} are never both false, but can both be true",
)
_LONGEST_QUOTE = 30


def infix(root: Node) -> str:
    """A sentence with brackets only around parts that have operators.

    >>> infix(parse("( not ( a ( or b ) ) )".split()))
    'not (a or b)'
    """
    tokens: list[str] = []
    # parts still to be written, the next one last
    pending: list[Node | str] = [root]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            tokens.append(item)
            continue
        parts = [[child] if not child.children else ["(", child, ")"] for child in item.children]
        if not parts:
            pending.append(item.symbol)
        elif item.symbol == "not":
            pending += reversed(["not", *parts[0]])
        else:
            pending += reversed([*parts[0], item.symbol, *parts[1]])
    return " ".join(tokens).replace("( ", "(").replace(" )", ")")


def lines(root: Node) -> list[Line]:
    """One line per node; inner nodes with the number of the 64 worlds in which they are true."""
    found = []
    pending = [(0, root)]
    while pending:
        level, node = pending.pop()
        count = f": true in {node.meaning.bit_count()} of {ALL_WORLDS.bit_length()}" if node.children else ""
        found.append(Line(level, node.symbol + count))
        pending += [(level + 1, child) for child in reversed(node.children)]
    return found


def render(texts: Mapping[str, str], max_lines: int) -> str:
    """Both sentences, each in infix notation above its tree; lines that one does not need the other may use."""
    roots = [parse(texts[column].split()) for column in ("text", "text_pair")]
    first, second = trees = [lines(root) if root.children else [] for root in roots]
    height = max_lines - len(roots)
    first_lines = min(len(first), max(height // 2, height - len(second)))
    parts = []
    for root, found, most in zip(roots, trees, (first_lines, height - first_lines), strict=True):
        parts += [infix(root), draw(found, most)] if found else [infix(root)]
    return "\n".join(parts)


def describe_label(example: Mapping[str, Any]) -> str:
    """The relation of an example as a clause; short sentences are quoted, long ones counted."""
    names = [f"'{infix(parse(example[column].split()))}'" for column in ("text", "text_pair")]
    if max(map(len, names)) > _LONGEST_QUOTE:
        names = ["the first", "the second"]
    return _CLAUSES[example["label"]].format(*names)
