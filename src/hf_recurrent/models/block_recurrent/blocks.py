"""The blocks of a call: which tokens are computed, which keys they see, and which sequences complete a block.

A sequence has c cached tokens in its current block, of W tokens, and n new ones. Here W = 4, `p` is the last complete
block, `c` a cached and `n` a new token:

    sequence 0    p p p p | c n n n | n n n n | n n
    sequence 1    p p p p | c c c n | n
                    block:   0         1         2

Tokens are computed in one row (N, ...), block after block, in each block sequence after sequence. A *piece* is what is
new of one sequence in one block; its keys are the W places before its first token and its own. Sequences that go
through a block, and those that complete it, are the first ones of the batch. Two classes hold this for the layers:

- `RegularBlocks`: no padding, and all sequences at the same place. Keys are slices.
- `RaggedBlocks`: everything else. Keys are found by index. Padding is left out, if nothing needs it.

Shapes: B sequences, S columns of a call, N tokens, W tokens of a block, m blocks, P pieces of at most Q tokens,
H heads, D head dim, E width. "States" of tokens may have any further dimensions.
"""

import torch

from ..depth.cache import Tensors
from ..depth.layouts import packing_pays
from ..ops.graphs import in_graph
from ..ops.positions import tokens_first
from ..ops.row_groups import GroupedRows, RowGroup, similar_rows
from ..ops.sharding import largest_over_ranks


