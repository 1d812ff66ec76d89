"""A batch in blocks whose tokens are packed, so that nothing but attention is computed for padding.

Sequences are sorted, the longest first: those with tokens in a block are then the first ones of the batch, and those
that have ended leave the loop over blocks. Tokens are packed block after block, in each block sequence after sequence.

Shapes: B sequences, S columns of a call, N tokens, W tokens of a block, m blocks of the longest sequence, P blocks of
all sequences, r blocks of a group and w tokens of its longest, H heads, D head dim, E width.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from ..ops.attention import KeyValue
from ..ops.row_groups import GroupedRows, RowGroup, place, similar_rows
from ..ops.token_order import tokens_first


class PackedSpan:
    """Consecutive blocks of sorted sequences, none of which has cached tokens in the first block.

    Args:
        lengths: tokens of each sequence that has any, the longest first.
        width: W.
        batch_size: B, the number of sequences in cached tensors.
        device: of the tensors.
    """

    def __init__(self, lengths: Sequence[int], width: int, batch_size: int, device: torch.device):
        self.lengths, self.width, self.batch_size, self.device = lengths, width, batch_size, device
        self.num_blocks = -(-lengths[0] // width)
        starts = range(0, self.num_blocks * width, width)
        self.num_present = [sum(length > start for length in lengths) for start in starts]
        self.num_complete = [sum(length >= start + width for length in lengths) for start in starts]
        self.any_complete = [number > 0 for number in self.num_complete]

    @cached_property
    def counts(self) -> torch.Tensor:
        """Tokens (P,) of each block."""
        counts = [
            min(length - block * self.width, self.width)
            for block, present in enumerate(self.num_present)
            for length in self.lengths[:present]
        ]
        return torch.tensor(counts, device=self.device)

    @cached_property
    def first(self) -> torch.Tensor:
        """Index (P,) of each block's first token."""
        return self.counts.cumsum(0) - self.counts

    @cached_property
    def first_block(self) -> list[int]:
        """Number among the P of the first sequence's block, for each of the m."""
        return [sum(self.num_present[:block]) for block in range(self.num_blocks)]

    @cached_property
    def first_token(self) -> list[int]:
        """Index of the first token of each of the m blocks, and N."""
        return [sum(min(length, block * self.width) for length in self.lengths) for block in range(self.num_blocks + 1)]

    @cached_property
    def sequence(self) -> torch.Tensor:
        """Sequence (P,) of each block."""
        return torch.cat([torch.arange(present, device=self.device) for present in self.num_present])

    @cached_property
    def block_of_token(self) -> torch.Tensor:
        """(N,) among the P."""
        blocks = torch.arange(self.counts.shape[0], device=self.device)
        return blocks.repeat_interleave(self.counts, output_size=self.first_token[-1])

    @property
    def place_of_token(self) -> torch.Tensor:
        """(N,) among the tokens of its sequence."""
        before = torch.cat(
            [
                torch.full_like(self.places[:1], block * self.width).expand(present)
                for block, present in enumerate(self.num_present)
            ]
        )
        index = torch.arange(self.first_token[-1], device=self.device)
        return index + (before - self.first)[self.block_of_token]

    @cached_property
    def places(self) -> torch.Tensor:
        """Places (W,) of a block."""
        return torch.arange(self.width, device=self.device)

    @cached_property
    def own(self) -> torch.Tensor:
        """Index (P,) of each block's first token among the keys of `extend`, behind those of the previous blocks."""
        return self.first + self.batch_size * self.width

    @cached_property
    def previous(self) -> torch.Tensor:
        """Index (P,) likewise of the block before it."""
        cached = self.sequence[: self.num_present[0]] * self.width
        parts = zip(self.first_block, self.num_present[1:], strict=False)
        return torch.cat((cached, *(self.own[start : start + present] for start, present in parts)))

    @cached_property
    def grouped(self) -> GroupedRows:
        """Blocks in groups of similarly many tokens.

        The context of a group is its blocks (r,) among the P, and the index (r, W + w) of their keys among those of
        `extend`.
        """

        def complete(tokens: torch.Tensor, blocks: torch.Tensor) -> RowGroup:
            own = tokens + self.batch_size * self.width
            return RowGroup(tokens, (blocks, torch.cat((self.previous[blocks, None] + self.places, own), dim=1)))

        return GroupedRows.of_rows(self.first, self.counts, self.block_of_token, similar_rows(self.counts), complete)

    def present(self, block: int) -> slice:
        """Sequences with tokens in a block."""
        return slice(0, self.num_present[block])

    def completing(self, block: int) -> slice:
        """Sequences that complete a block."""
        return slice(0, self.num_complete[block])

    @staticmethod
    def completed_by(block: int) -> None:
        """All that are `completing` a block complete it."""

    def block_tokens(self, states: torch.Tensor, block: int) -> torch.Tensor:
        """The tokens of a block: (N, ...) -> (n, ...)."""
        return states[self.first_token[block] : self.first_token[block + 1]]

    def single_block(self, block: int) -> "PackedSpan":
        """The span of one block."""
        return self.single_blocks[block]

    @cached_property
    def single_blocks(self) -> list["PackedSpan"]:
        starts = range(0, self.num_blocks * self.width, self.width)
        lengths = [[min(length - start, self.width) for length in self.lengths if length > start] for start in starts]
        return [PackedSpan(few, self.width, self.batch_size, self.device) for few in lengths]

    @cached_property
    def last_complete(self) -> torch.Tensor:
        """Index (k, W) of the keys of `extend` that are in the last complete block of sequences that have one."""
        ends = [length // self.width - 1 for length in self.lengths[: self.num_complete[0]]]
        return self.keys_of(ends)

    @cached_property
    def last(self) -> torch.Tensor:
        """Index (k, W) likewise of the last block, at padding of any token."""
        return self.keys_of([(length - 1) // self.width for length in self.lengths])

    def keys_of(self, blocks: list[int]) -> torch.Tensor:
        """Index (k, W) of the keys of `extend` in one block of each of the first k sequences."""
        numbers = [self.first_block[block] + row for row, block in enumerate(blocks)]
        index = torch.tensor(numbers, dtype=torch.long, device=self.device)
        return self.own[index, None] + torch.minimum(self.places, self.counts[index, None] - 1)

    def extend(
        self, new: torch.Tensor, past: dict[str, torch.Tensor], name: str
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Keys or values (B * W + N, H, D) of the previous blocks and the span, and those to be cached."""
        previous = past[f"previous_{name}"].to(new.dtype)
        tokens = torch.cat((previous.flatten(0, 1), new))
        completing, present = self.num_complete[0], self.num_present[0]
        cached = {f"previous_{name}": torch.cat((tokens[self.last_complete], previous[completing:]))}
        if name in past or any(length % self.width for length in self.lengths):
            rest = past.get(name, previous)[present:].to(new.dtype)
            cached[name] = torch.cat((tokens[self.last], rest))
        return tokens, cached

    def window(self, tokens: KeyValue, block: int) -> KeyValue:
        """Keys and values (c, 2W, H, D) that the states of the sequences completing a block attend to."""
        start = self.first_block[block]
        blocks = slice(start, start + self.num_complete[block])
        index = torch.cat((self.previous[blocks, None] + self.places, self.own[blocks, None] + self.places), dim=1)
        return KeyValue(*(each[index] for each in tokens))

    def window_inputs(self, query: torch.Tensor, tokens: KeyValue, bias: torch.Tensor) -> list[tuple]:
        """Queries (r, w, H, D), keys, values and bias of each group of blocks, from a block's (1 or H, W, 1 or 2W)."""
        inputs = []
        for group in self.grouped.groups:
            _, index = group.context
            part = bias[None, :, : group.tokens.shape[1], : index.shape[1]]
            inputs.append((self.grouped.spread(query, group), *(each[index] for each in tokens), part))
        return inputs

    def state_inputs(self, query: torch.Tensor, states: list[KeyValue]) -> list[tuple]:
        """Queries (r, w, H, D) of each group of blocks, keys and values of the states before them."""
        by_block = [torch.cat(tensors) for tensors in zip(*states, strict=True)]
        return [
            (self.grouped.spread(query, group), *(each[group.context[0]] for each in by_block))
            for group in self.grouped.groups
        ]

    def merge(self, groups: list[torch.Tensor]) -> torch.Tensor:
        """Inverse: (r, w, H, D) of each group -> (N, H, D)."""
        return self.grouped.gather(groups)

    @staticmethod
    def merge_weights(groups: list[torch.Tensor | None]) -> None:
        """Attention weights of packed tokens are not kept."""

    def memory_inputs(self, block: int, states: tuple[torch.Tensor, ...]) -> list[tuple]:
        """Sequences (r,) of each group of a block, and their tokens' states (r, w, H, D)."""
        grouped = self.single_block(block).grouped
        parts = [self.block_tokens(each, block) for each in states]
        return [(group.context[0], *(grouped.spread(part, group) for part in parts)) for group in grouped.groups]

    def merge_memory(self, block: int, groups: list[torch.Tensor]) -> torch.Tensor:
        """Inverse: (r, w, H, D) of each group -> (n, H, D)."""
        return self.single_block(block).grouped.gather(groups)


class PackedBlocks(NamedTuple):
    """A call's tokens, packed."""

    span: PackedSpan
    num_tokens_in_block: torch.Tensor  # (B,) tokens of the incomplete block after the call
    columns: torch.Tensor  # (N,) of the tokens among those of all sequences
    rank: torch.Tensor  # (B,) place of each sequence among the sorted ones
    shape: torch.Size  # (B, S)

    @classmethod
    def from_mask(cls, mask: torch.Tensor, lengths: list[int], width: int) -> "PackedBlocks":
        """The layout of the tokens of (B, S), of which each sequence has so many."""
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        present = [lengths[row] for row in order if lengths[row] > 0]
        span = PackedSpan(present, width, len(lengths), mask.device)
        index = torch.tensor(order, device=mask.device)
        tokens, _ = tokens_first(mask)
        row = index[span.sequence[span.block_of_token]]
        columns = row * mask.shape[1] + tokens[row, span.place_of_token]
        return cls(span, mask.sum(-1) % width, columns, index.argsort(), mask.shape)

    def to_places(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, S, E) -> (N, E)."""
        return hidden.flatten(0, 1).index_select(0, self.columns)

    def to_columns(self, states: torch.Tensor) -> torch.Tensor:
        """(N, ...) -> (B, S, ...), with zeros at padding."""
        return place(states, self.columns, self.shape.numel()).unflatten(0, self.shape)

    def restore(self, past: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors (B, ...) of sorted sequences in the batch's order."""
        return {name: tensor.index_select(0, self.rank) for name, tensor in past.items()}
