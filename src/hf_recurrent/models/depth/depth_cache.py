"""The cache of models that run a whole sequence through depth at once; it grows with the context.

A forward pass works on a *view*, a draft of the cache, and commits it at its end, so that a pass that fails leaves the
cache unchanged. Shapes: B batch, P cached tokens, N new tokens, H heads, D head dim, F features of the halting head.
"""

import copy
from typing import NamedTuple

import torch
from transformers.cache_utils import DynamicLayer

from ..ops.attention import PastKeyValue
from ..ops.graphs import in_graph
from ..ops.row_groups import place
from .cache import RecurrentCache

# running sums are cached for so many tokens, which limits how far a cache can be cropped
MAX_CACHED_SUMS = 128
# reallocated keys and values get this share of their length as additional space, so that copies become rare
GROWTH_FACTOR = 1 / 8
# from this share of rows on, attention over the keys of all takes less time than gathering those of some
MIN_SHARE_TO_SPREAD = 0.6


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


class GrowingKeyValue(NamedTuple):
    """`PastKeyValue` that is extended in place, so that decoding does not copy cached tokens.

    Buffers are a field: what places modules on devices, such as accelerate, makes tuples anew from their fields.
    """

    key: torch.Tensor
    value: torch.Tensor
    buffers: tuple[GrowingBuffer, GrowingBuffer]

    places = None
    of_batch = PastKeyValue.of_batch
    of_queries = PastKeyValue.of_queries
    without_padding_place = PastKeyValue.without_padding_place

    def extended(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        key_buffer, value_buffer = self.buffers
        return key_buffer.extended(self.key, key), value_buffer.extended(self.value, value)


class KeyValueOfRows(NamedTuple):
    """`PastKeyValue` of some rows (n,) of a batch.

    With `whole` its keys and values are those of the whole batch, because gathering them would take longer.
    """

    past: PastKeyValue | GrowingKeyValue
    rows: torch.Tensor
    whole: bool = False

    @property
    def num_rows(self) -> int:
        return self.past.key.shape[0]

    def extended(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the rows, or of the batch, extended by those of new tokens, (n, H, N, D) each."""
        extended = self.past.extended(*(place(states, self.rows, self.num_rows) for states in (key, value)))
        return extended if self.whole else tuple(states.index_select(0, self.rows) for states in extended)

    def of_batch(self, states: torch.Tensor) -> torch.Tensor:
        if not self.whole or states.shape[0] == 1:
            return states
        return place(states, self.rows, self.num_rows)

    def of_queries(self, states: torch.Tensor) -> torch.Tensor:
        return states.index_select(0, self.rows) if self.whole else states

    def without_padding_place(self, states: torch.Tensor) -> torch.Tensor:
        return states


class DepthLayer(DynamicLayer):
    """Keys and values (B, H, P, D) of one depth step, and running sums (B, P or at most `max_sums`, F)."""

    max_sums: int | None = MAX_CACHED_SUMS

    def __init__(self):
        super().__init__()
        self.sums: torch.Tensor | None = None
        self.buffers = (GrowingBuffer(), GrowingBuffer())

    def past(self) -> PastKeyValue | GrowingKeyValue | None:
        if not self.get_seq_length():
            return None
        if torch.is_grad_enabled() or in_graph():
            # autograd may need the unchanged tensors
            return PastKeyValue(self.keys, self.values)
        return GrowingKeyValue(self.keys, self.values, self.buffers)

    def append(self, key: torch.Tensor, value: torch.Tensor, sums: torch.Tensor | None) -> None:
        """Replace keys and values by extended ones, and add running sums (B, N, F)."""
        self.dtype, self.device = key.dtype, key.device
        self.keys, self.values, self.is_initialized = key, value, True
        if sums is not None:
            sums = sums if self.sums is None else torch.cat((self.sums, sums), dim=1)
            self.sums = sums if self.max_sums is None else sums[:, -self.max_sums :]

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

    Args:
        layers_per_step: of a step with several attentions; that of step t and layer l is at `t * layers_per_step + l`.
        outer_layers: of attentions before and after all steps, which come last.
    """

    def __init__(self, depth: int, signature: str, layers_per_step: int = 1, outer_layers: int = 0):
        super().__init__([DepthLayer() for _ in range(depth * layers_per_step + outer_layers)], signature)
        self.layers_per_step, self.outer_layers = layers_per_step, outer_layers

    @property
    def depth(self) -> int:
        return (len(self.layers) - self.outer_layers) // self.layers_per_step

    def view(self, mask: torch.Tensor) -> "DepthCacheView":
        """Of the steps, for a forward pass with this mask (B, P + N)."""
        return DepthCacheView(self, mask, self.layers[: self.depth * self.layers_per_step], self.layers_per_step)

    def outer_view(self, mask: torch.Tensor, start: int, stop: int) -> "DepthCacheView":
        """Of some of the outer layers, each of which is one step."""
        first = self.depth * self.layers_per_step
        return DepthCacheView(self, mask, self.layers[first + start : first + stop])

    @property
    def num_rows(self) -> int | None:
        return self.layers[0].keys.shape[0] if self.get_seq_length() else None

    def keep_for_crops(self) -> None:
        for layer in self.layers:
            layer.max_sums = None


class DepthCacheView:
    """One forward pass's view of a `DepthCache`, step by step; the cache does not change before `commit`.

    Args:
        mask: (B, P + N), covers the cached tokens and the new ones.
        layers: of the cache that are written.
        layers_per_step: of a step.

    Attributes:
        rows: (n,) of the batch that the view is of, None for all.
        num_columns: P + N
        num_new: N
    """

    def __init__(self, cache: DepthCache, mask: torch.Tensor, layers: list[DepthLayer], layers_per_step: int = 1):
        self.layers, self.layers_per_step = layers, layers_per_step
        self.depth = len(layers) // layers_per_step
        self.num_rows, self.num_columns = mask.shape
        self.num_new = self.num_columns - cache.get_seq_length()
        self.past_counts = mask[:, : cache.get_seq_length()].sum(-1)  # (B,) tokens before the new ones
        self.rows: torch.Tensor | None = None
        self.extended: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.new_sums: dict[int, torch.Tensor] = {}  # by step; the first may decide nothing, and have none

    def of_rows(self, index: torch.Tensor) -> "DepthCacheView":
        """A view of the rows at `index` (n,) among those of this one; both write to the same draft."""
        view = copy.copy(self)
        view.rows = index if self.rows is None else self.rows[index]
        view.past_counts = self.past_counts[index]
        return view

    @property
    def is_empty(self) -> bool:
        """Whether there are no earlier tokens."""
        return self.num_new == self.num_columns

    def of_packed(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step of packed tokens, without earlier ones."""
        return context

    @property
    def num_written(self) -> int:
        """Steps whose keys and values have been written."""
        return len(self.extended) // self.layers_per_step

    @property
    def num_written_sums(self) -> int:
        """The steps until the last whose sums have been written."""
        return max(self.new_sums, default=-1) + 1

    def layers_of(self, step: int) -> range:
        """Numbers of the layers of a step."""
        return range(step * self.layers_per_step, (step + 1) * self.layers_per_step)

    def by_layer(self, states: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Those of each layer of a step, which may be side by side, as those of further heads."""
        return states if isinstance(states, tuple) else states.chunk(self.layers_per_step, dim=1)

    def past(self, layer: int) -> PastKeyValue | GrowingKeyValue | KeyValueOfRows | None:
        past = self.layers[layer].past()
        return past if past is None or self.rows is None else KeyValueOfRows(past, self.rows)

    def context(self, context: NamedTuple, step: int) -> NamedTuple:
        """The context of a step, with the keys and values of earlier tokens."""
        if self.is_empty:
            return context
        pasts = [self.past(layer) for layer in self.layers_of(step)]
        spreads = self.rows is not None and getattr(context, "spreads_queries", False)
        if spreads and len(self.rows) > MIN_SHARE_TO_SPREAD * self.num_rows:
            pasts = [past._replace(whole=True) for past in pasts]
        return context._replace(past=pasts[0] if self.layers_per_step == 1 else tuple(pasts))

    def write(
        self, step: int, key: torch.Tensor | tuple[torch.Tensor, ...], value: torch.Tensor | tuple[torch.Tensor, ...]
    ) -> None:
        """Keys and values of the view's rows after a step, those of earlier tokens included."""
        for layer, *states in zip(self.layers_of(step), self.by_layer(key), self.by_layer(value), strict=True):
            self.write_layer(layer, *states)

    def write_layer(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        if self.rows is None:
            self.extended.append((key, value))
            return
        new = tuple(states[:, :, -self.num_new :] for states in (key, value))
        is_first = layer == len(self.extended)
        if is_first and key.shape[0] == self.num_rows:
            self.extended.append((key, value))
            return
        if is_first:
            past = self.layers[layer].past()
            whole = tuple(place(states, self.rows, self.num_rows) for states in new)
            self.extended.append(whole if past is None else past.extended(*whole))
            return
        for states, own in zip(self.extended[layer], new, strict=True):
            states[:, :, -self.num_new :].index_copy_(0, self.rows, own)

    def write_new(self, step: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keys and values (n, H, N, D) of the view's rows, those of new tokens alone."""
        for layer, *states in zip(self.layers_of(step), self.by_layer(key), self.by_layer(value), strict=True):
            past = self.past(layer) if self.rows is None else None
            self.write_layer(layer, *(states if past is None else past.extended(*states)))

    def newest(self, step: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Keys and values (n, H, N, D) of the view's rows after a step, of each of its layers."""
        pairs = ([states[:, :, -self.num_new :] for states in self.extended[layer]] for layer in self.layers_of(step))
        rows = (pair if self.rows is None else [states[self.rows] for states in pair] for pair in pairs)
        return tuple(zip(*rows, strict=True))

    def sums(self, step: int) -> torch.Tensor | None:
        """(n, F) sums over the cached tokens, None if there are none."""
        sums = self.layers[step].sums
        if sums is None:
            return None
        return sums[:, -1] if self.rows is None else sums[self.rows, -1]

    def write_sums(self, step: int, sums: torch.Tensor) -> None:
        if self.rows is None:
            self.new_sums[step] = sums
        elif step in self.new_sums:
            self.new_sums[step] = self.new_sums[step].index_copy(0, self.rows, sums)
        else:
            self.new_sums[step] = place(sums, self.rows, self.num_rows)

    def commit(self) -> None:
        for number, (layer, extended) in enumerate(zip(self.layers, self.extended, strict=True)):
            layer.append(*extended, self.new_sums.get(number))


def is_prefill(cache, mask: torch.Tensor) -> bool:
    """Whether several tokens are the first ones of a cache's view, so that they may be computed without padding."""
    if cache is None or torch.is_grad_enabled() or in_graph():
        return False
    return cache.is_empty and mask.shape[1] > 1
