"""The cache of models that read chunk by chunk, of constant size.

Shapes: B sequences, n of them, N new tokens, C tokens a chunk, M memory slots, H heads, D head dim, E width, F features
of the halting head.
"""

from dataclasses import replace
from typing import NamedTuple

import torch

from ..ops.attention import KeyValue, PackedContext
from .cache import CacheLayer, CacheView, PastKeyValue, RecurrentCache, Tensors
from .chunk_plan import Chunk


class ChunkCache(RecurrentCache):
    """Memory slots and the tokens of the current chunk; of constant size, however long the context.

    Layer 0 is the state from chunk to chunk: `memory` (B, M, E); `outputs` (B, C + 1, E) final states of the current
    chunk, the last place for padding; `fill` (B,) number of tokens in the current chunk; `ragged` (B,) whether there is
    trailing padding, so that the last columns are not the last tokens. A complete chunk is written into the memory when
    the next token comes, so that it can still be cropped.

    Each further layer belongs to a depth step: `key` and `value` (B, H, C + 1, D) of the chunk, `memory_key` and
    `memory_value` (B, M, H, D), and `sums` (B, C + 1, F) if halting depends on running means.
    """

    # of a text that is read at once, in messages
    part = "chunk"

    def __init__(self, depth: int, signature: str):
        super().__init__([CacheLayer() for _ in range(depth + 1)], depth, signature)

    @property
    def state(self) -> Tensors:
        """The state from chunk to chunk, nothing before the first token."""
        return self.layers[0].tensors

    def steps_view(self, counts: torch.Tensor, window: torch.Tensor | None) -> "ChunkCacheView":
        """A view of all steps; if the cache is empty, of `window` (B, H, C + 1, D) as keys and values.

        Args:
            counts: (B,) cached tokens of the chunk.
        """
        begin = {} if window is None else {"key": window, "value": window}
        return ChunkCacheView([{**begin, **layer.tensors} for layer in self.layers[1:]], counts, window is not None)

    def commit(
        self,
        state: Tensors,
        steps: list[Tensors],
        mask: torch.Tensor,
        start: torch.Tensor | None,
    ) -> None:
        """Replace the state and the steps' tensors by those after new columns (B, N), where `mask` is True at tokens.

        Args:
            start: (B,) sequences that forgot what was cached of them; None if none did.
        """
        ragged, before = ~mask[:, -1] & (state["fill"] > 0), self.state.get("ragged")
        if before is not None:
            ragged = ragged | (before if start is None else before & ~start)
        self.write([{**state, "ragged": ragged}, *steps], mask.shape[1])

    def forget(self, number: int) -> None:
        """Forget the last tokens.

        Raises:
            ValueError: tokens of a chunk that has been written into the memory.
        """
        if self.state["ragged"].any():
            raise ValueError(
                f"crop({-number}): a sequence has trailing padding, so its last columns are not its last tokens; crop "
                "before reading padding, or read the shorter context again"
            )
        num_tokens = int(self.state["fill"].min())
        if num_tokens < number:
            raise ValueError(
                f"crop({-number}): a sequence has only {num_tokens} tokens in its current {self.part}, and earlier "
                "ones are merged into its memory or states; crop fewer, or copy.deepcopy the cache before going on"
            )
        self.layers[0].replace({**self.state, "fill": self.state["fill"] - number})


class ChunkCacheView(CacheView):
    """A view of the depth steps of a `ChunkCache`, for one chunk after the other; places of padding are C."""

    def of_chunk(self, chunk: Chunk, is_empty: bool) -> "ChunkCacheView":
        """A view of a chunk, which writes to the same draft."""
        return ChunkCacheView(self.draft, chunk.past_counts, is_empty, chunk.sequences, chunk.places)

    def of_packed(self, context: PackedContext, step: int) -> PackedContext:
        """The context of a step of packed tokens, without earlier ones, with the keys and values of the memory."""
        memory = self.memory(step)
        return context if memory is None else replace(context, memory=memory)

    def past(self, step: int) -> PastKeyValue:
        window = self.draft[step]
        return PastKeyValue(self.selected(window["key"]), self.selected(window["value"]), self.places)

    def context(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step, with the keys and values of the chunk's earlier tokens and of the memory."""
        memory = self.memory(step)
        return context._replace(past=self.past(step), memory=context.memory if memory is None else memory)

    def memory(self, step: int) -> KeyValue | None:
        """Keys and values of the memory, None if steps share those of the first."""
        window = self.draft[step]
        if "memory_key" not in window:
            return None
        return KeyValue(self.selected(window["memory_key"]), self.selected(window["memory_value"]))

    def replaced(self, tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """A tensor (B, ...) with (n, ...) as the view's rows."""
        return new if self.rows is None else tensor.to(new.dtype).index_copy(0, self.rows, new)

    def write(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values (n, H, C + 1, D) of the view's rows after a step."""
        window, self.num_written = self.draft[step], step + 1
        window |= {"key": self.replaced(window["key"], key), "value": self.replaced(window["value"], value)}

    def write_new(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values (n, H, N, D) of the view's rows, those of new tokens alone."""
        self.write(step, *self.past(step).extended(key, value))

    def sums(self, step: int) -> torch.Tensor | None:
        """(n, F) sums over the cached tokens of the chunk."""
        sums = self.draft[step].get("sums")
        if sums is None:
            return None
        sums = self.selected(sums)
        last = (self.past_counts - 1).clamp_min(0)[:, None, None].expand(-1, 1, sums.shape[-1])
        return torch.where(self.past_counts[:, None] > 0, sums.gather(1, last).squeeze(1), 0.0)

    def write_sums(self, step: int, sums: torch.Tensor) -> None:
        """Sums (n, N, F) over each new token of the view's rows and those before it in the chunk."""
        window, self.num_written_sums = self.draft[step], step + 1
        number, _, chunk, _ = window["key"].shape
        old = window.get("sums")
        old = sums.new_zeros(number, chunk, sums.shape[-1]) if old is None else old
        new = self.selected(old).scatter(1, self.places[..., None].expand_as(sums), sums)
        window["sums"] = self.replaced(old, new)
