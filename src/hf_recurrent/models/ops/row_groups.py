"""Packed tokens in rows, and rows in groups of similar lengths, whose attention is computed together.

Shapes: R rows, W columns, N packed tokens; a group has r rows of w places.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch

# rows of a group are attended to at the width of its longest; shorter ones than this share of it begin another group,
MAX_SHARE_OF_WIDTH = 0.75
# if that saves so many pairs of queries and keys at least, beside which a group's operations cost little
MIN_SAVED_PAIRS = 1 << 13
# of rows in any order: operations of a group cost as much as so many pairs,
PAIRS_PER_GROUP = 1 << 13
# those of a row as much as so many queries,
QUERIES_PER_ROW = 3
# and so many pieces of consecutive rows stay together or are parted
MAX_PIECES = 16


def place(
    packed: torch.Tensor,
    places: torch.Tensor | None,
    num_places: int,
    base: torch.Tensor | None = None,
    overwrite: bool = False,
) -> torch.Tensor:
    """Packed (N, ...) written at `places` (N,) over `base` or zeros; without `places` they fill all, in order.

    Args:
        overwrite: whether `base` itself may change, through which no gradient then flows.
    """
    if places is None:
        return packed
    if base is None:
        return packed.new_zeros((num_places, *packed.shape[1:])).index_copy_(0, places, packed)
    base = base.to(packed.dtype)
    return base.index_copy_(0, places, packed) if overwrite else base.index_copy(0, places, packed)


class Spread(NamedTuple):
    """Places of packed tokens (N,) in `num_rows` rows of one width, row-major; to the rows and back."""

    places: torch.Tensor
    num_rows: int
    width: int

    def unpack(self, packed: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
        """(N, ...) -> (num_rows, width, ...), over the base (num_rows * width, ...) or zeros."""
        rows = place(packed, self.places, self.num_rows * self.width, base)
        return rows.unflatten(0, (self.num_rows, self.width))

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """(num_rows, width, ...) -> (N, ...)."""
        return rows.flatten(0, 1).index_select(0, self.places)


class RowGroup(NamedTuple):
    """Rows whose attention is computed together."""

    tokens: torch.Tensor  # (r, w) index of the packed token at each place, at padding of another one
    context: Any  # attention mask, or other inputs of attention besides states
    # the rows and columns of a buffer (R, W, ...) that have the keys; None if keys are those of the same tokens
    keys: tuple[slice, slice] | None = None


@dataclass(frozen=True)
class GroupedRows:
    """All packed tokens in groups of rows."""

    groups: tuple[RowGroup, ...]
    places: torch.Tensor | None  # (N,) of the tokens among those of all groups; None if they fill all in order

    def spread(self, packed: torch.Tensor, group: RowGroup) -> torch.Tensor:
        """(N, ...) -> (r, w, ...), with any token's values at padding."""
        shape = group.tokens.shape
        return (packed if self.places is None else packed.index_select(0, group.tokens.flatten())).unflatten(0, shape)

    def gather(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """(r, w, ...) of each group -> (N, ...)."""
        flat = rows[0].flatten(0, 1) if len(rows) == 1 else torch.cat([each.flatten(0, 1) for each in rows])
        return flat if self.places is None else flat.index_select(0, self.places)

    @classmethod
    def of_rows(
        cls,
        first: torch.Tensor,
        counts: torch.Tensor,
        row: torch.Tensor,
        groups: Sequence[tuple[torch.Tensor, int]],
        complete: Callable[[torch.Tensor, torch.Tensor], RowGroup],
    ) -> "GroupedRows":
        """Groups of rows whose tokens are next to each other.

        Args:
            first, counts: (R,) index of each row's first token, and its number of tokens.
            row: (N,) of the tokens.
            groups: rows (r,) and width of each group.
            complete: function from the tokens (r, w) and rows (r,) of a group to it.
        """
        found, size, places = [], 0, torch.empty_like(first)
        for rows, width in groups:
            column = torch.arange(width, device=row.device)
            # at padding the row's last token; rows without tokens have any
            tokens = first[rows, None] + torch.minimum(column, counts[rows, None] - 1)
            found.append(complete(tokens.clamp_(0, row.shape[0] - 1), rows))
            places[rows] = torch.arange(size, size + tokens.numel(), width, device=row.device)
            size += tokens.numel()
        index = torch.arange(row.shape[0], device=row.device)
        places = places[row] + index - first[row]
        in_order = len(found) == 1 and len(places) == size and torch.equal(places, index)
        return cls(tuple(found), None if in_order else places)


def group_starts(widths: Sequence[int]) -> list[int]:
    """Indices of the rows that begin a group, of rows of these widths, the widest first."""
    starts, widest = [0], widths[0]
    for index, width in enumerate(widths):
        if width <= MAX_SHARE_OF_WIDTH * widest and (len(widths) - index) * (widest**2 - width**2) >= MIN_SAVED_PAIRS:
            starts.append(index)
            widest = width
    return starts


def row_ranges(queries: Sequence[int], keys: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of rows whose attention is best computed together, of rows with so many queries and keys, in any order.

    Rows without queries may be left out.
    """
    size = len(queries)
    stops = [*range(0, size, -(-size // MAX_PIECES)), size]
    pieces = [(max(queries[start:stop]), max(keys[start:stop])) for start, stop in pairwise(stops)]
    # least cost of the pieces before each, and the first piece of the group that ends there
    costs, starts = [0], [0]
    for end in range(1, len(stops)):
        best, first, most_queries, most_keys = math.inf, 0, 0, 0
        for piece in range(end - 1, -1, -1):
            num_queries, num_keys = pieces[piece]
            if num_queries > most_queries:
                most_queries = num_queries
            if num_keys > most_keys:
                most_keys = num_keys
            cost = costs[piece]
            if most_queries:
                rows = stops[end] - stops[piece]
                cost += PAIRS_PER_GROUP + rows * (most_queries + QUERIES_PER_ROW) * most_keys
            if cost < best:
                best, first = cost, piece
        costs.append(best)
        starts.append(first)
    ranges, end = [], len(pieces)
    while end > 0:
        first = starts[end]
        if any(count for count, _ in pieces[first:end]):
            ranges.append((stops[first], stops[end]))
        end = first
    return ranges[::-1]


def similar_rows(widths: torch.Tensor) -> list[tuple[torch.Tensor, int]]:
    """Groups of rows by their widths (R,): indices (r,), and the largest width."""
    # an accelerator takes no less time for small groups
    if widths.device.type != "cpu":
        return [(torch.arange(widths.shape[0], device=widths.device), max(1, int(widths.max())))]
    order = widths.argsort(descending=True, stable=True)
    falling = widths[order].tolist()
    starts = group_starts(falling)
    return [(rows, max(1, falling[start])) for rows, start in zip(order.tensor_split(starts[1:]), starts, strict=True)]


def grouped_rows(
    mask: torch.Tensor, places: torch.Tensor, context: Callable[[torch.Tensor, torch.Tensor], Any]
) -> GroupedRows:
    """Tokens at `places` (N,) of the mask (R, W) in groups of rows of similar lengths.

    Args:
        context: function from a group's mask (r, w), whose rows begin with their tokens, and its rows (r,).
    """
    lengths = mask.sum(-1)

    def complete(tokens: torch.Tensor, rows: torch.Tensor) -> RowGroup:
        seen = torch.arange(tokens.shape[1], device=rows.device) < lengths[rows, None]
        return RowGroup(tokens, context(seen, rows))

    first = lengths.cumsum(0) - lengths
    return GroupedRows.of_rows(first, lengths, places // mask.shape[1], similar_rows(lengths), complete)
