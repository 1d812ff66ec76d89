"""The one loop over chunks: a memory carries each row from chunk to chunk (Algorithms 2 and 4).

Shapes: B rows, S tokens, R rows that have tokens in a chunk, N most tokens that a row has in it, C most tokens of a
chunk, M memory slots, E width.
"""

import torch
from torch import nn
from transformers.masking_utils import create_causal_mask

from ..ops.attention import KeyValue, PaddedContext, Rotations, as_implemented, is_flash, pack
from ..ops.memory import MemoryRead, MemorySlots, MemoryUpdate
from ..ops.positions import xpos_rotations
from .base_model import Call, EncoderModel, touch_all_parameters
from .chunk_cache import ChunkCache, ChunkSlots
from .chunk_plan import Chunk, chunk_size, cut, merge, merge_attention, merge_rows
from .depth_loop import DepthOutput, is_sharded
from .layouts import key_mask


class Carry:
    """What one chunk hands to the next, replaced as chunks are read; see `ChunkStateLayer`."""

    def __init__(self, memory: torch.Tensor, outputs: torch.Tensor, fill: torch.Tensor, windows: list[dict] | None):
        self.memory = memory  # (B, M, E)
        self.outputs = outputs  # (B, C + 1, E)
        self.fill = fill  # (B,)
        self.windows = windows  # tensors of each depth step where a cache is kept

    def keep(self, chunk: Chunk, states: torch.Tensor) -> None:
        """Take the chunk's final states (R, N, E)."""
        slots = self.slots(chunk)
        outputs = chunk.select(self.outputs)
        outputs = outputs.scatter(1, slots[..., None].expand_as(states), states.to(outputs.dtype))
        self.outputs = chunk.put(self.outputs, outputs)
        before = chunk.select(self.fill) if chunk.index == 0 else 0
        self.fill = chunk.put(self.fill, before + chunk.valid.sum(-1))

    def slots(self, chunk: Chunk) -> torch.Tensor:
        """The place of each token in its chunk, behind the last one for padding: (R, N)."""
        return torch.where(chunk.valid, chunk.positions, self.outputs.shape[1] - 1)


