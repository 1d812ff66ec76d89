"""The one loop over chunks, with a memory as recurrent state (Algorithms 2 and 4).

Shapes: B sequences, S tokens, R sequences with tokens in a chunk, N maximum number of their tokens in it, C maximum
number of tokens of a chunk, M memory slots, E width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from ..depth.chunk_cache import ChunkCache, ChunkCacheView
from ..depth.chunk_plan import Chunk, chunk_size, merge, merge_by_chunk, plan_chunks
from ..depth.layouts import PackedLayout
from ..depth.loop import DepthOutput
from ..ops.attention import PaddedContext, Rotations, pack
from ..ops.graphs import in_graph
from ..ops.initialization import LearnedTensor
from ..ops.layers import where_rows
from ..ops.masks import as_implemented, is_flash, key_mask, visible_keys
from ..ops.memory import MemoryUpdate
from ..ops.positions import xpos_rotations
from ..ops.sharding import is_sharded, touch_all_parameters
from .base_model import BaseModel, ForwardCall, check_length, row_distribution


@dataclass
class ChunkState:
    """Recurrent state from chunk to chunk, updated in place; see `ChunkCache`."""

    memory: torch.Tensor  # (B, M, E)
    outputs: torch.Tensor  # (B, C + 1, E)
    counts: torch.Tensor  # (B,) tokens in the current chunk
    rotations: Rotations  # (C, 1, h) each
    cache: ChunkCacheView | None  # of the depth steps' tensors; None without a cache

    def extended(
        self, chunk: Chunk, states: torch.Tensor, rows: torch.Tensor | None = None, columns: slice = slice(None)
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs (R', C + 1, E) with these states (R', W, E), and counts (R',), of the chunk's rows at `rows`."""
        parts = chunk.places[:, columns], chunk.select(self.outputs), chunk.past_counts + chunk.valid.sum(-1)
        places, outputs, counts = parts if rows is None else (part.index_select(0, rows) for part in parts)
        return outputs.scatter(1, places[..., None].expand_as(states), states.to(outputs.dtype)), counts

    def append(self, chunk: Chunk, states: torch.Tensor) -> None:
        """Add the chunk's final states (R, N, E)."""
        outputs, counts = self.extended(chunk, states)
        self.outputs, self.counts = chunk.scatter(self.outputs, outputs), chunk.scatter(self.counts, counts)


