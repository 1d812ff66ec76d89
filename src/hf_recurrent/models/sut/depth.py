"""Layout, cache and trace of a sparse universal block.

Shapes: B sequences, S new tokens, P tokens before them, K keys, n tokens present, k experts for each, d width, L
maximum of depth steps.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..common.exit_criteria import relative_change
from ..common.validation import has_gaps
from ..engine.depth_cache import DepthCache, DepthCacheView, DepthLayer
from ..engine.depth_loop import DepthOptions, DepthOutput, Trace, assemble, iterate
from ..engine.layouts import Finished, of_live, row_answers, select_units
from ..ops.attention import KeyValue, place
from ..ops.positions import token_positions
from .block import SUTBlock, SUTBlockOutput, SUTContext
from .halting import LogStickBreaking, LogStickBreakingState, remaining_mass
from .routed_attention import PackedQueries
from .routing import RouterStatistics


class SourceLayer(DepthLayer):
    """Keys and values of another stack's states, which serve every depth step and every new token."""

    def key_value(self) -> KeyValue | None:
        """(B, S', H, D) each, None before the first call."""
        if not self.is_initialized:
            return None
        return KeyValue(self.keys.transpose(1, 2), self.values.transpose(1, 2))

    def write(self, key_value: KeyValue) -> None:
        self.append(key_value.key.transpose(1, 2), key_value.value.transpose(1, 2), None)

    def crop(self, tokens_to_remove: int) -> None:
        """Nothing to do: removing target tokens does not change the source."""


class StackCache(DepthCache):
    """A layer for each depth step and, of a decoder with an encoder, one after them for the encoder's states."""

    def __init__(self, depth: int, signature: str, attends_to_source: bool):
        super().__init__(depth, signature)
        self.attends_to_source = attends_to_source
        if attends_to_source:
            self.layers.append(SourceLayer())

    @property
    def depth(self) -> int:
        return len(self.layers) - self.attends_to_source

    @property
    def source(self) -> SourceLayer | None:
        return self.layers[-1] if self.attends_to_source else None


class AttentionInputs(NamedTuple):
    """Inputs of attention, besides states: masks, and another stack's states."""

    mask: torch.Tensor  # (B, P + S) bool, True at tokens
    is_causal: bool
    memory: KeyValue | None = None  # (B, K', H, D) each
    memory_mask: torch.Tensor | None = None  # (B, K') bool


class SparseDepth(NamedTuple):
    """`DepthOutput` with the fields of sparse stacks."""

    depth: DepthOutput  # attentions: L of (B, k * H, S, P + S)
    cross_attentions: tuple[torch.Tensor, ...] | None  # L of (B, k * H, S, K')
    experts: tuple[torch.Tensor, ...] | None  # (B, S, L, k) of each router
    statistics: tuple[RouterStatistics, ...]  # of each router, over all steps


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


