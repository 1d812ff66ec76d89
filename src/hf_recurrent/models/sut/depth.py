"""Layout, cache and trace of a sparse universal block.

Shapes: B sequences, S new tokens, P tokens before them, K keys, n tokens present, m of them that experts serve, k
experts for each, d width, L maximum of depth steps.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from ..depth.cache import CacheLayer
from ..depth.depth_cache import DepthCache
from ..depth.exit_criteria import relative_change
from ..depth.layouts import Finished, Layout, of_live, row_answers
from ..depth.loop import DepthOptions, DepthOutput, LiveCount, Trace, assemble, iterate
from ..depth.unit_states import select_units
from ..ops.attention import KeyValue
from ..ops.checks import has_gaps
from ..ops.graphs import in_graph
from ..ops.positions import token_positions
from ..ops.row_groups import place
from .block import SUTBlock, SUTBlockOutput, SUTContext
from .halting import LogStickBreaking, LogStickBreakingState, remaining_mass
from .routed_attention import PackedQueries, Settings
from .routing import RouterStatistics


class StackCache(DepthCache):
    """A layer for each depth step and, of a decoder with an encoder, one after them for the encoder's states.

    Its keys and values (B, H, S', D) serve every depth step and every new token.
    """

    def __init__(self, depth: int, signature: str, attends_to_source: bool):
        super().__init__(depth, signature, outer_layers=[CacheLayer()] * attends_to_source)

    @property
    def source(self) -> KeyValue | None:
        """(B, S', H, D) each, None before the first call, or without an encoder."""
        tensors = self.layers[-1].tensors if len(self.layers) > self.depth else {}
        return KeyValue(*(tensors[name].transpose(1, 2) for name in ("keys", "values"))) if tensors else None

    @property
    def source_has_padding(self) -> bool:
        """Whether padding is in the source, which only a mask tells apart."""
        return "has_padding" in self.layers[-1].tensors

    def write_source(self, key_value: KeyValue, mask: torch.Tensor) -> None:
        """Keys and values (B, S', H, D) of a source, by its mask (B, S')."""
        keys, values = (states.transpose(1, 2) for states in key_value)
        padding = {} if in_graph() or bool(mask.all()) else {"has_padding": torch.tensor(True)}
        self.layers[-1].replace({"keys": keys, "values": values, **padding})


class AttentionInputs(NamedTuple):
    """Inputs of attention, besides states: masks, and another stack's states."""

    mask: torch.Tensor  # (B, P + S) bool, True at tokens
    length: int  # S
    is_causal: bool
    memory: KeyValue | None = None  # (B, K', H, D) each
    memory_mask: torch.Tensor | None = None  # (B, K') bool

    @property
    def new_mask(self) -> torch.Tensor:
        """(B, S) bool, True at new tokens."""
        return self.mask[:, -self.length :]


def pack_queries(
    units: torch.Tensor | None, shape: tuple[int, int], offset: int, device: torch.device
) -> PackedQueries:
    """Pack the tokens with these flat numbers (n,), ascending, or all, into the narrowest rectangle."""
    batch, length = shape
    if units is None:
        columns = torch.arange(offset, offset + length, device=device)[None]
        return PackedQueries(None, batch, length, columns, None)
    row = units // length
    counts = torch.bincount(row, minlength=batch)
    rows = counts.nonzero().squeeze(-1)
    width = int(counts.max())
    first = counts.cumsum(0) - counts
    new_row = (counts > 0).cumsum(0) - 1
    places = new_row[row] * width + torch.arange(units.shape[0], device=device) - first[row]
    columns = torch.full((rows.shape[0] * width,), offset, device=device)
    columns = columns.scatter(0, places, units % length + offset).unflatten(0, (-1, width))
    every_row = rows.shape[0] == batch
    return PackedQueries(places, rows.shape[0], width, columns, None if every_row else rows)


class SparseLayout(Layout):
    """Live tokens packed (n, d), and the keys and values of all tokens.

    New keys come from all tokens that were live before the latest decision, those that it halted included. Where every
    token must take every step, those that have halted are still present, but neither attend nor have experts.

    Args:
        position_bias: of attention within the stack, if it has one.
        units: (n,) numbers of the tokens that are computed, None for all.
        settings: the block's.
        serves_live: whether only live tokens attend and have experts, among those that are present.
    """

    can_compact = True

    def __init__(
        self,
        strategy: LogStickBreaking,
        inputs: AttentionInputs,
        cache,
        position_bias: nn.Module | None,
        units: torch.Tensor | None,
        settings: Settings,
        *,
        serves_live: bool = False,
    ):
        self.strategy, self.inputs, self.cache = strategy, inputs, cache
        # a traced loop takes a tuple from outside, and no other kind of shape
        self.shape = tuple(inputs.new_mask.shape)
        self.position_bias, self.settings = position_bias, settings
        self.live_count = LiveCount() if serves_live else None
        self.device = inputs.mask.device
        self.offset = inputs.mask.shape[1] - inputs.length
        self.frozen: KeyValue | None = None
        # tokens with new keys, if they differ from those present, and their soft states
        self.leaving_units: torch.Tensor | None = None
        self.leaving_source: torch.Tensor | None = None
        # columns can serve as positions if there are no gaps, as in causal models
        has_other_positions = not inputs.is_causal and (in_graph() or has_gaps(inputs.mask))
        self.positions = token_positions(inputs.mask) if has_other_positions else None
        self.present = units
        self.pack(None)

    def pack(self, served: torch.Tensor | None) -> None:
        """Lay out the queries of the tokens at these indices (m,) among those present, of all if None."""
        self.served = served
        if served is not None and served.numel() == 0:
            return
        queries = pack_queries(self.served_units, self.shape, self.offset, self.device)
        if self.position_bias is not None:
            distances = queries.distances(self.inputs.mask.shape[1], self.positions)
            queries = queries._replace(index=self.position_bias.index(distances))
        self.queries = queries
        visible = queries.select(self.inputs.mask)[:, None, None]
        if self.inputs.is_causal:
            key = torch.arange(self.inputs.mask.shape[1], device=self.device)
            visible = visible & (key <= queries.columns[:, None, :, None])
        elif in_graph():
            # a loop in a graph may not have the same memory twice
            visible = visible.clone()
        self.visible = self.settings.mask(visible)
        self.memory_visible = None
        if self.inputs.memory is not None:
            self.memory_visible = self.settings.mask(queries.select(self.inputs.memory_mask)[:, None, None])

    @property
    def mask(self) -> torch.Tensor:
        """(B, P + S) bool, True at tokens."""
        return self.inputs.mask

    @property
    def units(self) -> torch.Tensor:
        """Flat places (n,) of the tokens present in (B, S)."""
        if self.present is None:
            return torch.arange(self.shape[0] * self.shape[1], device=self.device)
        return self.present

    @property
    def served_units(self) -> torch.Tensor | None:
        """Numbers (m,) of the tokens that attend and have experts, None for all of the batch."""
        return self.present if self.served is None else self.units[self.served]

    def initial_state(self, hidden: torch.Tensor) -> LogStickBreakingState:
        mask = self.inputs.new_mask.flatten()
        return self.strategy.initial_state(hidden, mask if self.present is None else mask[self.present])

    def row(self) -> torch.Tensor:
        """(n,) row of each token present."""
        return self.units // self.shape[1]

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        change = relative_change(before, after)
        if not by_row:
            return change
        row = self.row()
        change = torch.where(self.inputs.new_mask.flatten()[self.units], change, 0.0)
        return change.new_zeros(self.shape[0]).scatter_reduce(0, row, change, "amax")[row]

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        if not by_row:
            return of_live(predict, live, states)
        row, (batch, width) = self.row(), self.shape
        rows = torch.arange(batch, device=self.device)
        whole = place(states, self.present, batch * width).unflatten(0, self.shape)
        live_rows = torch.zeros(batch, device=self.device).index_put((row,), live.float(), accumulate=True) > 0
        return row_answers(predict, whole, self.inputs.new_mask, live_rows, rows, (0, width))[row]

    def serve_live(self, live: torch.Tensor) -> "SparseLayout":
        """A layout in which fewer tokens than before are served, if others have halted."""
        count = None if self.live_count is None else self.live_count.poll(live)
        if count is None or count == (live if self.served is None else self.served).numel():
            return self
        layout = copy.copy(self)
        layout.pack(live.nonzero().squeeze(-1))
        return layout

    def fresh(self, state: LogStickBreakingState) -> tuple[torch.Tensor | None, torch.Tensor]:
        """The tokens (M,) whose soft states have changed since the latest keys, None for all in order; those states."""
        if self.leaving_source is not None:
            return self.leaving_units, self.leaving_source
        source = self.strategy.attended(state)
        return self.served_units, source if self.served is None else source.index_select(0, self.served)

    def context(self, step: int, fresh: torch.Tensor | None) -> SUTContext:
        return SUTContext(
            queries=self.queries,
            visible=self.visible,
            shape=self.shape,
            served=self.served,
            fresh=fresh,
            frozen=self.frozen,
            past=None if self.cache is None else self.cache.past(step),
            memory=self.inputs.memory,
            memory_visible=self.memory_visible,
            settings=self.settings,
        )

    def advance(
        self, block: SUTBlock, state: LogStickBreakingState, step: int
    ) -> tuple[SUTBlockOutput, "SparseLayout"]:
        fresh, source = self.fresh(state)
        weights = remaining_mass(getattr(state, "inner", state))
        layout = copy.copy(self.serve_live(state.live))
        output = block(state.hidden, weights, layout.context(step, fresh), source)
        layout.leaving_units = layout.leaving_source = None
        layout.write(step, output.frozen, output.extended)
        return output, layout

    def write(self, step: int, frozen: KeyValue, extended: KeyValue) -> None:
        self.frozen = frozen
        if self.cache is not None:
            self.cache.write(step, *(states.transpose(1, 2) for states in extended))

    def complete_cache(self, block: SUTBlock, state: LogStickBreakingState) -> None:
        """Cache, for the skipped steps, the keys and values of the final soft states."""
        if self.cache is None:
            return
        layout, (fresh, source) = copy.copy(self), self.fresh(state)
        while self.cache.num_written < self.cache.depth:
            step = self.cache.num_written
            layout.write(step, *block.written_keys_values(source, layout.context(step, fresh)))
            fresh, source = self.units[:0], source[:0]

    def compact(
        self, state: LogStickBreakingState, keep: torch.Tensor
    ) -> tuple["SparseLayout", LogStickBreakingState, Finished]:
        """Keep the tokens at `keep` (n,)."""
        finished = self.finish(state, (~state.live).nonzero().squeeze(-1))
        layout = copy.copy(self)
        layout.leaving_units, layout.leaving_source = self.present, self.strategy.attended(state)
        layout.present = self.units[keep]
        layout.pack(None)
        return layout, select_units(state, keep), finished

    def finish(self, state: LogStickBreakingState, index: torch.Tensor | None = None) -> Finished:
        units = self.units
        if index is not None:
            state, units = select_units(state, index), units[index]
        return Finished(units, *self.strategy.output(state))


class SparseTrace(Trace):
    """`Trace` with the routers' choices and statistics.

    Args:
        record_experts: whether to record which experts served each token.
    """

    def __init__(self, record_experts: bool):
        self.record_experts = record_experts
        self.experts: list[tuple[torch.Tensor, ...]] = []
        self.statistics: tuple[RouterStatistics, ...] | None = None

    def step(self, layout: SparseLayout, state: LogStickBreakingState, output: SUTBlockOutput) -> None:
        if self.options.record_states:
            attentions = self.of_all_tokens(layout, output.attentions)
            across = self.of_all_tokens(layout, output.cross_attentions)
            super().step(layout, state, output._replace(attentions=attentions, cross_attentions=across))
        if self.record_experts:
            self.experts.append(self.choices(layout, state.live, output))
        if self.statistics is None:
            self.statistics = output.statistics
        elif output.statistics is not None:
            pairs = zip(self.statistics, output.statistics, strict=True)
            self.statistics = tuple(before.plus(new) for before, new in pairs)

    def of_all_tokens(self, layout: SparseLayout, weights: torch.Tensor | None) -> torch.Tensor | None:
        """Attention weights (R, H, Q, k, K) -> (B * S, H, k, K), zeros for padding."""
        if weights is None:
            return None
        return place(layout.queries.gather(weights.transpose(1, 2)), layout.present, self.num_units)

    def choices(self, layout: SparseLayout, live: torch.Tensor, output: SUTBlockOutput) -> tuple[torch.Tensor, ...]:
        """Experts (B * S, k) of each router, -1 where a token was not served."""
        if not output.experts:
            return tuple(torch.full_like(index, -1) for index in self.experts[-1])
        live = live if layout.served is None else live.index_select(0, layout.served)
        routed = (torch.where(live[:, None], index, -1) for index in output.experts)
        units = layout.units if layout.served is None else layout.served_units
        return tuple(assemble([index], units, self.num_units, -1) for index in routed)

    def stacked_experts(self, shape: tuple[int, int]) -> tuple[torch.Tensor, ...] | None:
        """(B, S, L, k) of each router, -1 at steps never taken."""
        if not self.experts:
            return None
        missing = self.options.max_depth - len(self.experts)
        stacks = []
        for taken in zip(*self.experts, strict=True):
            values = [*taken, *[torch.full_like(taken[0], -1)] * missing]
            stacks.append(torch.stack(values, dim=1).unflatten(0, shape))
        return tuple(stacks)

    def attention_maps(self, name: str, shape: tuple[int, int]) -> tuple[torch.Tensor, ...] | None:
        """Attention of each step (B, k * H, S, K), the heads of a token's first expert first."""
        values = self.recorded(name)
        if values is None:
            return None
        return tuple(each.unflatten(0, shape).permute(0, 3, 2, 1, 4).flatten(1, 2) for each in values)


def computed_units(mask: torch.Tensor, compaction: bool) -> torch.Tensor | None:
    """Numbers (n,) of the tokens of a mask (B, S), None for all places: without padding, or if it has to stay."""
    # a traced graph must not depend on data, and a piece may be padding only
    if not compaction or in_graph():
        return None
    units = mask.flatten().nonzero().squeeze(-1)
    return units if 0 < units.shape[0] < mask.numel() else None


def packed(tensor: torch.Tensor, units: torch.Tensor | None) -> torch.Tensor:
    """(B, S, ...) of the tokens with these numbers (n,), or of all places -> (n, ...)."""
    flat = tensor.flatten(0, 1)
    return flat if units is None else flat.index_select(0, units)


def run_sparse(
    block: SUTBlock,
    strategy: LogStickBreaking,
    states: torch.Tensor,
    units: torch.Tensor | None,
    inputs: AttentionInputs,
    options: DepthOptions,
    settings: Settings,
    cache=None,
    record_experts: bool = False,
) -> DepthOutput:
    """Apply one shared block until every token has halted (Algorithm 1 of the SUT paper).

    The output's `extras` are L maps (B, k * H, S, K') of attention to the other stack, the experts (B, S, L, k) of each
    router, and its statistics over all steps; each None if not recorded.

    Args:
        states: (n, d) input states.
        units: (n,) numbers of their tokens, None for all places of the batch.
        cache: a view of the cache, to which the new tokens' keys and values are added.
        record_experts: whether to record which experts served each token.

    Raises:
        ValueError: a halting probability is NaN.
    """
    mask = inputs.new_mask
    shape = mask.shape
    # tokens that cannot leave can do without experts, unless attention is recorded; a piece may be padding only
    may_spare = options.compaction and not (options.record_states or in_graph())
    can_halt = strategy.halts or strategy.exits
    serves_live = may_spare and can_halt and not options.may_compact(strategy) and bool(mask.any())
    position_bias = block.attention.position_bias
    layout = SparseLayout(strategy, inputs, cache, position_bias, units, settings, serves_live=serves_live)
    trace = SparseTrace(record_experts)
    depth = iterate([block], strategy, layout, states, mask, options, trace)
    if depth.all_hidden_states is not None:
        spread = (place(each, units, mask.numel()).unflatten(0, shape) for each in depth.all_hidden_states)
        depth = depth._replace(all_hidden_states=tuple(spread))
    depth = depth._replace(attentions=trace.attention_maps("attentions", shape))
    extras = (trace.attention_maps("cross_attentions", shape), trace.stacked_experts(shape), trace.statistics)
    return depth._replace(extras=extras)
