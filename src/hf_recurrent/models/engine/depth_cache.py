"""The cache of models that run a whole sequence through depth at once; it grows with the context.

A forward pass works on a *view*, a draft of the cache, and commits it at its end, so that a pass that fails leaves the
cache unchanged. Shapes: B batch, P cached tokens, N new tokens, H heads, D head dim, F features of the halting head.
"""

from typing import NamedTuple

import torch
from transformers.cache_utils import DynamicLayer

from ..common.cache import RecurrentCache
from ..ops.attention import PastKeyValue

# running sums are cached for so many tokens, which limits how far a cache can be cropped
MAX_CACHED_SUMS = 128
# reallocated keys and values get this share of their length as additional space, so that copies become rare
GROWTH_FACTOR = 1 / 8


class GrowingBuffer:
    """A buffer for growing keys or values (B, H, P, D): returns views of its beginning, and appends after them.

    Appending does not change earlier views; who shortens one must clear the buffer.
    """

    def __init__(self):
        self.states: torch.Tensor | None = None  # (B, H, at least P, D)

    def extended(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Append (B, H, N, D) to (B, H, P, D), copied only if it is not in the buffer or fills it."""
        if new.dtype != old.dtype:
            return torch.cat((old.to(new.dtype), new), dim=2)
        past_length, length = old.shape[2], old.shape[2] + new.shape[2]
        if not self.holds(old) or self.states.shape[2] < length:
            self.states = old.new_empty(*old.shape[:2], length + int(length * GROWTH_FACTOR), old.shape[3])
            self.states[:, :, :past_length] = old
        self.states[:, :, past_length:length] = new
        return self.states[:, :, :length]

    def holds(self, old: torch.Tensor) -> bool:
        if self.states is None or self.states.is_inference() != torch.is_inference_mode_enabled():
            return False
        return self.states.data_ptr() == old.data_ptr() and self.states.shape[:2] == old.shape[:2]

    def clear(self) -> None:
        self.states = None


class GrowingKeyValue(PastKeyValue):
    """`PastKeyValue` that is extended in place, so that decoding does not copy cached tokens."""

    buffers: tuple[GrowingBuffer, GrowingBuffer]

    def extended(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        key_buffer, value_buffer = self.buffers
        return key_buffer.extended(self.key, key), value_buffer.extended(self.value, value)


class DepthLayer(DynamicLayer):
    """Keys and values (B, H, P, D) of one depth step, and running sums (B, at most MAX_CACHED_SUMS, F)."""

    required = ("keys", "values")

    def __init__(self):
        super().__init__()
        self.sums: torch.Tensor | None = None
        self.buffers = (GrowingBuffer(), GrowingBuffer())

    def past(self) -> PastKeyValue | None:
        if not self.get_seq_length():
            return None
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            # autograd may need the unchanged tensors
            return PastKeyValue(self.keys, self.values)
        past = GrowingKeyValue(self.keys, self.values)
        past.buffers = self.buffers
        return past

    def append(self, key: torch.Tensor, value: torch.Tensor, sums: torch.Tensor | None) -> None:
        """Replace keys and values by extended ones, and add running sums (B, N, F)."""
        self.dtype, self.device = key.dtype, key.device
        self.keys, self.values, self.is_initialized = key, value, True
        if sums is not None:
            sums = sums if self.sums is None else torch.cat((self.sums, sums), dim=1)
            self.sums = sums[:, -MAX_CACHED_SUMS:]

    def detach(self) -> None:
        if self.is_initialized:
            self.keys, self.values = self.keys.detach(), self.values.detach()
            self.sums = None if self.sums is None else self.sums.detach()

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last `-tokens_to_remove` tokens.

        Raises:
            ValueError: more tokens than there are running sums.
        """
        remaining = self.get_seq_length() + tokens_to_remove
        if self.sums is not None and tokens_to_remove < 0:
            if remaining > 0 and self.sums.shape[1] <= -tokens_to_remove:
                raise ValueError(
                    f"crop({tokens_to_remove}): running sums are cached for the last {MAX_CACHED_SUMS} tokens only; "
                    "crop fewer, or read the shorter context again"
                )
            self.sums = self.sums[:, :tokens_to_remove] if remaining > 0 else None
        super().crop(tokens_to_remove)
        # tensors that were taken from the cache before would change with what is appended
        if tokens_to_remove:
            self.release_buffers()

    def reset(self) -> None:
        self.keys = self.values = self.sums = None
        self.is_initialized = False
        self.release_buffers()

    def release_buffers(self) -> None:
        for buffer in self.buffers:
            buffer.clear()

    def contents(self) -> dict[str, torch.Tensor]:
        """All tensors of the layer, to be saved."""
        tensors = {"keys": self.keys, "values": self.values, "sums": self.sums} if self.is_initialized else {}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def restore(self, contents: dict[str, torch.Tensor]) -> None:
        self.reset()
        if contents:
            self.append(contents["keys"], contents["values"], contents.get("sums"))

    def _apply(self, function) -> None:
        if self.is_initialized:
            self.keys, self.values = function(self.keys), function(self.values)
            self.sums = None if self.sums is None else function(self.sums)
            self.release_buffers()

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self._apply(lambda states: states.index_select(0, beam_idx.to(states.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._apply(lambda states: states.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._apply(lambda states: states[indices])


class DepthCache(RecurrentCache):
    """One layer for each of `depth` steps, with the keys and values of every token and, if halting depends on
    running means, the latest running sums; bytes grow with depth times context.
    """

    def __init__(self, depth: int, signature: str):
        super().__init__([DepthLayer() for _ in range(depth)], signature)

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def num_rows(self) -> int | None:
        return self.layers[0].keys.shape[0] if self.get_seq_length() else None


class DepthCacheView:
    """One forward pass's view of a `DepthCache`, step by step; the cache does not change before `commit`."""

    def __init__(self, cache: DepthCache, mask: torch.Tensor):
        """`mask` (B, P + N) covers the cached tokens and the new ones."""
        self.cache = cache
        self.depth = cache.depth
        self.past_counts = mask[:, : cache.get_seq_length()].sum(-1)  # (B,) tokens before the new ones
        self.extended: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.new_sums: dict[int, torch.Tensor] = {}  # by step; the first may decide nothing, and have none

    @property
    def num_written(self) -> int:
        """Steps whose keys and values have been written."""
        return len(self.extended)

    @property
    def num_written_sums(self) -> int:
        """The steps until the last whose sums have been written."""
        return max(self.new_sums, default=-1) + 1

    def past(self, step: int) -> PastKeyValue | None:
        return self.cache.layers[step].past()

    def context(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step, with the keys and values of earlier tokens."""
        return context._replace(past=self.past(step))

    def write(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        self.extended.append((key, value))

    def sums(self, step: int) -> torch.Tensor | None:
        """(B, F) sums over the cached tokens, None if there are none."""
        sums = self.cache.layers[step].sums
        return None if sums is None else sums[:, -1]

    def write_sums(self, step: int, sums: torch.Tensor) -> None:
        self.new_sums[step] = sums

    def commit(self) -> None:
        for step, (layer, extended) in enumerate(zip(self.cache.layers[: self.depth], self.extended, strict=True)):
            layer.append(*extended, self.new_sums.get(step))
