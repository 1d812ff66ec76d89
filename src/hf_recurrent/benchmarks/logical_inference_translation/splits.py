"""Generated rows: those of logical inference, for the same parameters in the same order."""

from collections.abc import Iterator

from ..logical_inference import splits
from ..logical_inference.splits import plan, split_names
from ..sampling import Shard
from .pairs import translated

__all__ = ["plan", "rows", "split_names"]


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    return map(translated, splits.rows(shard))
