"""How rows are cut into chunks, and how what was computed chunk by chunk is put back in their order.

Shapes: B rows, S columns, R rows that have tokens in a chunk, N most tokens that a row has in it.
"""

from typing import NamedTuple

import torch

from .depth_loop import largest_over_ranks


class Chunk(NamedTuple):
    """The tokens that are read together."""

    index: int  # chunks before it, counted from the one that had begun
    rows: torch.Tensor | None  # (R,) rows that have tokens in it, None: all rows are kept
    columns: torch.Tensor  # (R, N) where each token stands in its row
    positions: torch.Tensor  # (R, N) of each token in its chunk; (1, N) where rows agree
    valid: torch.Tensor  # (R, N) bool, True at tokens
    full: bool  # every row has N tokens, as far as the host knows

    @property
    def mask(self) -> torch.Tensor:
        """`valid`, but never False for a whole row: a row of padding only would attend to nothing."""
        if self.full:
            return self.valid
        first = torch.arange(self.valid.shape[1], device=self.valid.device) == 0
        return self.valid | (first & ~self.valid.any(-1, keepdim=True))

    def select(self, states: torch.Tensor) -> torch.Tensor:
        """Of (B, ...), the rows of this chunk."""
        return states if self.rows is None else states.index_select(0, self.rows)

    def tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Of (B, S, E), the tokens of this chunk: (R, N, E)."""
        rows = self.select(states)
        return rows.gather(1, self.columns[..., None].expand(-1, -1, states.shape[-1]))

    def put(self, states: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """(B, ...) with the rows of this chunk replaced by (R, ...), where they have tokens in it."""
        if self.rows is not None:
            return states.index_copy(0, self.rows, new.to(states.dtype))
        if self.full:
            return new
        has_tokens = self.valid.any(-1).view(-1, *(1,) * (new.dim() - 1))
        return torch.where(has_tokens, new, states)


def chunk_size(config, width: int) -> int:
    """Most tokens of a chunk, for rows of `width` columns."""
    if config.chunking == "fixed":
        return config.chunk_size
    return -(-width // (config.num_chunks if config.chunking == "count" else -(-width // config.chunk_size)))


def cut(config, mask: torch.Tensor, fill: torch.Tensor | None, keep_rows: bool, sharded: bool) -> list[Chunk]:
    """Cut the tokens of (B, S), wherever their padding is.

    Args:
        fill: (B,) tokens that rows have read of their chunk already, None if none have.
        keep_rows: whether rows without tokens stay in the chunks.
        sharded: whether all ranks must take the same number of chunks.
    """
    (_, width), device = mask.shape, mask.device
    size = chunk_size(config, width)
    lengths = mask.sum(-1)
    sizes = (lengths + config.num_chunks - 1) // config.num_chunks if config.chunking == "count" else size
    offset = torch.zeros_like(lengths) if fill is None else fill
    # a short sequence has small chunks, and so may have more of them than the longest one
    num_chunks = min(config.num_chunks, width) if config.chunking == "count" else -(-width // size)
    num_chunks += fill is not None
    first = torch.arange(num_chunks, device=device)[:, None] * sizes - offset
    starts, ends = first.clamp_min(0), torch.minimum(lengths, first + sizes)
    counts = (ends - starts).clamp_min(0)  # (chunks, B)
    # a stable sort moves a row's tokens to the front in their order
    order = torch.argsort(mask.logical_not().to(torch.uint8), dim=-1, stable=True)
    traced = torch.compiler.is_compiling()
    known = [[0, size]] * num_chunks if traced else counts.tolist()
    last = max([0, *(i for i in range(num_chunks) if max(known[i]) > 0)])
    if sharded:
        last = largest_over_ranks(last, device)

    chunks = []
    for i in range(last + 1):
        most = max(known[i]) if i < num_chunks else 0
        # a piece of padding only still needs a chunk
        if most == 0 and last > 0 and not sharded:
            continue
        column = torch.arange(max(most, 1), device=device)
        here = counts[min(i, num_chunks - 1)] if i < num_chunks else torch.zeros_like(lengths)
        start = starts[min(i, num_chunks - 1)]
        chunk = Chunk(
            index=i,
            rows=None,
            columns=order.gather(1, (start[:, None] + column).clamp_max(width - 1)),
            positions=column[None] + (offset[:, None] if i == 0 and fill is not None else 0),
            valid=column < here[:, None],
            full=i < num_chunks and min(known[i]) == most > 0,
        )
        present = [row for row, count in enumerate(known[i]) if count] if i < num_chunks else []
        if not keep_rows and not traced and len(present) < len(lengths):
            chunk = without_empty_rows(chunk, torch.tensor(present, device=device), [known[i][row] for row in present])
        chunks.append(chunk)
    return chunks


def without_empty_rows(chunk: Chunk, rows: torch.Tensor, counts: list[int]) -> Chunk:
    shared = chunk.positions.shape[0] == 1
    return chunk._replace(
        rows=rows,
        columns=chunk.columns[rows],
        positions=chunk.positions if shared else chunk.positions[rows],
        valid=chunk.valid[rows],
        full=min(counts) == max(counts),
    )


def merge(
    chunks: list[Chunk], pieces: list[torch.Tensor], batch_size: int, length: int, fill: float = 0.0
) -> torch.Tensor:
    """Tokens back at their places: (R, N, ...) of each chunk -> (B, S, ...), `fill` elsewhere."""
    targets, device = [], pieces[0].device
    for chunk in chunks:
        row = torch.arange(batch_size, device=device) if chunk.rows is None else chunk.rows
        # one column more than the row has takes what belongs nowhere
        column = torch.where(chunk.valid, chunk.columns, length)
        targets.append((row[:, None] * (length + 1) + column).flatten())
    values = torch.cat([piece.flatten(0, 1) for piece in pieces])
    merged = values.new_full((batch_size * (length + 1), *values.shape[1:]), fill)
    return merged.index_copy(0, torch.cat(targets), values).unflatten(0, (batch_size, -1))[:, :length]


def merge_rows(chunks: list[Chunk], pieces: list[torch.Tensor], batch_size: int, fill: float) -> torch.Tensor:
    """One value a chunk, (R, ...) each -> (B, chunks, ...), `fill` where a row has no token."""
    columns = []
    for chunk, piece in zip(chunks, pieces, strict=True):
        empty = piece.new_full((batch_size, *piece.shape[1:]), fill)
        columns.append(chunk.put(empty, piece))
    return torch.stack(columns, dim=1)


def merge_attention(chunks: list[Chunk], pieces: list[torch.Tensor], batch_size: int, length: int) -> torch.Tensor:
    """Attention within chunks, (R, H, N, N) each -> (B, H, S, S), zero between tokens of different chunks."""
    wide = []
    for chunk, piece in zip(chunks, pieces, strict=True):
        keys = torch.where(chunk.valid, chunk.columns, length)[:, None, None].expand(*piece.shape[:3], -1)
        row = piece.new_zeros((*piece.shape[:3], length + 1)).scatter(3, keys, piece)
        wide.append(row[..., :length].transpose(1, 2))
    return merge(chunks, wide, batch_size, length).transpose(1, 2)
