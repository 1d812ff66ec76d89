"""The cache of models that read chunk by chunk, of constant size.

Shapes: B sequences, N new tokens, C tokens a chunk, M memory slots, H heads, D head dim, E width, F features of the
halting head.
"""

import copy
from dataclasses import replace
from typing import NamedTuple

import torch

from ..ops.attention import KeyValue, PackedContext, PastKeyValue
from .cache import CountingLayer, RecurrentCache, TensorsLayer


class ChunkStateLayer(CountingLayer):
    """The recurrent state from chunk to chunk.

    `memory` (B, M, E); `outputs` (B, C + 1, E) final states of the current chunk, the last place for padding; `fill`
    (B,) number of tokens in the current chunk; `ragged` (B,) whether there is trailing padding, so that the last
    columns are not the last tokens. A complete chunk is written into the memory when the next token comes, so that it
    can still be cropped.
    """

    def __init__(self, part: str):
        super().__init__()
        self.part = part

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens.

        Raises:
            ValueError: tokens of a chunk that has been written into the memory.
        """
        if not tokens_to_remove or not self.tensors:
            return
        if self.tensors["ragged"].any():
            raise ValueError(
                f"crop({tokens_to_remove}): a sequence has trailing padding, so its last columns are not its last "
                "tokens; crop before reading padding, or read the shorter context again"
            )
        num_tokens = int(self.tensors["fill"].min())
        if num_tokens < -tokens_to_remove:
            raise ValueError(
                f"crop({tokens_to_remove}): a sequence has only {num_tokens} tokens in its current {self.part}, and "
                "earlier ones are merged into its memory or states; crop fewer, or copy.deepcopy the cache before "
                "going on"
            )
        self.tensors = {**self.tensors, "fill": self.tensors["fill"] + tokens_to_remove}
        self.length += tokens_to_remove


class ChunkCache(RecurrentCache):
    """Memory slots and the tokens of the current chunk; of constant size, however long the context.

    Layer 0 is the `ChunkStateLayer`. Each further one belongs to a depth step: `key` and `value` (B, H, C + 1, D) of
    the chunk, `memory_key` and `memory_value` (B, M, H, D), and `sums` (B, C + 1, F) if halting depends on running
    means.
    """

    # of a text that is read at once, in messages
    part = "chunk"

    def __init__(self, depth: int, signature: str):
        super().__init__([ChunkStateLayer(self.part), *(TensorsLayer() for _ in range(depth))], signature)

    @property
    def state(self) -> ChunkStateLayer:
        return self.layers[0]

    @property
    def depth(self) -> int:
        return len(self.layers) - 1

    @property
    def num_rows(self) -> int | None:
        return self.state.tensors["fill"].shape[0] if self.state.tensors else None


class ChunkCacheView:
    """One chunk's view of a draft of a `ChunkCache`, step by step.

    Args:
        windows: `tensors` of the cache's depth steps, replaced as they change.
        places: (n, N) of the new tokens in their chunk, C for padding.
        past_counts: (n,) cached tokens of the chunk.
        rows: (n,) of the batch that the view is of, None for all.
        is_empty: whether the chunk has no earlier tokens, as far as the host knows.
    """

    def __init__(
        self,
        windows: list[dict[str, torch.Tensor]],
        places: torch.Tensor,
        past_counts: torch.Tensor,
        rows: torch.Tensor | None = None,
        is_empty: bool = False,
    ):
        self.windows = windows
        self.places = places
        self.past_counts = past_counts
        self.depth = len(windows)
        self.rows, self.is_empty = rows, is_empty
        self.written: set[int] = set()
        self.written_sums: set[int] = set()

    def of_rows(self, index: torch.Tensor) -> "ChunkCacheView":
        """A view of the rows at `index` (n,) among those of this one; both write to the same draft."""
        view = copy.copy(self)
        view.rows = index if self.rows is None else self.rows[index]
        view.places, view.past_counts = self.places[index], self.past_counts[index]
        return view

    def of_packed(self, context: PackedContext, step: int) -> PackedContext:
        """The context of a step of packed tokens, without earlier ones, with the keys and values of the memory."""
        memory = self.memory(step)
        return context if memory is None else replace(context, memory=memory)

    @property
    def num_written(self) -> int:
        """Steps whose keys and values have been written."""
        return len(self.written)

    @property
    def num_written_sums(self) -> int:
        """The steps until the last whose sums have been written."""
        return max(self.written_sums, default=-1) + 1

    def selected(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view's rows of a tensor (B, ...)."""
        return tensor if self.rows is None else tensor.index_select(0, self.rows)

    def replaced(self, tensor: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """A tensor (B, ...) with `own` (n, ...) as the view's rows."""
        return own if self.rows is None else tensor.to(own.dtype).index_copy(0, self.rows, own)

    def past(self, step: int) -> PastKeyValue:
        window = self.windows[step]
        return PastKeyValue(self.selected(window["key"]), self.selected(window["value"]), self.places)

    def context(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step, with the keys and values of the chunk's earlier tokens and of the memory."""
        memory = self.memory(step)
        return context._replace(past=self.past(step), memory=context.memory if memory is None else memory)

    def memory(self, step: int) -> KeyValue | None:
        """Keys and values of the memory, None if steps share those of the first."""
        window = self.windows[step]
        if "memory_key" not in window:
            return None
        return KeyValue(self.selected(window["memory_key"]), self.selected(window["memory_value"]))

    def write(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values (n, H, C + 1, D) of the view's rows after a step."""
        window = self.windows[step]
        window |= {"key": self.replaced(window["key"], key), "value": self.replaced(window["value"], value)}
        self.written.add(step)

    def write_new(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values (n, H, N, D) of the view's rows, those of new tokens alone."""
        self.write(step, *self.past(step).extended(key, value))

    def sums(self, step: int) -> torch.Tensor | None:
        """(n, F) sums over the cached tokens of the chunk."""
        sums = self.windows[step].get("sums")
        if sums is None:
            return None
        sums = self.selected(sums)
        last = (self.past_counts - 1).clamp_min(0)[:, None, None].expand(-1, 1, sums.shape[-1])
        return torch.where(self.past_counts[:, None] > 0, sums.gather(1, last).squeeze(1), 0.0)

    def write_sums(self, step: int, sums: torch.Tensor) -> None:
        window = self.windows[step]
        number, _, chunk, _ = window["key"].shape
        old = window.get("sums")
        old = sums.new_zeros(number, chunk, sums.shape[-1]) if old is None else old
        own = self.selected(old).scatter(1, self.places[..., None].expand_as(sums), sums)
        window["sums"] = self.replaced(old, own)
        self.written_sums.add(step)
