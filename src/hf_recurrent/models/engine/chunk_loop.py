"""The one loop over chunks: a memory carries each row from chunk to chunk (Algorithms 2 and 4).

Shapes: B rows, S tokens, R rows that have tokens in a chunk, N most tokens that a row has in it, C most tokens of a
chunk, M memory slots, E width.
"""

import torch
from torch import nn
from transformers.masking_utils import create_causal_mask

from ..ops.attention import (
    KeyValue,
    PaddedContext,
    Rotations,
    as_implemented,
    is_flash,
    key_mask,
    pack,
)
from ..ops.memory import MemoryRead, MemorySlots, MemoryUpdate
from ..ops.positions import xpos_rotations
from .base_model import BaseModel, ForwardCall, touch_all_parameters
from .chunk_cache import ChunkCache, ChunkCacheView
from .chunk_plan import Chunk, chunk_size, cut, merge, merge_attention, merge_rows
from .depth_loop import DepthOutput, is_sharded


class ChunkState:
    """Recurrent state from chunk to chunk, replaced as chunks are read; see `ChunkStateLayer`."""

    def __init__(self, memory: torch.Tensor, outputs: torch.Tensor, fill: torch.Tensor, windows: list[dict] | None):
        self.memory = memory  # (B, M, E)
        self.outputs = outputs  # (B, C + 1, E)
        self.fill = fill  # (B,)
        self.windows = windows  # tensors of each depth step where a cache is kept

    def append(self, chunk: Chunk, states: torch.Tensor) -> None:
        """Take the chunk's final states (R, N, E)."""
        places = self.places(chunk)
        outputs = chunk.select(self.outputs)
        outputs = outputs.scatter(1, places[..., None].expand_as(states), states.to(outputs.dtype))
        self.outputs = chunk.put(self.outputs, outputs)
        before = chunk.select(self.fill) if chunk.index == 0 else 0
        self.fill = chunk.put(self.fill, before + chunk.valid.sum(-1))

    def places(self, chunk: Chunk) -> torch.Tensor:
        """The place of each token in its chunk, after the last one for padding: (R, N)."""
        return torch.where(chunk.valid, chunk.positions, self.outputs.shape[1] - 1)


