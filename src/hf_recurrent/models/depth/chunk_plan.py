"""Division of sequences into chunks, and merging of results that were computed chunk by chunk.

Shapes: B sequences, S columns, R sequences with tokens in a chunk, N maximum number of their tokens in it.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.graphs import in_graph
from ..ops.layers import where_rows
from ..ops.positions import tokens_first
from ..ops.sharding import largest_over_ranks


class Chunk(NamedTuple):
    """Tokens that run through depth together."""

    index: int  # from 0, the current chunk of the cache
    sequences: torch.Tensor | None  # (R,) sequences with tokens in it, None for all of the batch
    columns: torch.Tensor  # (R, N) column of each token in its sequence
    positions: torch.Tensor  # (R, N) position of each token in its chunk; (1, N) if all sequences agree
    valid: torch.Tensor  # (R, N) bool, True at tokens
    places: torch.Tensor  # (R, N) `positions` of tokens, and after the last position of a chunk for padding
    past_counts: torch.Tensor  # (R,) tokens of the chunk that are cached
    full: bool  # whether every sequence has N tokens, as far as the host knows

    @property
    def mask(self) -> torch.Tensor:
        """`valid`, but True at the first place of sequences without tokens, which would attend to nothing."""
        if self.full:
            return self.valid
        first = torch.arange(self.valid.shape[1], device=self.valid.device) == 0
        return self.valid | (first & ~self.valid.any(-1, keepdim=True))

    def select(self, states: torch.Tensor) -> torch.Tensor:
        """Select the sequences of this chunk: (B, ...) -> (R, ...)."""
        return states if self.sequences is None else states.index_select(0, self.sequences)

    def tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Select the tokens of this chunk: (B, S, E) -> (R, N, E)."""
        return self.select(states).gather(1, self.columns[..., None].expand(-1, -1, states.shape[-1]))

    def scatter(self, states: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Replace, in (B, ...), sequences with tokens in this chunk by those of (R, ...)."""
        if self.sequences is not None:
            return states.index_copy(0, self.sequences, new.to(states.dtype))
        if self.full:
            return new
        return where_rows(self.valid.any(-1), new, states)

    def spread_keys(self, weights: torch.Tensor, length: int) -> torch.Tensor:
        """Attention within the chunk, (R, H, N, N), to all columns: (R, H, N, S), zero at those of other chunks."""
        keys = torch.where(self.valid, self.columns, length)[:, None, None].expand(*weights.shape[:3], -1)
        return weights.new_zeros((*weights.shape[:3], length + 1)).scatter(3, keys, weights)[..., :length]


def chunk_size(config, width: int) -> int:
    """Maximum number of tokens of a chunk, for sequences of `width` columns."""
    if config.chunking == "fixed":
        return config.chunk_size
    return -(-width // (config.num_chunks if config.chunking == "count" else -(-width // config.chunk_size)))


def plan_chunks(config, mask: torch.Tensor, num_cached: torch.Tensor | None, sharded: bool) -> list[Chunk]:
    """Divide the tokens of (B, S), wherever their padding is, into chunks.

    Args:
        num_cached: (B,) cached tokens of the current chunks, None without a cache.
        sharded: whether all ranks must run the same number of chunks, which also hold sequences without tokens in them.
    """
    width, device, by_count = mask.shape[1], mask.device, config.chunking == "count"
    size, lengths = chunk_size(config, width), mask.sum(-1)
    sizes = (lengths + config.num_chunks - 1) // config.num_chunks if by_count else size
    offset = torch.zeros_like(lengths) if num_cached is None else num_cached
    # a short sequence has small chunks, and so may have more of them than the longest one
    num_chunks = (min(config.num_chunks, width) if by_count else -(-width // size)) + (0 if num_cached is None else 1)
    first = torch.arange(num_chunks, device=device)[:, None] * sizes - offset
    starts = first.clamp_min(0)
    counts = (torch.minimum(lengths, first + sizes) - starts).clamp_min(0)  # (chunks, B)
    traced = in_graph()
    known = [[0, min(size, width)]] * num_chunks if traced else counts.tolist()
    is_full = not traced and sum(map(sum, known)) == mask.numel()
    order = torch.arange(width, device=device).expand_as(mask) if is_full else tokens_first(mask)[0]
    last = max([0, *(i for i, here in enumerate(known) if max(here) > 0)])
    if sharded:
        last = largest_over_ranks(last, device)
        missing = max(0, last + 1 - num_chunks)
        starts, counts = (nn.functional.pad(each, (0, 0, 0, missing)) for each in (starts, counts))
        known += [[0] * len(lengths)] * missing

    chunks = []
    for i, here in enumerate(known[: last + 1]):
        # an input of padding only still needs a chunk
        if max(here) == 0 and last > 0 and not sharded:
            continue
        present, sequences = [number for number, count in enumerate(here) if count], None
        parts = order, starts[i], counts[i], offset
        if not (sharded or traced) and 0 < len(present) < len(here):
            sequences, here = torch.tensor(present, device=device), [here[number] for number in present]
            parts = tuple(part[sequences] for part in parts)
        tokens, start, count, before = parts
        column = torch.arange(max(1, *here), device=device)
        valid, positions = column < count[:, None], column[None]
        if i == 0 and num_cached is not None:
            positions = positions + before[:, None]
        chunk = Chunk(
            index=i,
            sequences=sequences,
            columns=tokens.gather(1, (start[:, None] + column).clamp_max(width - 1)),
            positions=positions,
            valid=valid,
            places=torch.where(valid, positions, size),
            past_counts=before if i == 0 else torch.zeros_like(before),
            full=min(here) == max(here) > 0,
        )
        chunks.append(chunk)
    return chunks


def merge(
    chunks: list[Chunk], pieces: list[torch.Tensor], batch_size: int, length: int, fill: float = 0.0
) -> torch.Tensor:
    """Values of tokens in their columns: (R, N, ...) of each chunk -> (B, S, ...), `fill` elsewhere."""
    if all(chunk.full and chunk.sequences is None for chunk in chunks):
        # without padding, chunks are consecutive columns
        merged = torch.cat(pieces, dim=1)
        if merged.shape[1] == length:
            return merged
    targets, device = [], pieces[0].device
    for chunk in chunks:
        sequence = torch.arange(batch_size, device=device) if chunk.sequences is None else chunk.sequences
        # padding goes to an additional column, which is cut off
        column = torch.where(chunk.valid, chunk.columns, length)
        targets.append((sequence[:, None] * (length + 1) + column).flatten())
    values = torch.cat([piece.flatten(0, 1) for piece in pieces])
    merged = values.new_full((batch_size * (length + 1), *values.shape[1:]), fill)
    return merged.index_copy(0, torch.cat(targets), values).unflatten(0, (batch_size, -1))[:, :length]


def merge_by_chunk(chunks: list[Chunk], pieces: list[torch.Tensor], batch_size: int, fill: float) -> torch.Tensor:
    """Values of sequences, (R, ...) for each chunk -> (B, chunks, ...), `fill` if a sequence has no tokens in it."""
    columns = []
    for chunk, piece in zip(chunks, pieces, strict=True):
        empty = piece.new_full((batch_size, *piece.shape[1:]), fill)
        columns.append(chunk.scatter(empty, piece))
    return torch.stack(columns, dim=1)
