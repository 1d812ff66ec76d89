"""Layout of a batch in blocks, for sequences at different places of their current block.

A `BlockLayout` gives each sequence its own offset: its first new token comes after the cached tokens of its current
block. A `BlockSpan` is run through the layers at once: some blocks of the layout or, if all new tokens fall into one
block, those tokens alone.

Shapes: B sequences, S columns of a call, W tokens of a block, m blocks, n places of a span, Q queries of a block,
H heads, D head dim, E width.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..depth.packed_rows import sparing_pays
from ..ops.attention import KeyValue
from ..ops.graphs import in_graph
from ..ops.sharding import largest_over_ranks
from ..ops.token_order import tokens_first
from .packed_blocks import PackedBlocks


class BlockSpan(NamedTuple):
    """Consecutive blocks of every sequence; `num_cached` and `num_complete` are numbers if all sequences agree."""

    width: int  # W
    num_blocks: int  # m
    num_cached: torch.Tensor | int  # (B,) tokens of the first block that the cache holds
    num_complete: torch.Tensor | int  # (B,) blocks of the span that are complete after it
    places: torch.Tensor | None  # (B, Q) places in the block of queries that do not fill it, W without a token
    any_complete: list[bool]  # whether any sequence completes block j

    @property
    def uniform(self) -> bool:
        return isinstance(self.num_complete, int)

    def completed_by(self, block: int) -> torch.Tensor | None:
        """(B,) bool, sequences that complete a block, None if all do."""
        return None if self.uniform else self.num_complete > block

    @staticmethod
    def present(block: int) -> slice:
        """Sequences that go through a block: all."""
        return slice(None)

    completing = present

    def block_tokens(self, states: torch.Tensor, block: int) -> torch.Tensor:
        """The places of a block: (B, n, ...) -> (B, Q, ...)."""
        return states if self.num_blocks == 1 else states.unflatten(1, (self.num_blocks, -1))[:, block]

    def extend(
        self, new: torch.Tensor, past: dict[str, torch.Tensor], name: str
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Keys or values (B, (m + 1) W, H, D) of the previous block and the span, and those to be cached."""
        merged = self.insert_cached(new, past.get(name))
        tokens = torch.cat((past[f"previous_{name}"].to(merged.dtype), merged), dim=1)
        last, incomplete = self.last_blocks(tokens)
        cached = {f"previous_{name}": last}
        return tokens, cached if incomplete is None else {**cached, name: incomplete}

    def insert_cached(self, new: torch.Tensor, past: torch.Tensor | None) -> torch.Tensor:
        """All tokens of the span, those of its first block that are cached included: (B, mW, H, D).

        Args:
            new: (B, mW, H, D), or (B, Q, H, D) with `places`.
            past: (B, W, H, D) of the cached, incomplete block.
        """
        if self.places is not None:
            past = new.new_zeros(new.shape[0], self.width, *new.shape[2:]) if past is None else past
            if self.uniform:
                rest = self.width - self.num_cached - new.shape[1]
                parts = (past[:, : self.num_cached], new.to(past.dtype), past[:, self.width - rest :])
                return torch.cat(parts, dim=1)
            # padding is written to the place after the block, which is cut off
            padded = torch.cat((past, past[:, :1]), dim=1)
            index = self.places[..., None, None].expand_as(new)
            return padded.scatter(1, index, new.to(padded.dtype))[:, : self.width]
        if past is None or (self.uniform and self.num_cached == 0):
            return new
        num_cached = torch.as_tensor(self.num_cached, device=new.device).view(-1, 1)
        cached = torch.arange(self.width, device=new.device) < num_cached
        first = torch.where(cached[..., None, None], past.to(new.dtype), new[:, : self.width])
        return torch.cat((first, new[:, self.width :]), dim=1)

    def windows(self, states: torch.Tensor) -> torch.Tensor:
        """Each block with the one before it: (B, (m + 1) W, H, D) -> (B * m, 2W, H, D)."""
        if self.num_blocks == 1:
            return states
        blocks = states.unflatten(1, (-1, self.width))
        return torch.cat((blocks[:, :-1], blocks[:, 1:]), dim=2).flatten(0, 1)

    def window(self, states: KeyValue, block: int) -> KeyValue:
        """Keys and values that state vectors attend to at one block: (B, 2W, H, D) each."""
        start = block * self.width
        return KeyValue(*(tensor[:, start : start + 2 * self.width] for tensor in states))

    def split_blocks(self, states: torch.Tensor) -> torch.Tensor:
        """(B, n, H, D) -> (B * m, Q, H, D)."""
        return states if self.num_blocks == 1 else states.unflatten(1, (self.num_blocks, -1)).flatten(0, 1)

    def merge_blocks(self, states: torch.Tensor) -> torch.Tensor:
        """Inverse of `split_blocks`: (B * m, Q, H, D) -> (B, n, H, D)."""
        return states if self.num_blocks == 1 else states.unflatten(0, (-1, self.num_blocks)).flatten(1, 2)

    def query_bias(self, bias: torch.Tensor) -> torch.Tensor:
        """Bias of the present queries, (1 or B, ..., Q, ...), from that of a whole block's (1 or H, W, 1 or 2W)."""
        if self.places is None:
            return bias[None]
        if self.uniform:
            return bias[None, :, self.num_cached : self.num_cached + self.places.shape[1]]
        return bias[:, self.places.clamp_max(self.width - 1)].transpose(0, 1)

    def window_inputs(self, query: torch.Tensor, tokens: KeyValue, bias: torch.Tensor) -> list[tuple]:
        """Queries (B * m, Q, H, D), keys, values and bias of all blocks, from a block's bias (1 or H, W, 1 or 2W)."""
        return [(self.split_blocks(query), *map(self.windows, tokens), self.query_bias(bias))]

    def state_inputs(self, query: torch.Tensor, states: list[KeyValue]) -> list[tuple]:
        """Queries (B * m, Q, H, D) of all blocks, keys and values of the states before them."""
        if len(states) == 1:
            return [(self.split_blocks(query), *states[0])]
        by_block = (torch.stack(tensors, dim=1).flatten(0, 1) for tensors in zip(*states, strict=True))
        return [(self.split_blocks(query), *by_block)]

    def merge(self, groups: list[torch.Tensor]) -> torch.Tensor:
        """Inverse: (B * m, Q, H, D) -> (B, n, H, D)."""
        return self.merge_blocks(groups[0])

    def merge_weights(self, groups: list[torch.Tensor | None]) -> torch.Tensor | None:
        """(B * m, H, Q, K) -> (B, H, n, K)."""
        (weights,) = groups
        return None if weights is None else self.merge_blocks(weights.transpose(1, 2)).transpose(1, 2)

    def memory_inputs(self, block: int, states: tuple[torch.Tensor, ...]) -> list[tuple]:
        """All sequences, and the states (B, Q, H, D) of a block."""
        return [(slice(None), *(self.block_tokens(each, block) for each in states))]

    @staticmethod
    def merge_memory(block: int, groups: list[torch.Tensor]) -> torch.Tensor:
        """Inverse: (B, Q, H, D)."""
        return groups[0]

    def last_blocks(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The last complete block and the incomplete one, if any: (B, (m + 1) W, H, D) -> (B, W, H, D)."""
        blocks = states.unflatten(1, (-1, self.width))
        if self.uniform:
            last = blocks[:, self.num_complete : self.num_complete + 2]
            # a view would hold all blocks of a long call in memory
            last = last.clone() if self.num_blocks > 1 else last
            return last[:, 0], last[:, 1] if self.num_complete < self.num_blocks else None
        row = torch.arange(blocks.shape[0], device=states.device)
        return blocks[row, self.num_complete], blocks[row, (self.num_complete + 1).clamp_max(self.num_blocks)]

    def single_block(self, block: int) -> "BlockSpan":
        """The span of one block."""
        any_complete = [self.any_complete[block]]
        if self.uniform:
            num_cached = self.num_cached if block == 0 else 0
            return BlockSpan(self.width, 1, num_cached, int(self.num_complete > block), None, any_complete)
        # the cached tokens of a sequence without tokens in the block stay as they are
        has_tokens = self.num_complete >= block
        num_cached = self.num_cached if block == 0 else torch.where(has_tokens, 0, self.width)
        return BlockSpan(self.width, 1, num_cached, (self.num_complete > block).long(), None, any_complete)


class BlockLayout(NamedTuple):
    """A call's tokens in blocks."""

    span: BlockSpan
    num_tokens_in_block: torch.Tensor  # (B,) tokens of the incomplete block after the call
    column_of_place: torch.Tensor | None  # (B, n), None if columns are in order
    place_of_column: torch.Tensor | None  # (B, S)
    padding: tuple[int, int]  # places before and after the columns, if they are in order

    def to_places(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, S, E) -> (B, n, E); places without a token hold arbitrary states, which are masked."""
        if self.column_of_place is not None:
            return hidden.gather(1, self.column_of_place[..., None].expand(-1, -1, hidden.shape[-1]))
        return nn.functional.pad(hidden, (0, 0, *self.padding)) if any(self.padding) else hidden

    def to_columns(self, states: torch.Tensor) -> torch.Tensor:
        """(B, n, ...) -> (B, S, ...)."""
        if self.place_of_column is not None:
            index = self.place_of_column.view(*self.place_of_column.shape, *[1] * (states.dim() - 2))
            return states.gather(1, index.expand(-1, -1, *states.shape[2:]))
        before, after = self.padding
        return states[:, before : states.shape[1] - after]

    @staticmethod
    def restore(past: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors (B, ...) in the batch's order, in which they are."""
        return past

    @classmethod
    def from_mask(
        cls,
        mask: torch.Tensor,
        num_cached: torch.Tensor | None,
        width: int,
        packable_size: int | None = None,
        sharded: bool = False,
    ) -> "BlockLayout | PackedBlocks":
        """The layout of the tokens of (B, S), after the `num_cached` (B,) tokens of each sequence's current block.

        Args:
            packable_size: width E of the states, if tokens may be packed where that pays.
            sharded: whether all ranks must run the same number of blocks.
        """
        counts = mask.sum(-1)
        may_pack = num_cached is None and packable_size is not None
        num_cached = torch.zeros_like(counts) if num_cached is None else num_cached
        batch_size, length = mask.shape
        if in_graph():
            return cls.varying(mask, num_cached, counts, width, (2 * width - 2 + length) // width, False)
        known = torch.stack((num_cached, counts)).tolist()
        (first, *others), (count, *_) = known
        totals = [sum(pair) for pair in zip(*known, strict=True)]
        num_own = num_blocks = max(1, -(-max(totals) // width))
        if sharded:
            num_blocks = largest_over_ranks(num_own, mask.device)
        aligned = num_blocks == num_own and count == length and all(other == first for other in others)
        uniform = aligned and totals == [first + length] * batch_size
        if may_pack:
            places = batch_size * (max(totals) if num_blocks == 1 else num_blocks * width)
            if sparing_pays(places, sum(totals), packable_size):
                return PackedBlocks.from_mask(mask, totals, width)
        if uniform:
            return cls.uniform(mask, first, num_blocks, width)
        any_complete = [max(totals) >= (block + 1) * width for block in range(num_blocks)]
        layout = cls.varying(mask, num_cached, counts, width, num_blocks, num_blocks == 1, max(known[1]))
        return layout._replace(span=layout.span._replace(any_complete=any_complete))

    @classmethod
    def uniform(cls, mask: torch.Tensor, num_cached: int, num_blocks: int, width: int) -> "BlockLayout":
        """The layout of sequences without padding, whose current blocks hold equally many tokens."""
        batch_size, length = mask.shape
        total = num_cached + length
        num_complete = total // width
        any_complete = [block < num_complete for block in range(num_blocks)]
        tokens_only = num_blocks == 1 and length < width
        places = torch.arange(num_cached, total, device=mask.device).expand(batch_size, -1) if tokens_only else None
        padding = (0, 0) if tokens_only else (num_cached, num_blocks * width - total)
        num_tokens_in_block = torch.full((batch_size,), total % width, device=mask.device)
        span = BlockSpan(width, num_blocks, num_cached, num_complete, places, any_complete)
        return cls(span, num_tokens_in_block, None, None, padding)

    @classmethod
    def varying(
        cls,
        mask: torch.Tensor,
        num_cached: torch.Tensor,
        counts: torch.Tensor,
        width: int,
        num_blocks: int,
        tokens_only: bool,
        max_count: int = 0,
    ) -> "BlockLayout":
        """The layout of sequences with padding or with different offsets."""
        total = num_cached + counts
        order, _ = tokens_first(mask)
        rank = (mask.long().cumsum(-1) - 1).clamp_min(0)
        if tokens_only:
            number = torch.arange(max(max_count, 1), device=mask.device).expand(mask.shape[0], -1)
            places = torch.where(number < counts[:, None], num_cached[:, None] + number, width)
            place_of_column = rank
        else:
            number = torch.arange(num_blocks * width, device=mask.device) - num_cached[:, None]
            places, place_of_column = None, rank + num_cached[:, None]
        column_of_place = order.gather(1, number.clamp(0, mask.shape[1] - 1))
        span = BlockSpan(width, num_blocks, num_cached, total // width, places, [True] * num_blocks)
        return cls(span, total % width, column_of_place, place_of_column, (0, 0))