class ChunkRecurrentModel(BaseModel):
    """`encode` chunk by chunk, for families that define `run_chunk`, `memory_readers` and `cache_depth`."""

    def build_memory(self, config) -> None:
        self.memory = MemorySlots(config.num_memory_slots, config.hidden_size, config.memory_initializer_range)
        self.memory_layers = nn.ModuleList(MemoryUpdate(config, index) for index in range(config.num_memory_layers))
        self.memory_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def memory_readers(self) -> list[MemoryRead]:
        """The reader of each depth step, or the one that all share."""
        raise NotImplementedError

    def run_chunk(
        self,
        states: torch.Tensor,
        mask: torch.Tensor,
        context: PaddedContext,
        call: ForwardCall,
        cache: ChunkCacheView | None,
    ) -> DepthOutput:
        """Through depth: (R, N, E) states of one chunk, `context.memory` the slots to read."""
        raise NotImplementedError

    def new_cache(self, max_steps: int | None = None) -> ChunkCache:
        chunking = self.config.chunking
        if chunking != "fixed":
            raise ValueError(
                f"config field `chunking` is {chunking!r}: chunks then depend on tokens to come, so a row cannot be "
                "read in pieces; pass use_cache=False, or set it to 'fixed'"
            )
        return ChunkCache(self.cache_depth(max_steps), self.signature())

    def signature(self) -> str:
        config = self.config
        return f"{super().signature()[:-1]}, chunks of {config.chunk_size}, {config.num_memory_slots} memory slots)"

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        memory = self.memory_norm(depth.memory_states[-1])
        return memory.mean(1) if self.config.pooling == "mean" else memory[:, -1]

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        config, cache = self.config, call.cache
        batch_size, length = mask.shape
        sharded = is_sharded(self)
        state = self.begin(hidden, length, cache, call.start)
        chunks = cut(config, mask, None if cache is None else state.fill, sharded or cache is not None, sharded)
        memories, outputs = [], []
        for chunk in chunks:
            if chunk.index > 0:
                self.write(state, chunk)
            if call.record_states:
                memories.append(state.memory)
            states = chunk.tokens(hidden)
            view = None
            if cache is not None:
                before = state.fill if chunk.index == 0 else torch.zeros_like(state.fill)
                view = ChunkCacheView(state.windows, state.places(chunk), before)
            context = self.context(states, chunk, state, cached=view is not None)
            output = self.run_chunk(states, chunk.mask, context, call, view)
            state.append(chunk, output.hidden_states)
            outputs.append(output)
        if cache is not None:
            self.store(state, cache, mask, call.start)
        depth = self.collect(chunks, outputs, batch_size, length, cached=cache is not None)
        if call.pool or call.record_states:
            last = self.written(state.memory, state.outputs[:, :-1], state.fill)
            memory_states = memory_after_each(memories, last, chunks) if call.record_states else (last,)
            depth = depth._replace(memory_states=memory_states)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def begin(
        self, hidden: torch.Tensor, length: int, cache: ChunkCache | None, start: torch.Tensor | None
    ) -> ChunkState:
        """What a row has before its first token, or what the cache holds of earlier ones."""
        config, batch_size = self.config, hidden.shape[0]
        if cache is not None and cache.state.tensors:
            kept = (cache.state.tensors[name] for name in ("memory", "outputs", "fill"))
            state = ChunkState(*kept, windows=[dict(layer.tensors) for layer in cache.layers[1:]])
            return state if start is None else self.begin_again(state, start)
        size = chunk_size(config, length)
        memory = self.memory(batch_size).to(hidden.dtype)
        state = ChunkState(
            memory,
            hidden.new_zeros(batch_size, size + 1, config.hidden_size),
            torch.zeros(batch_size, dtype=torch.long, device=hidden.device),
            None,
        )
        if cache is not None:
            window = hidden.new_zeros(batch_size, config.num_attention_heads, size + 1, config.head_dim)
            state.windows = [{"key": window, "value": window} for _ in cache.layers[1:]]
            self.project_memory(state)
        return state

    def begin_again(self, state: ChunkState, start: torch.Tensor) -> ChunkState:
        """Rows of `start` (B,) have read nothing; what their windows hold is behind their fill, where none looks."""
        memory = self.memory(start.shape[0]).to(state.memory.dtype)
        state.memory = torch.where(start[:, None, None], memory, state.memory)
        state.fill = state.fill.masked_fill(start, 0)
        self.project_memory(state)
        return state

    def project_memory(self, state: ChunkState) -> None:
        """The memory stays as it is for a whole chunk, so what readers make of it is kept with it."""
        for reader, window in zip(self.memory_readers(), state.windows, strict=False):
            window["memory_key"], window["memory_value"] = reader.project(state.memory)

    def store(self, state: ChunkState, cache: ChunkCache, mask: torch.Tensor, start: torch.Tensor | None) -> None:
        layer = cache.state
        ended = ~mask[:, -1] & (state.fill > 0)
        ragged = layer.tensors.get("ragged", False)
        layer.tensors = {
            "memory": state.memory,
            "outputs": state.outputs,
            "fill": state.fill,
            "ragged": ended | (ragged if start is None else ragged & ~start),
        }
        layer.length += mask.shape[1]
        for layer, window in zip(cache.layers[1:], state.windows, strict=True):
            layer.tensors = window
        for layer in cache.layers:
            layer.is_initialized = True

    def write(self, state: ChunkState, chunk: Chunk) -> None:
        """Write the chunk before this one into the memory of the rows that go on."""
        memory, outputs, fill = (chunk.select(states) for states in (state.memory, state.outputs, state.fill))
        # a chunk is complete when the next one begins, but rows may have chunks of different sizes
        fill = fill if self.config.chunking == "count" else None
        state.memory = chunk.put(state.memory, self.written(memory, outputs[:, :-1], fill))
        if state.windows is not None:
            self.project_memory(state)

    def written(self, memory: torch.Tensor, states: torch.Tensor, fill: torch.Tensor | None) -> torch.Tensor:
        """Memory (R, M, E) after the first `fill` (R,) of states (R, C, E), or after all of them."""
        attention_mask = packing = None
        if fill is not None:
            # rows that have read nothing are left as they are by the caller
            mask = torch.arange(states.shape[1], device=fill.device) < fill.clamp_min(1)[:, None]
            if is_flash(self.config):
                packing = pack(torch.ones_like(memory[..., 0], dtype=torch.bool), mask)
            else:
                attention_mask = key_mask(self.config, states, mask)
        for layer in self.memory_layers:
            memory = layer(memory, states, attention_mask, packing)
        return memory

    def context(self, states: torch.Tensor, chunk: Chunk, state: ChunkState, cached: bool) -> PaddedContext:
        """Attention of the chunk to itself, to its cached tokens, and to the memory."""
        config = self.config
        center = (state.outputs.shape[1] - 1) // 2
        rotations = xpos_rotations(chunk.positions, config.head_dim, config.xpos_scale_base, center)
        context = PaddedContext(None, Rotations(*rotations), memory=chunk.select(state.memory))
        if cached:
            return self.cached_context(context, states, chunk, state)
        if config.is_causal:
            # rows begin at the first column, so what is padding comes after every token
            mask = create_causal_mask(config=config, inputs_embeds=states, attention_mask=None, past_key_values=None)
        else:
            mask = (
                None if chunk.full and config._attn_implementation != "eager" else key_mask(config, states, chunk.mask)
            )
        return context._replace(attention_mask=mask)

    def cached_context(
        self, context: PaddedContext, states: torch.Tensor, chunk: Chunk, state: ChunkState
    ) -> PaddedContext:
        """Of rows that have read part of their chunk, each its own."""
        place = torch.arange(state.outputs.shape[1] - 1, device=states.device)
        positions = chunk.positions.expand(states.shape[0], -1)
        window = state.windows[0]
        context = context._replace(memory=KeyValue(window["memory_key"], window["memory_value"]))
        if is_flash(self.config):
            last = torch.where(chunk.mask, positions, 0).amax(-1, keepdim=True)
            return context._replace(packing=pack(chunk.mask, place <= last))
        visible = place <= positions[..., None]
        return context._replace(attention_mask=as_implemented(self.config, visible[:, None], states.dtype))

    def collect(
        self, chunks: list[Chunk], outputs: list[DepthOutput], batch_size: int, length: int, cached: bool
    ) -> DepthOutput:
        """One output of all chunks; what has a value for each token comes in the order of the tokens.

        With a cache, attention is to the places of a token's chunk, some of whose tokens were read before.
        """

        def merged(name: str, fill: float = 0.0) -> torch.Tensor | None:
            pieces = [getattr(output, name) for output in outputs]
            if pieces[0] is None:
                return None
            if name == "hidden_states" or self.config.token_units:
                return merge(chunks, pieces, batch_size, length, fill)
            return merge_rows(chunks, pieces, batch_size, fill)

        def by_step(name: str, put) -> tuple[torch.Tensor, ...] | None:
            if getattr(outputs[0], name) is None:
                return None
            steps = zip(*(getattr(output, name) for output in outputs), strict=True)
            return tuple(put(chunks, list(pieces), batch_size, length) for pieces in steps)

        def merge_heads(chunks: list[Chunk], pieces: list[torch.Tensor], *size: int) -> torch.Tensor:
            return merge(chunks, [piece.transpose(1, 2) for piece in pieces], *size).transpose(1, 2)

        return DepthOutput(
            hidden_states=merged("hidden_states"),
            ponder_cost=mean_over_chunks(chunks, [output.ponder_cost for output in outputs], batch_size),
            ponder_steps=merged("ponder_steps", fill=-1),
            halting_probabilities=merged("halting_probabilities"),
            all_hidden_states=by_step("all_hidden_states", merge),
            attentions=by_step("attentions", merge_heads if cached else merge_attention),
            gates=by_step("gates", merge),
            read_attentions=by_step("read_attentions", merge_heads),
        )


