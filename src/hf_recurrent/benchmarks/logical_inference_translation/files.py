"""Rows from the authors' files of logical inference, verified as there."""

from collections.abc import Iterator

from ..logical_inference import files
from ..logical_inference.files import paths, plan
from ..sampling import Shard
from .pairs import translated

__all__ = ["paths", "plan", "rows"]


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    return map(translated, files.rows(shard))