class ChunkRecurrentModel(BaseModel):
    """`encode` chunk by chunk; architectures define `run_chunk`, `memory_blocks` and `cache_depth`.

    `run_chunk(states, mask, context, call, cache)` applies all depth steps to one chunk, (R, N, E), which attends to
    the slots `context.memory`. `memory_blocks()` is the block of each depth step, which attends to the memory, or the
    one that all share.
    """

    packed_layout = PackedLayout

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
        chunks = plan_chunks(self.config, mask, None, is_sharded(self))
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
        outputs, counts = state.extended(chunk, states, rows, slice(*columns))
        memory = chunk.select(state.memory)
        memory = memory if rows is None else memory.index_select(0, rows)
        return self.memory_features(self.updated_memory(memory, outputs, counts))

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        config, cache = self.config, call.cache
        cached, is_new = cache is not None, cache is None or not cache.state
        check_length(config, hidden, chunk_size(config, mask.shape[1]))
        state = self.initial_state(hidden, call)
        # a graph does not know which chunks are complete, and would compute two for the token
        one_token = in_graph() and mask.shape[1] == 1 and not is_new
        if one_token:
            # complete chunks are written into the memory of sequences with a new token
            complete = (state.counts == state.outputs.shape[1] - 1) & mask[:, 0]
            updated = self.updated_memory(state.memory, state.outputs, None)
            state.memory = where_rows(complete, updated, state.memory)
            state.counts = state.counts.masked_fill(complete, 0)
            self.project_memory(state)
        chunks = plan_chunks(config, mask, state.counts if cached else None, is_sharded(self))
        chunks = chunks[:1] if one_token else chunks
        memories, outputs, step_features = [], [], []
        for chunk in chunks:
            if chunk.index > 0:
                # sequences with tokens in this chunk have completed the one before, whose size may be their own
                counts = chunk.select(state.counts) if config.chunking == "count" else None
                updated = self.updated_memory(chunk.select(state.memory), chunk.select(state.outputs), counts)
                state.memory = chunk.scatter(state.memory, updated)
                if cached:
                    self.project_memory(state, chunk)
            if call.record_states:
                memories.append(state.memory)
            states, view = chunk.tokens(hidden), None
            if cached:
                view = state.cache.of_chunk(chunk, is_new or chunk.index > 0)
            features = partial(self.chunk_features, state, chunk)
            context = self.context(states, chunk, state, view)
            own = call._replace(features=features, full=chunk.full)
            output = self.run_chunk(states, chunk.mask, context, own, view)
            if call.record_steps and call.pool:
                step_features.append([features(each, chunk.valid) for each in output.all_hidden_states[1:]])
            state.append(chunk, output.hidden_states)
            outputs.append(output)
        if cached:
            fixed = {"memory": state.memory, "outputs": state.outputs, "fill": state.counts}
            cache.commit(fixed, state.cache.draft, mask, call.start)
        depth = self.collect(chunks, outputs, step_features, mask.shape, cached)
        if call.pool or call.record_states:
            last = self.updated_memory(state.memory, state.outputs, state.counts)
            memory_states = memory_after_each(memories, last, chunks) if call.record_states else (last,)
            depth = depth._replace(memory_states=memory_states)
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))

    def initial_state(self, hidden: torch.Tensor, call: ForwardCall) -> ChunkState:
        """The state before the first token, or the cached one, in which sequences that start anew have no tokens."""
        config, (batch_size, length, _) = self.config, hidden.shape
        cached = {} if call.cache is None else call.cache.state
        begins = not cached or call.start is not None
        initial = self.memory().to(hidden.dtype) if begins else None
        if cached:
            # it may come from a call in another precision
            memory, outputs = cached["memory"].to(hidden.dtype), cached["outputs"].to(hidden.dtype)
            counts = cached["fill"]
            if begins:
                memory = where_rows(call.start, initial[None], memory)
                counts = counts.masked_fill(call.start, 0)
        else:
            memory = initial.expand(batch_size, -1, -1)
            outputs = hidden.new_zeros(batch_size, chunk_size(config, length) + 1, config.hidden_size)
            counts = torch.zeros(batch_size, dtype=torch.long, device=hidden.device)
        size = outputs.shape[1] - 1
        # the positions of a chunk, which all chunks share
        positions = torch.arange(size, device=hidden.device)
        tables = xpos_rotations(positions, config.head_dim, config.xpos_scale_base, size // 2)
        view = None
        if call.cache is not None:
            shape = (batch_size, config.num_attention_heads, size + 1, config.head_dim)
            view = call.cache.steps_view(counts, None if cached else hidden.new_zeros(shape))
        state = ChunkState(memory, outputs, counts, Rotations(*tables), view)
        if begins and view is not None:
            self.project_memory(state)
        return state

    def project_memory(self, state: ChunkState, chunk: Chunk | None = None) -> None:
        """Cache keys and values of the memory, which is fixed within a chunk, of all sequences or of those of one."""
        for block, window in zip(self.memory_blocks(), state.cache.draft, strict=False):
            memory = state.memory if chunk is None else chunk.select(state.memory)
            for name, new in zip(("memory_key", "memory_value"), block.project_memory(memory), strict=True):
                window[name] = new if chunk is None else chunk.scatter(window[name], new)

    def updated_memory(self, memory: torch.Tensor, outputs: torch.Tensor, counts: torch.Tensor | None) -> torch.Tensor:
        """Memory (R, M, E) after the first `counts` (R,) of outputs (R, C + 1, E), or after C of them."""
        attention_mask, packing, states = None, None, outputs[:, :-1]
        if counts is not None:
            # the caller ignores the result for sequences without tokens
            mask = torch.arange(states.shape[1], device=counts.device) < counts.clamp_min(1)[:, None]
            if is_flash(self.config):
                packing = pack(torch.ones_like(memory[..., 0], dtype=torch.bool), mask)
            else:
                attention_mask = key_mask(self.config, states, mask)
        for layer in self.memory_layers:
            memory = layer(memory, states, attention_mask, packing)
        return memory

    def context(self, states: torch.Tensor, chunk: Chunk, state: ChunkState, cache) -> PaddedContext:
        """Masks, positions and memory for a chunk's attention to itself, to its cached tokens, and to the memory."""
        config, size = self.config, state.outputs.shape[1] - 1
        # those of padding after cached tokens may exceed the chunk
        places = chunk.positions.clamp_max(size - 1)
        rotations = Rotations(*(table[places] for table in state.rotations))
        memory = chunk.select(state.memory) if cache is None else cache.memory(0)
        context = PaddedContext(None, rotations, memory=memory)
        if cache is not None:
            # sequences hold different numbers of cached tokens
            place, positions = torch.arange(size, device=states.device), chunk.positions.expand(states.shape[0], -1)
            if is_flash(config):
                last = torch.where(chunk.mask, positions, 0).amax(-1, keepdim=True)
                return context._replace(packing=pack(chunk.mask, place <= last))
            mask = as_implemented(config, (place <= positions[..., None])[:, None], states.dtype)
        elif config.is_causal:
            # tokens start at the first column, so padding comes after every token
            mask = visible_keys(config, states, None)
        else:
            unmasked = chunk.full and config._attn_implementation != "eager"
            mask = None if unmasked else key_mask(config, states, chunk.mask)
        return context._replace(attention_mask=mask)

    def collect(
        self,
        chunks: list[Chunk],
        outputs: list[DepthOutput],
        features: list[list[torch.Tensor]],
        size: tuple[int, int],
        cached: bool,
    ) -> DepthOutput:
        """One output of all chunks; values of tokens are in the order of the tokens (B, S).

        With a cache, attention weights are those of the places of a token's chunk, cached tokens included. `features`
        (R, E) after each step, and halting distributions, are those of each sequence's last chunk.
        """

        def merged(name: str, join: Callable[[list[torch.Tensor]], torch.Tensor]):
            pieces = [getattr(output, name) for output in outputs]
            if isinstance(pieces[0], tuple):
                return tuple(join(list(step)) for step in zip(*pieces, strict=True))
            return None if pieces[0] is None else join(pieces)

        def tokens(pieces: list[torch.Tensor], fill: float = 0.0) -> torch.Tensor:
            return merge(chunks, pieces, *size, fill)

        def units(pieces: list[torch.Tensor], fill: float = 0.0) -> torch.Tensor:
            return tokens(pieces, fill) if self.config.token_units else merge_by_chunk(chunks, pieces, size[0], fill)

        def heads(pieces: list[torch.Tensor]) -> torch.Tensor:
            return tokens([piece.transpose(1, 2) for piece in pieces]).transpose(1, 2)

        def within(pieces: list[torch.Tensor]) -> torch.Tensor:
            return heads([chunk.spread_keys(piece, size[1]) for chunk, piece in zip(chunks, pieces, strict=True)])

        def mean(costs: list[torch.Tensor]) -> torch.Tensor:
            """(R,) -> (B,), over the chunks in which a sequence has tokens."""
            pairs = [torch.stack((cost, torch.ones_like(cost)), dim=-1) for cost in costs]
            total, number = merge_by_chunk(chunks, pairs, size[0], 0.0).sum(1).unbind(-1)
            return total / number.clamp_min(1)

        def last(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
            values = pieces[0].new_zeros(size[0], pieces[0].shape[-1])
            for chunk, piece in zip(chunks, pieces, strict=True):
                values = chunk.scatter(values, piece)
            return values

        joins = {
            "hidden_states": tokens,
            "ponder_cost": mean,
            "ponder_steps": partial(units, fill=-1),
            "halting_probabilities": units,
            "all_hidden_states": tokens,
            "attentions": heads if cached else within,
            "gates": tokens,
            "read_attentions": heads,
        }
        depth = DepthOutput(**{name: merged(name, join) for name, join in joins.items()})
        if not features:
            return depth
        pairs = zip(chunks, outputs, strict=True)
        halting = [row_distribution(output.halting_probabilities, chunk.mask, by_row=True) for chunk, output in pairs]
        return depth._replace(
            step_features=tuple(map(last, zip(*features, strict=True))),
            halting_distribution=None if halting[0] is None else last(halting),
        )


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
        states.append(where_rows(ended, last, before))
    return (memories[0], *reversed(states))