class SparseLayout:
    """Live tokens packed (n, d), and the keys and values of all tokens; see `engine.depth_loop.Layout`.

    New keys come from all tokens that were live before the latest decision, those that it halted included.
    """

    can_compact = True

    def __init__(
        self,
        strategy: LogStickBreaking,
        inputs: AttentionInputs,
        shape: tuple[int, int],
        cache: DepthCacheView | None,
        units: torch.Tensor | None = None,
    ):
        self.strategy, self.inputs, self.shape, self.cache = strategy, inputs, shape, cache
        self.device = inputs.mask.device
        self.offset = inputs.mask.shape[1] - shape[1]
        self.frozen: KeyValue | None = None
        # tokens with new keys, if they differ from those present, and their soft states
        self.leaving_units: torch.Tensor | None = None
        self.leaving_source: torch.Tensor | None = None
        # columns can serve as positions if there are no gaps, as in causal models
        has_other_positions = not inputs.is_causal and (torch.compiler.is_compiling() or has_gaps(inputs.mask))
        self.positions = token_positions(inputs.mask) if has_other_positions else None
        self.pack(units)

    def pack(self, units: torch.Tensor | None) -> None:
        """Lay out the tokens with these numbers (n,), all if None."""
        self.present = units
        queries = pack_queries(units, self.shape, self.offset, self.device)
        if self.positions is not None:
            queries = queries._replace(positions=queries.select(self.positions))
        self.queries = queries
        visible = queries.select(self.inputs.mask)[:, None, None]
        if self.inputs.is_causal:
            key = torch.arange(self.inputs.mask.shape[1], device=self.device)
            visible = visible & (key <= queries.columns[:, None, :, None])
        self.visible = visible
        self.memory_visible = None
        if self.inputs.memory is not None:
            self.memory_visible = queries.select(self.inputs.memory_mask)[:, None, None]

    @property
    def units(self) -> torch.Tensor:
        if self.present is None:
            return torch.arange(self.shape[0] * self.shape[1], device=self.device)
        return self.present

    def initial_state(self, hidden: torch.Tensor) -> LogStickBreakingState:
        mask = self.inputs.mask[:, self.offset :].flatten()
        return self.strategy.initial_state(hidden, mask if self.present is None else mask[self.present])

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        return live

    def features(self, state: LogStickBreakingState, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        return self.strategy.features(state, candidate)

    def row(self) -> torch.Tensor:
        """(n,) row of each token present."""
        return self.units // self.shape[1]

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        change = relative_change(before, after)
        if not by_row:
            return change
        row = self.row()
        change = torch.where(self.new_mask().flatten()[self.units], change, 0.0)
        return change.new_zeros(self.shape[0]).scatter_reduce(0, row, change, "amax")[row]

    def new_mask(self) -> torch.Tensor:
        return self.inputs.mask[:, self.offset :]

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        if not by_row:
            return of_live(predict, live, states)
        row, (batch, width) = self.row(), self.shape
        rows = torch.arange(batch, device=self.device)
        whole = place(states, self.present, batch * width).unflatten(0, self.shape)
        live_rows = torch.zeros(batch, device=self.device).index_put((row,), live.float(), accumulate=True) > 0
        return row_answers(predict, whole, self.new_mask(), live_rows, rows, (0, width))[row]

    def context(self, step: int) -> SUTContext:
        return SUTContext(
            queries=self.queries,
            visible=self.visible,
            shape=self.shape,
            fresh=self.present if self.leaving_source is None else self.leaving_units,
            frozen=self.frozen,
            past=None if self.cache is None else self.cache.past(step),
            memory=self.inputs.memory,
            memory_visible=self.memory_visible,
        )

    def advance(
        self, block: SUTBlock, state: LogStickBreakingState, step: int
    ) -> tuple[SUTBlockOutput, "SparseLayout"]:
        source = self.strategy.attended(state) if self.leaving_source is None else self.leaving_source
        weights = remaining_mass(getattr(state, "inner", state))
        output = block(state.hidden, weights, self.context(step), source)
        layout = copy.copy(self)
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
        layout = copy.copy(self)
        while self.cache.num_written < self.cache.depth:
            step = self.cache.num_written
            layout.write(step, *block.keys_values(self.strategy.attended(state), layout.context(step)))

    def compact(
        self, state: LogStickBreakingState, keep: torch.Tensor
    ) -> tuple["SparseLayout", LogStickBreakingState, Finished]:
        """Keep the tokens at `keep` (n,)."""
        finished = self.finish(state, (~state.live).nonzero().squeeze(-1))
        layout = copy.copy(self)
        layout.leaving_units, layout.leaving_source = self.present, self.strategy.attended(state)
        layout.pack(self.units[keep])
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
        super().step(layout, state, output)
        if self.record_experts:
            routed = (torch.where(state.live[:, None], index, -1) for index in output.experts)
            units = layout.units
            self.experts.append(tuple(assemble([index], units, self.num_units, -1) for index in routed))
        if self.statistics is None:
            self.statistics = output.statistics
        else:
            pairs = zip(self.statistics, output.statistics, strict=True)
            self.statistics = tuple(before.plus(new) for before, new in pairs)

    def stacked_experts(self, shape: tuple[int, int]) -> tuple[torch.Tensor, ...] | None:
        """(B, S, L, k) of each router, -1 at steps never taken."""
        if not self.experts:
            return None
        missing = self.options.max_steps - len(self.experts)
        stacks = []
        for taken in zip(*self.experts, strict=True):
            values = [*taken, *[torch.full_like(taken[0], -1)] * missing]
            stacks.append(torch.stack(values, dim=1).unflatten(0, shape))
        return tuple(stacks)

    def attention_maps(self, name: str) -> tuple[torch.Tensor, ...] | None:
        """Attention of each step, (B, H, S, k, K) -> (B, k * H, S, K), the heads of a token's first expert first."""
        values = self.recorded(name)
        return None if values is None else tuple(each.permute(0, 3, 1, 2, 4).flatten(1, 2) for each in values)


def run_sparse(
    block: SUTBlock,
    strategy: LogStickBreaking,
    hidden: torch.Tensor,
    inputs: AttentionInputs,
    options: DepthOptions,
    cache: DepthCacheView | None = None,
    record_experts: bool = False,
) -> SparseDepth:
    """Apply one shared block until every token has halted (Algorithm 1 of the SUT paper).

    Args:
        hidden: (B, S, d) input states.
        cache: a view of the cache, to which the new tokens' keys and values are added.

    Raises:
        ValueError: a halting probability is NaN.
    """
    shape = hidden.shape[:2]
    mask, states, units = inputs.mask[:, -shape[1] :], hidden.flatten(0, 1), None
    # with compaction padding can be dropped from the start; a piece may be padding only
    if options.may_compact(strategy) and not bool(mask.all()) and bool(mask.any()):
        units = mask.flatten().nonzero().squeeze(-1)
        states = states.index_select(0, units)
    trace = SparseTrace(record_experts)
    layout = SparseLayout(strategy, inputs, shape, cache, units)
    depth = iterate([block], strategy, layout, states, mask, options, trace)
    if depth.all_hidden_states is not None:
        depth = depth._replace(all_hidden_states=tuple(each.unflatten(0, shape) for each in depth.all_hidden_states))
    depth = depth._replace(attentions=trace.attention_maps("attentions"))
    cross_attentions = trace.attention_maps("cross_attentions")
    return SparseDepth(depth, cross_attentions, trace.stacked_experts(shape), trace.statistics)