def mean_over_chunks(chunks: list[Chunk], costs: list[torch.Tensor | None], batch_size: int) -> torch.Tensor | None:
    """Mean over the chunks in which a row has tokens: (R,) of each -> (B,)."""
    if costs[0] is None:
        return None
    taken = merge_rows(
        chunks, [chunk.valid.any(-1).to(cost) for chunk, cost in zip(chunks, costs, strict=True)], batch_size, 0.0
    )
    return merge_rows(chunks, costs, batch_size, 0.0).sum(1) / taken.sum(1).clamp_min(1)


def memory_after_each(
    memories: list[torch.Tensor], last: torch.Tensor, chunks: list[Chunk]
) -> tuple[torch.Tensor, ...]:
    """Memory (B, M, E) before the first chunk and after each, from that before each chunk and the `last` one.

    A row that has no more tokens keeps its last memory.
    """
    # a row's last chunk is written at the end, whenever it was read
    ended = torch.ones_like(last[:, 0, 0], dtype=torch.bool)
    states = [last]
    for before, chunk in zip(reversed(memories[1:]), reversed(chunks[1:]), strict=True):
        goes_on = chunk.put(torch.zeros_like(ended), chunk.valid.any(-1))
        ended = ended & ~goes_on
        states.append(torch.where(ended[:, None, None], last, before))
    return (memories[0], *reversed(states))