class RegularBlocks:
    """Sequences without padding at one place of their block, whose tokens fill whole blocks or end within the first.

    Attributes:
        present, complete: number of sequences that go through each block, and that complete it.
        completing: for each block (`complete`,) bool, those of these sequences that complete it; None if all do.
        starts: index of each block's first token, and N.
        grouped: the tokens in groups of pieces whose attention is computed at once; their context is the numbers (r,)
            among the P pieces and the index of their keys.
        order, rank: number in the batch of each sequence here, and back; None if they are the same.
    """

    order = rank = None

    def __init__(self, width: int, batch_size: int, num_cached: int, length: int, device: torch.device):
        self.width, self.batch_size, self.num_cached = width, batch_size, num_cached
        self.num_blocks = max(1, length // width)
        self.length = length // self.num_blocks
        self.present = [batch_size] * self.num_blocks
        self.complete = [batch_size * (num_cached + self.length == width)] * self.num_blocks
        self.completing = [None] * self.num_blocks
        self.starts = range(0, batch_size * length + 1, batch_size * self.length)
        rows = torch.arange(batch_size * length, device=device).unflatten(0, (-1, self.length))
        self.grouped = GroupedRows((RowGroup(rows, (slice(None), None)),), None)
        self.num_tokens_in_block = torch.full((batch_size,), (num_cached + length) % width, device=device)

    def to_tokens(self, columns: torch.Tensor) -> torch.Tensor:
        """(B, S, ...) -> (N, ...)."""
        return columns.unflatten(1, (self.num_blocks, -1)).transpose(0, 1).flatten(0, 2)

    def to_columns(self, tokens: torch.Tensor) -> torch.Tensor:
        """(N, ...) -> (B, S, ...); padding has the states of any token."""
        return tokens.unflatten(0, (self.num_blocks, self.batch_size, -1)).transpose(0, 1).flatten(1, 2)

    def part(self, block: int) -> "RegularBlocks":
        """One of the blocks."""
        device = self.num_tokens_in_block.device
        return self if self.num_blocks == 1 else RegularBlocks(self.width, self.batch_size, 0, self.width, device)

    def extend(self, new: torch.Tensor, past: Tensors, name: str) -> tuple[torch.Tensor, Tensors]:
        """New keys or values (N, H, D) with earlier ones, for `windows` and `window`, and those to be cached."""
        new, previous = new.unflatten(0, (-1, self.length)), past[f"previous_{name}"].to(new.dtype)
        if self.num_cached:
            new = torch.cat((past[name][:, : self.num_cached].to(new.dtype), new), dim=1)
        several = self.num_blocks > 1
        before = torch.cat((previous, new[: -self.batch_size])) if several else previous
        tokens = torch.cat((before, new), dim=1)
        if self.complete[0]:
            # a view would hold all blocks of a long call in memory
            return tokens, {f"previous_{name}": new[-self.batch_size :].clone() if several else new}
        rest = past.get(name, previous)[:, new.shape[1] :].to(new.dtype)
        return tokens, {f"previous_{name}": previous, name: torch.cat((new, rest), dim=1)}

    def windows(self, tokens: torch.Tensor, group: RowGroup) -> torch.Tensor:
        """Keys or values (r, W + Q, H, D) of a group of pieces."""
        return tokens[:, self.num_cached :]

    def window(self, tokens: torch.Tensor, block: int) -> torch.Tensor:
        """Keys or values (`complete`, 2W, H, D) of a block and of the one before it."""
        return tokens[block * self.batch_size : (block + 1) * self.batch_size]


class RaggedBlocks:
    """Sequences at different places of their blocks, or with padding.

    Args:
        cached, totals: (B,) tokens of the first block that are cached, and all tokens from its beginning on.
        starts: without padding, index of the first token of each block, and N.
        num_queries: places of every piece, padding included: W, of all the block, or as many from the first new token
            on. None without padding, where the last sequences need not go through all blocks.
    """

    def __init__(
        self,
        width: int,
        cached: torch.Tensor,
        totals: torch.Tensor,
        present: list[int],
        complete: list[int],
        starts: list[int] | None = None,
        num_queries: int | None = None,
    ):
        self.width, self.cached, self.totals, self.num_queries = width, cached, totals, num_queries
        self.present, self.complete, self.num_blocks = present, complete, len(present)
        self.batch_size, device = cached.shape[0], cached.device
        self.num_tokens_in_block = totals % width
        self.sequence = torch.cat([torch.arange(number, device=device) for number in present])
        block = torch.cat([torch.full((number,), j, device=device) for j, number in enumerate(present)])
        begin = block * width
        self.first_place = begin if num_queries == width else torch.maximum(begin, cached[self.sequence])
        pieces = torch.arange(block.shape[0], device=device)
        if num_queries is None:
            counts = torch.minimum(begin + width, totals[self.sequence]) - self.first_place
            self.first, self.starts = counts.cumsum(0) - counts, starts
            # of each token (N,)
            self.piece = pieces.repeat_interleave(counts, output_size=starts[-1])
        else:
            self.first, self.piece = pieces * num_queries, pieces.repeat_interleave(num_queries)
            self.starts = [j * self.batch_size * num_queries for j in range(self.num_blocks + 1)]
        # index of a token behind the keys of the previous blocks, less its place, for each block and sequence
        shift = self.first - self.first_place + self.batch_size * width
        place = block * self.batch_size + self.sequence
        self.shift = shift.new_zeros(self.num_blocks * self.batch_size).index_copy(0, place, shift)
        if num_queries is None:
            self.completing: list[torch.Tensor | None] = [None] * self.num_blocks
            # of similarly many tokens
            self.grouped = GroupedRows.of_rows(self.first, counts, self.piece, similar_rows(counts), self.group)
        else:
            self.completing = [totals >= (number + 1) * width for number in range(self.num_blocks)]
            rows = self.range(0, self.starts[-1]).unflatten(0, (-1, num_queries))
            self.grouped = GroupedRows((self.group(rows, slice(None)),), None)
        self._parts: dict[int, RaggedBlocks] = {}
        self._windows: dict[int, torch.Tensor] = {}  # index of the keys of each block and of the one before it
        # index (B, W) of the places of each sequence's last complete block, and of the incomplete one
        sequence = self.range(0, self.batch_size)[:, None]
        begin = (totals // width * width)[:, None]
        both = self.index(sequence, begin + self.range(-width, width))
        self.last_blocks = [part.contiguous() for part in both.chunk(2, dim=1)]

    def index(self, sequence: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """Index in `extend` of places of sequences, counted from the first block on: W before it, -W to -1.

        Places after the last token have any index.
        """
        size = self.batch_size * self.width
        end = size + self.starts[-1]
        block = (place // self.width).clamp(0, self.num_blocks - 1)
        new = (self.shift[block * self.batch_size + sequence] + place).clamp(size, end - 1)
        earlier = sequence * self.width + place + torch.where(place < 0, self.width, end)
        return torch.where(place < self.cached[sequence], earlier, new)

    def range(self, start: int, stop: int) -> torch.Tensor:
        return torch.arange(start, stop, device=self.cached.device)

    def group(self, tokens: torch.Tensor, pieces: torch.Tensor | slice) -> RowGroup:
        """The pieces with these tokens (r, Q)."""
        place = self.first_place[pieces, None] + self.range(-self.width, tokens.shape[1])
        return RowGroup(tokens, (pieces, self.index(self.sequence[pieces, None], place)))

    def lay_out(self, mask: torch.Tensor, order: torch.Tensor | None) -> "RaggedBlocks":
        """Find the tokens of (B, S), of which sequence b is `order[b]`."""
        columns, place = tokens_first(mask)
        own = self.range(0, self.batch_size)
        self.order, self.rank = order, None if order is None else order.argsort()
        sequence, here = self.sequence[self.piece], (own if order is None else self.rank)[:, None]
        row = sequence if order is None else order[sequence]
        number = self.range(0, self.starts[-1]) - (self.first - self.first_place)[self.piece] - self.cached[sequence]
        self.columns = row * mask.shape[1] + columns[row, number.clamp(0, mask.shape[1] - 1)]
        # behind the keys of the previous blocks
        self.tokens = self.index(here, place + self.cached[here]) - self.batch_size * self.width
        self.num_tokens_in_block = self.num_tokens_in_block[here[:, 0]]
        return self

    def to_tokens(self, columns: torch.Tensor) -> torch.Tensor:
        return columns.flatten(0, 1).index_select(0, self.columns)

    def to_columns(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.index_select(0, self.tokens.flatten()).unflatten(0, self.tokens.shape)

    def part(self, block: int) -> "RaggedBlocks":
        """One of the blocks; sequences that do not go through it keep the tokens that they have cached."""
        if self.num_blocks == 1:
            return self
        if block not in self._parts:
            totals = self.totals - block * self.width
            left = totals <= 0
            totals = torch.where(left, self.totals % self.width, totals.clamp_max(self.width))
            cached = torch.where(left, totals, self.cached if block == 0 else 0)
            shape = ([self.present[block]], [self.complete[block]], [0, self.starts[block + 1] - self.starts[block]])
            self._parts[block] = RaggedBlocks(self.width, cached, totals, *shape, self.num_queries)
        return self._parts[block]

    def extend(self, new: torch.Tensor, past: Tensors, name: str) -> tuple[torch.Tensor, Tensors]:
        previous = past[f"previous_{name}"].to(new.dtype)
        earlier = [past[name].to(new.dtype).flatten(0, 1)] if name in past else []
        tokens = torch.cat((previous.flatten(0, 1), new, *earlier))
        complete, incomplete = self.last_blocks
        cached = {f"previous_{name}": take(tokens, complete) if self.complete[0] else previous}
        all_end_here = self.num_queries is None and self.complete[-1] == self.batch_size
        return tokens, cached if all_end_here else cached | {name: take(tokens, incomplete)}

    def windows(self, tokens: torch.Tensor, group: RowGroup) -> torch.Tensor:
        return take(tokens, group.context[1])

    def window(self, tokens: torch.Tensor, block: int) -> torch.Tensor:
        if block not in self._windows:
            places = block * self.width + self.range(-self.width, self.width)
            self._windows[block] = self.index(self.range(0, self.complete[block])[:, None], places)
        return take(tokens, self._windows[block])


def take(tokens: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`tokens[index]` of (K, H, D) and (r, n), several times as fast on a CPU."""
    return tokens.flatten(1).index_select(0, index.flatten()).view(*index.shape, *tokens.shape[1:])


Blocks = RegularBlocks | RaggedBlocks


def blocks_of_call(
    mask: torch.Tensor,
    num_cached: torch.Tensor | None,
    width: int,
    size: int,
    keep_all: bool = False,
    sharded: bool = False,
) -> Blocks:
    """The blocks of the tokens (B, S), after the `num_cached` (B,) tokens of each sequence's current block.

    Args:
        size: width E of the states, which says whether leaving out padding pays.
        keep_all: whether all places of all blocks are computed, as records need them.
        sharded: whether all ranks must run the same number of blocks.
    """
    batch_size, length = mask.shape
    counts = mask.sum(-1)
    cached = torch.zeros_like(counts) if num_cached is None else num_cached
    totals = cached + counts
    if in_graph():
        num_blocks = (2 * width - 2 + length) // width
        num_queries, complete = length if num_blocks == 1 else width, [batch_size] * num_blocks
    else:
        firsts, ends = torch.stack((cached, totals)).tolist()
        num_blocks = max(1, -(-max(ends) // width))
        if sharded:
            num_blocks = largest_over_ranks(num_blocks, mask.device)
        whole = ends[0] <= width or (firsts[0] == 0 and length % width == 0)
        aligned = firsts == firsts[:1] * batch_size and ends == [firsts[0] + length] * batch_size
        if whole and aligned and not keep_all and num_blocks == max(1, length // width):
            return RegularBlocks(width, batch_size, firsts[0], length, mask.device)
        longest = max(1, *(end - first for first, end in zip(firsts, ends, strict=True)))
        begins = range(0, num_blocks * width, width)
        pays = num_blocks > 1 or (num_cached is None and packing_pays(batch_size * longest, sum(ends), size))
        if pays and not (keep_all or sharded):
            order = totals.argsort(descending=True, stable=True)
            present = [sum(end > begin for end in ends) for begin in begins]
            complete = [sum(end >= begin + width for end in ends) for begin in begins]
            starts = [0, *(sum(min(end, begin + width) for end in ends) - sum(firsts) for begin in begins)]
            return RaggedBlocks(width, cached[order], totals[order], present, complete, starts).lay_out(mask, order)
        num_queries = longest if num_blocks == 1 and not keep_all else width
        complete = [batch_size * (max(ends) >= begin + width) for begin in begins]
    present = [batch_size] * num_blocks
    return RaggedBlocks(width, cached, totals, present, complete, None, num_queries).lay_out(mask, None)
