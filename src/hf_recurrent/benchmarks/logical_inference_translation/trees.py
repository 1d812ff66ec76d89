"""Sources and targets as the sentences and the relation that they stand for."""

from collections.abc import Mapping
from typing import Any

from ..logical_inference import trees
from .pairs import restored


def tree(row: Mapping[str, Any], max_lines: int) -> str:
    """Both sentences of a source, each in infix notation above its tree."""
    return trees.tree(restored(row["source"], row["target"]), max_lines)


def answer(row: Mapping[str, Any]) -> str:
    """What the target says, in words."""
    return trees.answer(restored(row["source"], row["target"]))
