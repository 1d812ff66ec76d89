"""The one loop over chunks, with a memory as recurrent state (Algorithms 2 and 4).

Shapes: B sequences, S tokens, R sequences with tokens in a chunk, N maximum number of their tokens in it, C maximum
number of tokens of a chunk, M memory slots, E width.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import nn

from ..depth.chunk_cache import ChunkCache, ChunkCacheView
from ..depth.chunk_plan import Chunk, chunk_size, merge, merge_attention, merge_by_chunk, plan_chunks
from ..depth.loop import DepthOutput
from ..ops.attention import KeyValue, PaddedContext, Rotations, pack
from ..ops.graphs import in_graph
from ..ops.initialization import LearnedTensor
from ..ops.masks import as_implemented, is_flash, key_mask, visible_keys
from ..ops.memory import MemoryUpdate
from ..ops.positions import xpos_rotations
from ..ops.sharding import is_sharded, touch_all_parameters
from .base_model import BaseModel, ForwardCall, check_length, row_distribution


class ChunkState:
    """Recurrent state from chunk to chunk, updated in place; see `ChunkStateLayer`."""

    def __init__(
        self,
        memory: torch.Tensor,
        outputs: torch.Tensor,
        num_tokens_in_chunk: torch.Tensor,
        windows: list[dict] | None,
        rotations: Rotations,
    ):
        self.memory = memory  # (B, M, E)
        self.outputs = outputs  # (B, C + 1, E)
        self.num_tokens_in_chunk = num_tokens_in_chunk  # (B,)
        self.windows = windows  # cached tensors of each depth step, None without a cache
        self.rotations = rotations  # (C, 1, h) each

    def append(self, chunk: Chunk, states: torch.Tensor) -> None:
        """Add the chunk's final states (R, N, E)."""
        places = self.places(chunk)
        outputs = chunk.select(self.outputs)
        outputs = outputs.scatter(1, places[..., None].expand_as(states), states.to(outputs.dtype))
        self.outputs = chunk.scatter(self.outputs, outputs)
        before = chunk.select(self.num_tokens_in_chunk) if chunk.index == 0 else 0
        self.num_tokens_in_chunk = chunk.scatter(self.num_tokens_in_chunk, before + chunk.valid.sum(-1))

    def places(self, chunk: Chunk) -> torch.Tensor:
        """The place of each token in its chunk, after the last one for padding: (R, N)."""
        return torch.where(chunk.valid, chunk.positions, self.outputs.shape[1] - 1)


