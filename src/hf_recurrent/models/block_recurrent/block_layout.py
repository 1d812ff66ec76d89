"""How rows that stand at different places of their blocks are laid out in blocks, and back.

A *canvas* gives each row its own phase: the row's first new token stands behind the tokens of its begun block that were
read before. A *stretch* is what is run through the layers at once: some blocks of the canvas or, where all new tokens
fall into one block, those tokens alone.

Shapes: B rows, S columns of a call, W tokens of a block, m blocks, Q queries of a block, H heads, D head dim.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.attention import KeyValue


class Stretch(NamedTuple):
    """Consecutive blocks of every row. Where rows agree, `before` and `ends` are plain numbers."""

    width: int  # W
    num_blocks: int  # m
    before: torch.Tensor | int  # (B,) tokens of the first block that were read before
    ends: torch.Tensor | int  # (B,) blocks that are complete after it
    places: torch.Tensor | None  # (B, Q) in their block, of queries that do not fill it; W where there is no token
    complete: list[bool]  # whether any row completes block j

    @property
    def uniform(self) -> bool:
        return isinstance(self.ends, int)

    def completed(self, block: int) -> torch.Tensor | None:
        """(B,) rows that complete a block, None if all do."""
        return None if self.uniform else self.ends > block

    def merged(self, new: torch.Tensor, past: torch.Tensor | None) -> torch.Tensor:
        """The tokens of the stretch, with those of its first block that were read before: -> (B, mW, H, D).

        Args:
            new: (B, mW, H, D), or (B, Q, H, D) where `places` says where they stand.
            past: (B, W, H, D) the block that had begun.
        """
        if self.places is not None:
            past = new.new_zeros(new.shape[0], self.width, *new.shape[2:]) if past is None else past
            if self.uniform:
                rest = self.width - self.before - new.shape[1]
                parts = (past[:, : self.before], new.to(past.dtype), past[:, self.width - rest :])
                return torch.cat(parts, dim=1)
            # the place behind the block is for what nobody reads
            room = torch.cat((past, past[:, :1]), dim=1)
            index = self.places[..., None, None].expand_as(new)
            return room.scatter(1, index, new.to(room.dtype))[:, : self.width]
        if past is None or (self.uniform and self.before == 0):
            return new
        before = torch.as_tensor(self.before, device=new.device).view(-1, 1)
        kept = torch.arange(self.width, device=new.device) < before
        first = torch.where(kept[..., None, None], past.to(new.dtype), new[:, : self.width])
        return torch.cat((first, new[:, self.width :]), dim=1)

    def windows(self, states: torch.Tensor) -> torch.Tensor:
        """The block before and each block: (B, (m + 1) W, H, D) -> (B * m, 2W, H, D)."""
        if self.num_blocks == 1:
            return states
        blocks = states.unflatten(1, (-1, self.width))
        return torch.cat((blocks[:, :-1], blocks[:, 1:]), dim=2).flatten(0, 1)

    def window(self, states: KeyValue, block: int) -> KeyValue:
        """What the states of a layer see at one block: (B, 2W, H, D) each."""
        begin = block * self.width
        return KeyValue(*(tensor[:, begin : begin + 2 * self.width] for tensor in states))

    def queries(self, states: torch.Tensor) -> torch.Tensor:
        """(B, n, H, D) -> (B * m, Q, H, D)."""
        return states if self.num_blocks == 1 else states.unflatten(1, (self.num_blocks, -1)).flatten(0, 1)

    def rows(self, states: torch.Tensor) -> torch.Tensor:
        """The inverse: (B * m, Q, H, D) -> (B, n, H, D)."""
        return states if self.num_blocks == 1 else states.unflatten(0, (-1, self.num_blocks)).flatten(1, 2)

    def bias(self, bias: torch.Tensor) -> torch.Tensor:
        """Of a whole block's queries (H, W, 2W), those there are: (1 or B, H, Q, 2W)."""
        if self.places is None:
            return bias[None]
        if self.uniform:
            return bias[None, :, self.before : self.before + self.places.shape[1]]
        return bias[:, self.places.clamp_max(self.width - 1)].transpose(0, 1)

    def last_blocks(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The last complete block and the one that has begun, if any: (B, (m + 1) W, H, D) -> (B, W, H, D)."""
        blocks = states.unflatten(1, (-1, self.width))
        if self.uniform:
            kept = blocks[:, self.ends : self.ends + 2]
            # a view would keep all blocks of a long call in memory
            kept = kept.clone() if self.num_blocks > 1 else kept
            return kept[:, 0], kept[:, 1] if self.ends < self.num_blocks else None
        row = torch.arange(blocks.shape[0], device=states.device)
        return blocks[row, self.ends], blocks[row, (self.ends + 1).clamp_max(self.num_blocks)]

    def of_block(self, block: int) -> "Stretch":
        """One block of it."""
        if self.uniform:
            ends = int(self.ends > block)
            return Stretch(self.width, 1, self.before if block == 0 else 0, ends, None, [self.complete[block]])
        # rows whose tokens have ended keep what they had
        gone_on = self.ends >= block
        before = self.before if block == 0 else torch.where(gone_on, 0, self.width)
        return Stretch(self.width, 1, before, (self.ends > block).long(), None, [self.complete[block]])


class Canvas(NamedTuple):
    """A call's tokens in blocks."""

    stretch: Stretch
    fill: torch.Tensor  # (B,) tokens of the begun block after the call
    spread_index: torch.Tensor | None  # (B, n) column of each place, None where columns are in order
    restore_index: torch.Tensor | None  # (B, S) place of each column
    padding: tuple[int, int]  # places before and behind the columns, where they are in order

    def spread(self, hidden: torch.Tensor) -> torch.Tensor:
        """(B, S, E) -> (B, n, E); what stands where there is no token is read by none."""
        if self.spread_index is not None:
            return hidden.gather(1, self.spread_index[..., None].expand(-1, -1, hidden.shape[-1]))
        return nn.functional.pad(hidden, (0, 0, *self.padding)) if any(self.padding) else hidden

    def restore(self, states: torch.Tensor) -> torch.Tensor:
        """(B, n, ...) -> (B, S, ...)."""
        if self.restore_index is not None:
            index = self.restore_index.view(*self.restore_index.shape, *[1] * (states.dim() - 2))
            return states.gather(1, index.expand(-1, -1, *states.shape[2:]))
        begin, behind = self.padding
        return states[:, begin : states.shape[1] - behind]

    @classmethod
    def of(cls, mask: torch.Tensor, fill: torch.Tensor | None, width: int) -> "Canvas":
        """Of the tokens of (B, S), whose rows have read `fill` (B,) tokens of the block that has begun."""
        counts = mask.sum(-1)
        fill = torch.zeros_like(counts) if fill is None else fill
        rows, length = mask.shape
        if torch.compiler.is_compiling():
            return cls.ragged(mask, fill, counts, width, (2 * width - 2 + length) // width, False)
        known = torch.stack((fill, counts)).tolist()
        (before, *others), (count, *_) = known
        totals = [sum(pair) for pair in zip(*known, strict=True)]
        num_blocks = max(1, -(-max(totals) // width))
        if count == length and all(other == before for other in others) and totals == [before + length] * rows:
            return cls.even(mask, before, num_blocks, width)
        complete = [max(totals) >= (block + 1) * width for block in range(num_blocks)]
        canvas = cls.ragged(mask, fill, counts, width, num_blocks, num_blocks == 1, max(known[1]))
        return canvas._replace(stretch=canvas.stretch._replace(complete=complete))

    @classmethod
    def even(cls, mask: torch.Tensor, before: int, num_blocks: int, width: int) -> "Canvas":
        """All rows have `before` tokens of a block behind them, and no padding."""
        rows, length = mask.shape
        total = before + length
        ends = total // width
        complete = [block < ends for block in range(num_blocks)]
        narrow = num_blocks == 1 and length < width
        places = torch.arange(before, total, device=mask.device).expand(rows, -1) if narrow else None
        padding = (0, 0) if narrow else (before, num_blocks * width - total)
        fill = torch.full((rows,), total % width, device=mask.device)
        return cls(Stretch(width, num_blocks, before, ends, places, complete), fill, None, None, padding)

    @classmethod
    def ragged(
        cls,
        mask: torch.Tensor,
        fill: torch.Tensor,
        counts: torch.Tensor,
        width: int,
        num_blocks: int,
        narrow: bool,
        most: int = 0,
    ) -> "Canvas":
        total = fill + counts
        # a stable sort moves a row's tokens to the front in their order
        order = torch.argsort((~mask).to(torch.uint8), dim=-1, stable=True)
        rank = (mask.long().cumsum(-1) - 1).clamp_min(0)
        if narrow:
            number = torch.arange(max(most, 1), device=mask.device).expand(mask.shape[0], -1)
            places = torch.where(number < counts[:, None], fill[:, None] + number, width)
            restore_index = rank
        else:
            number = torch.arange(num_blocks * width, device=mask.device) - fill[:, None]
            places, restore_index = None, rank + fill[:, None]
        spread_index = order.gather(1, number.clamp(0, mask.shape[1] - 1))
        ends = total // width
        stretch = Stretch(width, num_blocks, fill, ends, places, [True] * num_blocks)
        return cls(stretch, total % width, spread_index, restore_index, (0, 0))