class ChunkRecurrentModel(EncoderModel):
    """`encode` chunk by chunk, for families that define `run_chunk`, `memory_readers` and `cache_depth`."""

    def build_memory(self, config) -> None:
        self.memory = MemorySlots(config.num_memory_slots, config.hidden_size, config.memory_initializer_range)
        self.memory_layers = nn.ModuleList(MemoryUpdate(config, index) for index in range(config.num_memory_layers))
        self.memory_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def memory_readers(self) -> list[MemoryRead]:
        """The reader of each depth step, or the one that all share."""
        raise NotImplementedError

    def run_chunk(
        self, states: torch.Tensor, mask: torch.Tensor, context: PaddedContext, call: Call, slots: ChunkSlots | None
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
        return ChunkCache(self.cache_depth(max_steps), self.made_for())

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        memory = self.memory_norm(depth.memory_states[-1])
        return memory.mean(1) if self.config.pooling == "mean" else memory[:, -1]

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: Call) -> DepthOutput:
        config, cache = self.config, call.cache
        batch_size, length = mask.shape
        sharded = is_sharded(self)
        carry = self.begin(hidden, length, cache, call.start)
        chunks = cut(config, mask, None if cache is None else carry.fill, sharded or cache is not None, sharded)
        memories, outputs = [], []
        for chunk in chunks:
            if chunk.index > 0:
                self.write(carry, chunk)
            if call.record_states:
                memories.append(carry.memory)
            states = chunk.tokens(hidden)
            slots = None
            if cache is not None:
                before = carry.fill if chunk.index == 0 else torch.zeros_like(carry.fill)
                slots = ChunkSlots(carry.windows, carry.slots(chunk), before)
            output = self.run_chunk(states, chunk.mask, self.context(states, chunk, carry, slots), call, slots)
            carry.keep(chunk, output.hidden_states)
            outputs.append(output)
        if cache is not None:
            self.store(carry, cache, mask, call.start)
        depth = self.collect(chunks, outputs, batch_size, length, cached=cache is not None)
        if call.pool or call.record_states:
            last = self.written(carry.memory, carry.outputs[:, :-1], carry.fill)
            states = memory_after_each(memories, last, chunks) if call.record_states else (last,)
            depth = depth._replace(memory_states=states)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def begin(self, hidden: torch.Tensor, length: int, cache: ChunkCache | None, start: torch.Tensor | None) -> Carry:
        """What a row has before its first token, or what the cache holds of earlier ones."""
        config, batch_size = self.config, hidden.shape[0]
        if cache is not None and cache.state.tensors:
            kept = (cache.state.tensors[name] for name in ("memory", "outputs", "fill"))
            carry = Carry(*kept, windows=[dict(layer.tensors) for layer in cache.layers[1:]])
            return carry if start is None else self.begin_again(carry, start)
        size = chunk_size(config, length)
        memory = self.memory(batch_size).to(hidden.dtype)
        carry = Carry(
            memory,
            hidden.new_zeros(batch_size, size + 1, config.hidden_size),
            torch.zeros(batch_size, dtype=torch.long, device=hidden.device),
            None,
        )
        if cache is not None:
            window = hidden.new_zeros(batch_size, config.num_attention_heads, size + 1, config.head_dim)
            carry.windows = [{"key": window, "value": window} for _ in cache.layers[1:]]
            self.project_memory(carry)
        return carry

    def begin_again(self, carry: Carry, start: torch.Tensor) -> Carry:
        """Rows of `start` (B,) have read nothing; what their windows hold is behind their fill, where none looks."""
        memory = self.memory(start.shape[0]).to(carry.memory.dtype)
        carry.memory = torch.where(start[:, None, None], memory, carry.memory)
        carry.fill = carry.fill.masked_fill(start, 0)
        self.project_memory(carry)
        return carry

    def project_memory(self, carry: Carry) -> None:
        """The memory stays as it is for a whole chunk, so what readers make of it is kept with it."""
        for reader, window in zip(self.memory_readers(), carry.windows, strict=False):
            window["memory_key"], window["memory_value"] = reader.project(carry.memory)

    def store(self, carry: Carry, cache: ChunkCache, mask: torch.Tensor, start: torch.Tensor | None) -> None:
        state = cache.state
        ended = ~mask[:, -1] & (carry.fill > 0)
        ragged = state.tensors.get("ragged", False)
        state.tensors = {
            "memory": carry.memory,
            "outputs": carry.outputs,
            "fill": carry.fill,
            "ragged": ended | (ragged if start is None else ragged & ~start),
        }
        state.length += mask.shape[1]
        for layer, window in zip(cache.layers[1:], carry.windows, strict=True):
            layer.tensors = window
        for layer in cache.layers:
            layer.is_initialized = True

    def write(self, carry: Carry, chunk: Chunk) -> None:
        """Write the chunk before this one into the memory of the rows that go on."""
        memory, outputs, fill = (chunk.select(states) for states in (carry.memory, carry.outputs, carry.fill))
        # a chunk is complete when the next one begins, but rows may have chunks of different sizes
        fill = fill if self.config.chunking == "count" else None
        carry.memory = chunk.put(carry.memory, self.written(memory, outputs[:, :-1], fill))
        if carry.windows is not None:
            self.project_memory(carry)

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

    def context(self, states: torch.Tensor, chunk: Chunk, carry: Carry, slots: ChunkSlots | None) -> PaddedContext:
        """Where the chunk attends: to itself, what was read of it before, and the memory."""
        config = self.config
        center = (carry.outputs.shape[1] - 1) // 2
        rotations = xpos_rotations(chunk.positions, config.head_dim, config.xpos_scale_base, center)
        context = PaddedContext(None, Rotations(*rotations), memory=chunk.select(carry.memory))
        if slots is not None:
            return self.cached_context(context, states, chunk, carry)
        if config.is_causal:
            # rows begin at the first column, so what is padding comes after every token
            mask = create_causal_mask(config=config, inputs_embeds=states, attention_mask=None, past_key_values=None)
        else:
            mask = (
                None if chunk.full and config._attn_implementation != "eager" else key_mask(config, states, chunk.mask)
            )
        return context._replace(attention_mask=mask)

    def cached_context(self, context: PaddedContext, states: torch.Tensor, chunk: Chunk, carry: Carry) -> PaddedContext:
        """Of rows that have read part of their chunk, each its own."""
        place = torch.arange(carry.outputs.shape[1] - 1, device=states.device)
        positions = chunk.positions.expand(states.shape[0], -1)
        window = carry.windows[0]
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