class ChunkRecurrentModel(BaseModel):
    """`encode` chunk by chunk; architectures define `run_chunk`, `memory_blocks` and `cache_depth`.

    `run_chunk(states, mask, context, call, cache)` applies all depth steps to one chunk, (R, N, E), which attends to
    the slots `context.memory`. `memory_blocks()` is the block of each depth step, which attends to the memory, or the
    one that all share.
    """

    def build_memory(self, config) -> None:
        # before the first chunk; equal slots would get equal updates and, without dropout, stay equal
        size, std = (config.num_memory_slots, config.hidden_size), config.memory_initializer_range
        self.memory = LearnedTensor(*size, std=std)
        self.memory_layers = nn.ModuleList(MemoryUpdate(config, index) for index in range(config.num_memory_layers))
        self.memory_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def new_cache(self, max_depth: int | None = None) -> ChunkCache:
        chunking = self.config.chunking
        if chunking != "fixed":
            raise ValueError(
                f"config field `chunking` is {chunking!r}: chunks then depend on later tokens, so a sequence "
                "cannot be read in pieces; pass use_cache=False, or set it to 'fixed'"
            )
        return ChunkCache(self.cache_depth(max_depth), self.signature())

    def signature(self) -> str:
        config = self.config
        return f"{super().signature()[:-1]}, chunks of {config.chunk_size}, {config.num_memory_slots} memory slots)"

    def spread_over_tokens(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """As of other models; values of chunks are (B, K, ...)."""
        if self.config.token_units:
            return values
        sharded = is_sharded(self)
        chunks = plan_chunks(self.config, mask, None, keep_all=sharded, sharded=sharded)
        pieces = [
            chunk.select(values[:, number])[:, None].expand(-1, chunk.valid.shape[1], *values.shape[2:])
            for number, chunk in enumerate(chunks)
        ]
        return merge(chunks, pieces, *mask.shape)

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        return self.memory_features(depth.memory_states[-1])

    def memory_features(self, memory: torch.Tensor) -> torch.Tensor:
        """Features (R, E) of sequences that leave this memory (R, M, E)."""
        memory = self.memory_norm(memory)
        return memory.mean(1) if self.config.pooling == "mean" else memory[:, -1]

    def chunk_features(
        self,
        state: ChunkState,
        chunk: Chunk,
        states: torch.Tensor,
        mask: torch.Tensor,
        rows: torch.Tensor | None = None,
        columns: tuple[int, int] = (0, None),
    ) -> torch.Tensor:
        """Features (R', E) of the chunk's sequences at `rows` (R',), if they ended with these states (R', W, E).

        Args:
            columns: the range of the chunk's columns that the states are in.
        """
        num_before = chunk.select(state.num_tokens_in_chunk) if chunk.index == 0 else 0
        parts = (
            state.places(chunk)[:, slice(*columns)],
            chunk.select(state.outputs),
            chunk.select(state.memory),
            num_before + chunk.valid.sum(-1),
        )
        if rows is not None:
            parts = tuple(part.index_select(0, rows) for part in parts)
        places, outputs, memory, num_tokens = parts
        outputs = outputs.scatter(1, places[..., None].expand_as(states), states.to(outputs.dtype))
        return self.memory_features(self.updated_memory(memory, outputs[:, :-1], num_tokens))

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        config, cache = self.config, call.cache
        batch_size, length = mask.shape
        sharded = is_sharded(self)
        check_length(config, hidden, chunk_size(config, length))
        state = self.initial_state(hidden, length, cache, call.start)
        # a graph does not know which chunks are complete, and would compute two for the token
        one_token = in_graph() and length == 1 and cache is not None and bool(cache.state.tensors)
        if one_token:
            self.begin_chunks(state, mask)
        num_cached = None if cache is None else state.num_tokens_in_chunk
        chunks = plan_chunks(config, mask, num_cached, keep_all=sharded, sharded=sharded)
        chunks = chunks[:1] if one_token else chunks
        memories, outputs, step_features = [], [], []
        for chunk in chunks:
            if chunk.index > 0:
                self.update_memory(state, chunk)
            if call.record_states:
                memories.append(state.memory)
            states = chunk.tokens(hidden)
            view = None
            if cache is not None:
                before = state.num_tokens_in_chunk if chunk.index == 0 else torch.zeros_like(state.num_tokens_in_chunk)
                is_empty = chunk.index > 0 or not cache.state.tensors
                view = ChunkCacheView(
                    state.windows, state.places(chunk), chunk.select(before), chunk.sequences, is_empty
                )
            context = self.context(states, chunk, state, cached=view is not None)
            features = partial(self.chunk_features, state, chunk)
            output = self.run_chunk(states, chunk.mask, context, call._replace(features=features), view)
            if call.record_steps and call.pool:
                step_features.append([features(states, chunk.valid) for states in output.all_hidden_states[1:]])
            state.append(chunk, output.hidden_states)
            outputs.append(output)
        if cache is not None:
            self.update_cache(state, cache, mask, call.start)
        depth = self.collect(chunks, outputs, batch_size, length, cached=cache is not None)
        if call.pool or call.record_states:
            last = self.updated_memory(state.memory, state.outputs[:, :-1], state.num_tokens_in_chunk)
            memory_states = memory_after_each(memories, last, chunks) if call.record_states else (last,)
            depth = depth._replace(memory_states=memory_states)
        if step_features:
            depth = depth._replace(**steps_of_last_chunk(chunks, step_features, outputs, batch_size))
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def initial_state(
        self, hidden: torch.Tensor, length: int, cache: ChunkCache | None, start: torch.Tensor | None
    ) -> ChunkState:
        """The state before the first token, or the cached one."""
        config, batch_size = self.config, hidden.shape[0]
        if cache is not None and cache.state.tensors:
            memory, outputs, fill = (cache.state.tensors[name] for name in ("memory", "outputs", "fill"))
            # they may come from a call in another precision
            memory, outputs = memory.to(hidden.dtype), outputs.to(hidden.dtype)
            windows = [dict(layer.tensors) for layer in cache.layers[1:]]
            state = ChunkState(
                memory, outputs, fill, windows, self.chunk_rotations(outputs.shape[1] - 1, hidden.device)
            )
            return state if start is None else self.reset_sequences(state, start)
        size = chunk_size(config, length)
        memory = self.memory().expand(batch_size, -1, -1).to(hidden.dtype)
        state = ChunkState(
            memory,
            hidden.new_zeros(batch_size, size + 1, config.hidden_size),
            torch.zeros(batch_size, dtype=torch.long, device=hidden.device),
            None,
            self.chunk_rotations(size, hidden.device),
        )
        if cache is not None:
            window = hidden.new_zeros(batch_size, config.num_attention_heads, size + 1, config.head_dim)
            state.windows = [{"key": window, "value": window} for _ in cache.layers[1:]]
            self.project_memory(state)
        return state

    def begin_chunks(self, state: ChunkState, mask: torch.Tensor) -> None:
        """Write complete chunks into the memory of sequences with a new token, True in `mask` (B, 1)."""
        complete = (state.num_tokens_in_chunk == state.outputs.shape[1] - 1) & mask[:, 0]
        updated = self.updated_memory(state.memory, state.outputs[:, :-1], None)
        state.memory = torch.where(complete[:, None, None], updated, state.memory)
        state.num_tokens_in_chunk = state.num_tokens_in_chunk.masked_fill(complete, 0)
        self.project_memory(state)

    def chunk_rotations(self, size: int, device: torch.device) -> Rotations:
        """The xPos tables (C, 1, h) of a chunk's positions, which all chunks share."""
        config, positions = self.config, torch.arange(size, device=device)
        return Rotations(*xpos_rotations(positions, config.head_dim, config.xpos_scale_base, size // 2))

    def reset_sequences(self, state: ChunkState, start: torch.Tensor) -> ChunkState:
        """Reset the sequences of `start` (B,); their cached keys and values are masked, as they have no tokens."""
        memory = self.memory().to(state.memory.dtype)
        state.memory = torch.where(start[:, None, None], memory, state.memory)
        state.num_tokens_in_chunk = state.num_tokens_in_chunk.masked_fill(start, 0)
        self.project_memory(state)
        return state

    def project_memory(self, state: ChunkState, chunk: Chunk | None = None) -> None:
        """Cache keys and values of the memory, which is fixed within a chunk, of all sequences or of those of one."""
        for block, window in zip(self.memory_blocks(), state.windows, strict=False):
            memory = state.memory if chunk is None else chunk.select(state.memory)
            for name, new in zip(("memory_key", "memory_value"), block.project_memory(memory), strict=True):
                window[name] = new if chunk is None else chunk.scatter(window[name], new)

    def update_cache(
        self, state: ChunkState, cache: ChunkCache, mask: torch.Tensor, start: torch.Tensor | None
    ) -> None:
        layer = cache.state
        trailing_padding = layer.tensors.get("ragged", False)
        trailing_padding = trailing_padding if start is None else trailing_padding & ~start
        layer.write(
            {
                "memory": state.memory,
                "outputs": state.outputs,
                "fill": state.num_tokens_in_chunk,
                "ragged": trailing_padding | (~mask[:, -1] & (state.num_tokens_in_chunk > 0)),
            }
        )
        layer.count(mask.shape[1])
        for layer, window in zip(cache.layers[1:], state.windows, strict=True):
            layer.write(window)

    def update_memory(self, state: ChunkState, chunk: Chunk) -> None:
        """Write the previous chunk into the memory of the sequences with tokens in this one."""
        memory, outputs = chunk.select(state.memory), chunk.select(state.outputs)
        # a chunk is complete when the next one begins, but sequences may have chunks of different sizes
        num_tokens = chunk.select(state.num_tokens_in_chunk) if self.config.chunking == "count" else None
        state.memory = chunk.scatter(state.memory, self.updated_memory(memory, outputs[:, :-1], num_tokens))
        if state.windows is not None:
            self.project_memory(state, chunk)

    def updated_memory(
        self, memory: torch.Tensor, states: torch.Tensor, num_tokens: torch.Tensor | None
    ) -> torch.Tensor:
        """Memory (R, M, E) after the first `num_tokens` (R,) of states (R, C, E), or after all of them."""
        attention_mask = packing = None
        if num_tokens is not None:
            # the caller ignores the result for sequences without tokens
            mask = torch.arange(states.shape[1], device=num_tokens.device) < num_tokens.clamp_min(1)[:, None]
            if is_flash(self.config):
                packing = pack(torch.ones_like(memory[..., 0], dtype=torch.bool), mask)
            else:
                attention_mask = key_mask(self.config, states, mask)
        for layer in self.memory_layers:
            memory = layer(memory, states, attention_mask, packing)
        return memory

    def context(self, states: torch.Tensor, chunk: Chunk, state: ChunkState, cached: bool) -> PaddedContext:
        """Masks, positions and memory for a chunk's attention to itself, to its cached tokens, and to the memory."""
        config = self.config
        # those of padding after cached tokens may exceed the chunk
        places = chunk.positions.clamp_max(state.outputs.shape[1] - 2)
        rotations = Rotations(*(table[places] for table in state.rotations))
        context = PaddedContext(None, rotations, memory=chunk.select(state.memory))
        if cached:
            return self.cached_context(context, states, chunk, state)
        if config.is_causal:
            # tokens start at the first column, so padding comes after every token
            mask = visible_keys(config, states, None)
        else:
            mask = (
                None if chunk.full and config._attn_implementation != "eager" else key_mask(config, states, chunk.mask)
            )
        return context._replace(attention_mask=mask)

    def cached_context(
        self, context: PaddedContext, states: torch.Tensor, chunk: Chunk, state: ChunkState
    ) -> PaddedContext:
        """The context of sequences whose current chunks hold different numbers of cached tokens."""
        place = torch.arange(state.outputs.shape[1] - 1, device=states.device)
        positions = chunk.positions.expand(states.shape[0], -1)
        window = state.windows[0]
        memory = KeyValue(*(chunk.select(window[name]) for name in ("memory_key", "memory_value")))
        context = context._replace(memory=memory)
        if is_flash(self.config):
            last = torch.where(chunk.mask, positions, 0).amax(-1, keepdim=True)
            return context._replace(packing=pack(chunk.mask, place <= last))
        visible = place <= positions[..., None]
        return context._replace(attention_mask=as_implemented(self.config, visible[:, None], states.dtype))

    def collect(
        self, chunks: list[Chunk], outputs: list[DepthOutput], batch_size: int, length: int, cached: bool
    ) -> DepthOutput:
        """One output of all chunks; values of tokens are in the order of the tokens.

        With a cache, attention weights are those of the places of a token's chunk, cached tokens included.
        """

        def merged(name: str, fill: float = 0.0) -> torch.Tensor | None:
            pieces = [getattr(output, name) for output in outputs]
            if pieces[0] is None:
                return None
            if name == "hidden_states" or self.config.token_units:
                return merge(chunks, pieces, batch_size, length, fill)
            return merge_by_chunk(chunks, pieces, batch_size, fill)

        def by_step(name: str, merge_step) -> tuple[torch.Tensor, ...] | None:
            if getattr(outputs[0], name) is None:
                return None
            steps = zip(*(getattr(output, name) for output in outputs), strict=True)
            return tuple(merge_step(chunks, list(pieces), batch_size, length) for pieces in steps)

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


def steps_of_last_chunk(
    chunks: list[Chunk], features: list[list[torch.Tensor]], outputs: list[DepthOutput], batch_size: int
) -> dict[str, object]:
    """Features after each step, and halting distribution, of each sequence's last chunk, as fields of `DepthOutput`."""

    def last(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        values = pieces[0].new_zeros(batch_size, pieces[0].shape[-1])
        for chunk, piece in zip(chunks, pieces, strict=True):
            values = chunk.scatter(values, piece)
        return values

    pairs = zip(chunks, outputs, strict=True)
    distributions = [row_distribution(output.halting_probabilities, chunk.mask, by_row=True) for chunk, output in pairs]
    return {
        "step_features": tuple(map(last, zip(*features, strict=True))),
        "halting_distribution": None if distributions[0] is None else last(distributions),
    }


def mean_over_chunks(chunks: list[Chunk], costs: list[torch.Tensor | None], batch_size: int) -> torch.Tensor | None:
    """Mean over the chunks in which a sequence has tokens: (R,) of each -> (B,)."""
    if costs[0] is None:
        return None
    taken = merge_by_chunk(
        chunks, [chunk.valid.any(-1).to(cost) for chunk, cost in zip(chunks, costs, strict=True)], batch_size, 0.0
    )
    return merge_by_chunk(chunks, costs, batch_size, 0.0).sum(1) / taken.sum(1).clamp_min(1)


def memory_after_each(
    memories: list[torch.Tensor], last: torch.Tensor, chunks: list[Chunk]
) -> tuple[torch.Tensor, ...]:
    """Memory (B, M, E) before the first chunk and after each, from that before each chunk and the `last` one.

    The memory of a sequence without further tokens no longer changes.
    """
    # a sequence's last chunk is written into the memory at the end of the call
    ended = torch.ones_like(last[:, 0, 0], dtype=torch.bool)
    states = [last]
    for before, chunk in zip(reversed(memories[1:]), reversed(chunks[1:]), strict=True):
        has_tokens = chunk.scatter(torch.zeros_like(ended), chunk.valid.any(-1))
        ended = ended & ~has_tokens
        states.append(torch.where(ended[:, None, None], last, before))
    return (memories[0], *reversed(states))
