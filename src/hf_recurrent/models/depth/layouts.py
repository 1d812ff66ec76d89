"""Memory layouts of the units that are still in the depth loop, and how halted ones leave it.

A batch of B rows and S columns has its tokens at `#`, and padding at `.`:

    PaddedLayout            PackedLayout, rows leave           PackedLayout, tokens leave

    # # # # .               # # # # # # # # # #                live tokens:   # # # # #
    # # # # #               (N, E): nothing but attention,     keys by place: # # x x .
    # . . . .               which spreads them, is computed                   x # # x #
                            for padding
    (R, W, E)                                                  x: keys of tokens that have halted

    Rows that halt are      Rows that halt are dropped         Tokens that halt leave the queries, and their keys are
    dropped, with columns   with their tokens.                 frozen; rows without live tokens are dropped.
    that only they used.

Either takes a view of a cache, to which keys, values and running sums of each step are written. A padded layout then
keeps all columns, and a packed one, whose cache must be empty, all rows.

Layouts are immutable: `advance` and `compact` return a new one. Shapes: R rows present, W columns present, N tokens
present, E width, F features; a batch has B rows and S columns, and its tokens are numbered `b * S + s`.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import nn

from ..ops.attention import KeyValue, PackedContext, Rotations, varlen_arguments
from ..ops.graphs import in_graph
from ..ops.layers import at_least_float32, computing_dtype
from ..ops.masks import as_implemented, is_flash, mapped, valid_keys
from ..ops.row_groups import QUERIES_PER_ROW, GroupedRows, RowGroup, Spread, place, row_ranges
from ..ops.transformer_block import BlockOutput
from .exit_criteria import relative_change
from .halting import FixedDepth, HaltingStrategy, map_state, select_units

# of queries with one key, instead of which a key and a value can be moved
PAIRS_PER_MOVE = 4
# of padding; with less, gathering and spreading tokens at every step would not pay
MIN_SHARE_TO_PACK = 1 / 16
# products of padding with a square matrix of the model's width, likewise: those of 16 tokens of width 128
MIN_PRODUCTS_TO_PACK = 1 << 18
# Tokens times their squared width in a depth step, below which the host takes longer to launch the step than the
# accelerator to compute it: on an H200 steps of 33,000 tokens of width 1,024 took 1.3 (UT) and 1.1 (GUT) times as long
# where halted units were left out as where they were masked.
MIN_PRODUCTS_ON_ACCELERATOR = 1 << 36


def is_launch_bound(device: torch.device, num_tokens: int, width: int) -> bool:
    """Whether a step of so many tokens of this width would take no less time with fewer; False in a traced graph."""
    # a graph leaves nothing out, and the answer would bind it to these sizes
    if device.type == "cpu" or in_graph():
        return False
    return num_tokens * width**2 < MIN_PRODUCTS_ON_ACCELERATOR


def packing_pays(num_places: int, num_tokens: int, width: int) -> bool:
    """Whether so many of the places that would be computed, for states so wide, are padding that packing pays."""
    padding = num_places - num_tokens
    return num_tokens > 0 and padding >= max(MIN_SHARE_TO_PACK * num_places, MIN_PRODUCTS_TO_PACK / width**2)


def lay_out(
    config,
    strategy: HaltingStrategy,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    context: NamedTuple,
    cache,
    options,
    leaving: str | None = None,
    packed: type | None = None,
) -> "Layout":
    """The layout of a batch of states (B, S, E), for a mask (B, S) of its tokens.

    Args:
        context: inputs of attention, with `select` and `pack_tokens`.
        cache: a forward pass's view of the cache; None without one.
        options: `DepthOptions`.
        leaving: what may leave the loop once it has halted: "rows", "tokens" one by one, or None for nothing.
        packed: the class of packed layouts; None to compute padding, and let tokens leave with their rows alone.
    """
    width, records = hidden.shape[-1], options.record_states or in_graph()
    launch_bound = is_launch_bound(mask.device, mask.numel(), width)
    first = cache is not None and cache.is_empty and mask.shape[1] > 1
    first = first and not (torch.is_grad_enabled() or in_graph())
    # queries may not be some of a row's tokens where causal FlashAttention wants all of them, in order, nor where
    # gradients would go through keys of other steps
    partial = not (config.is_causal and is_flash(config))
    partial = partial and not (torch.is_grad_enabled() and keeps_keys(config, strategy))
    partial = partial and options.may_compact(strategy) and not launch_bound
    partial = partial and packed is not None
    if leaving == "tokens" and partial and (cache is None or (first and bool(mask.any()))):
        padded = options.full or not (is_flash(config) or packing_pays(mask.numel(), int(mask.sum()), width))
        if padded and not keeps_keys(config, strategy):
            layout = PaddedLayout(config, strategy, mask, context, cache, leaving, options.full)
            layout.packed = packed
            return layout
        return packed(config, strategy, mask, context, cache, leaving)
    # with cached tokens halted ones are still attended to, so that they leave with their rows
    if leaving == "tokens":
        leaving = None if cache is None and packed is not None else "rows"
    # packed kernels take the batch as it is, and a cache that gradients go through is not written in place
    if cache is not None and (torch.is_grad_enabled() or getattr(context, "packing", None) is not None):
        leaving = None
    may_pack = cache is None or (first and isinstance(strategy, FixedDepth))
    # padded FlashAttention packs its rows anew at each step
    too_small = launch_bound and not is_flash(config)
    may_pack = may_pack and not (options.full or records or too_small or keeps_keys(config, strategy))
    if may_pack and packed is not None and packing_pays(mask.numel(), int(mask.sum()), width):
        return packed(config, strategy, mask, context, cache, leaving if cache is None else None)
    return PaddedLayout(config, strategy, mask, context, cache, leaving, options.full)


def keeps_keys(config, strategy: HaltingStrategy) -> bool:
    """Whether tokens that halt leave the keys of their last step to later ones, see `AdaptiveDepthConfig`."""
    halts = (strategy.halts or strategy.exits) and not strategy.needs_every_step
    return halts and getattr(config, "keeps_last_keys", False)


def masked_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens (Eq. 14), zeros without any: (R, W, E), (R, W) -> (R, E)."""
    weights, number = mask.to(states.dtype), mask.sum(-1, keepdim=True).clamp_min(1).float()
    if computing_dtype(states) is torch.float16:
        # their sum may be too large for it; powers of two are exact
        scale = torch.ldexp(torch.ones_like(number), -number.log2().ceil())
        weights, number = weights * scale.to(states.dtype), number * scale
    total = torch.bmm(weights[:, None], states).squeeze(1)
    return (at_least_float32(total) / number).to(total.dtype)


def pool(states: torch.Tensor, mask: torch.Tensor, strategy: str) -> torch.Tensor:
    """One vector for each sequence, wherever its padding is: (B, S, E), (B, S) bool -> (B, E).

    A sequence without tokens, as among the pieces of sequences that are read with a cache, has zeros.
    """
    if strategy == "mean":
        return masked_mean(states, mask)
    order = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    # the first column if there is no token
    index = (mask * (order if strategy == "end" else order.flip(0))).argmax(-1)
    chosen = states.gather(1, index[:, None, None].expand(-1, 1, states.shape[-1])).squeeze(1)
    return torch.where(mask.any(-1, keepdim=True), chosen, 0.0)


def running_sums(states: torch.Tensor, mask: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
    """Sums over each token and those before it, from the sums (R, F) `before` the first: (R, W, F) in float32."""
    states = torch.where(mask[..., None], states, 0.0).float()
    if states.shape[1] == 1 and not in_graph():
        return states if before is None else states + before[:, None]
    if before is not None:
        states = torch.cat((states[:, :1] + before[:, None], states[:, 1:]), dim=1)
    return states.cumsum(1)


def used_columns(mask: torch.Tensor) -> slice:
    """The narrowest range of columns that holds every valid token of (R, W)."""
    columns = mask.any(0).nonzero().squeeze(-1)
    return slice(int(columns[0]), int(columns[-1]) + 1)


def of_live(function: Callable[..., torch.Tensor], live: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
    """`function` of the entries of states (n, ...) that are `live` (n,) -> (n, ...), of any value for the others."""
    # a traced graph must not depend on data, and attention kernels refuse empty batches
    if in_graph() or bool(live.all()) or not bool(live.any()):
        return function(*states)
    index = live.nonzero().squeeze(-1)
    found = function(*(tensor.index_select(0, index) for tensor in states))
    return found.new_zeros(live.shape[0], *found.shape[1:]).index_copy(0, index, found)


class Finished(NamedTuple):
    """Units that left the loop. Numbers are None if they are all of the batch, in order."""

    hidden_states: torch.Tensor  # (m, E), or (B, S, E)
    ponder_cost: torch.Tensor | None  # (n,), or (B, S) for tokens
    steps: torch.Tensor | None  # likewise
    tokens: torch.Tensor | None  # (m,) numbers of their tokens
    units: torch.Tensor | None  # (n,) numbers of the units


class Layout:
    """Memory layout of the units of a halting strategy.

    Layouts also define `units` (I,), numbers of the units present, of sequences or of tokens `b * S + s`;
    `initial_state(hidden)` from the states of a batch; `advance(block, state, step)`, the block's output for one step
    and the layout after it; `compact(state, keep, drop)`, the layout and the state of the units or rows at `keep` (n,),
    without those at `drop` (m,); and `finish(state, index)`, the output of the units or rows at `index`, or of all.

    Args:
        strategy: the halting strategy, whose `token_units` says what the unit is.
        mask: (B, S) bool, True at tokens.
        context: of the block for the batch.
        cache: a forward pass's view of the cache (`DepthCacheView`, `ChunkCacheView`), None without a cache.
        leaving: what may leave, see `lay_out`.
        full: whether the mask is known to have no padding.
    """

    full = False

    def __init__(
        self,
        config,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        context: NamedTuple,
        cache=None,
        leaving: str | None = None,
        full: bool = False,
    ):
        self.config, self.strategy, self.cache, self.full = config, strategy, cache, full
        self.mask, self.context = mask, context  # (R, W) bool
        self.leaves = leaving  # see `lay_out`
        # whether nobody reads the states of rows that have halted
        self.discards_halted = leaving == "rows" and cache is None and not strategy.token_units
        self.keeps_keys = keeps_keys(config, strategy)
        self.num_columns, self.start = mask.shape[1], 0  # S, and the number of the first column present
        self.rows: torch.Tensor | None = None  # (R,) their numbers, None for all of the batch
        # see `ends`, and (R, W, 1) tokens until each, earlier calls' included; None before they are asked for
        self.row_ends: torch.Tensor | None = None
        self.counts: torch.Tensor | None = None

    def one_by_one(self, state: NamedTuple) -> tuple["Layout", NamedTuple]:
        """The layout that tokens can leave, where they leave one by one, and its state; before the first does."""
        return self, state

    def lays_out(self, states: torch.Tensor) -> torch.Tensor:
        """States of the tokens present, or values of the token units, in rows: (R, W, ...), of any value at padding."""
        return states

    def packs(self, rows: torch.Tensor) -> torch.Tensor:
        """The inverse of `lays_out`."""
        return rows

    def row_numbers(self) -> torch.Tensor:
        """(R,)"""
        return torch.arange(self.mask.shape[0], device=self.mask.device) if self.rows is None else self.rows

    @property
    def columns(self) -> tuple[int, int]:
        """The range of the batch's columns that are present."""
        return self.start, self.start + self.mask.shape[1]

    @property
    def lengths(self) -> torch.Tensor:
        """Valid tokens of each unit's sequence, for each unit."""
        return self.for_units(self.mask.sum(-1))

    def for_units(self, values: torch.Tensor) -> torch.Tensor:
        """Values of rows (R, ...) for each unit."""
        if not self.strategy.token_units:
            return values
        return self.packs(values[:, None].expand(-1, self.mask.shape[1], *values.shape[1:]))

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        """Bool, whether each unit or row that `compact` can select has a live unit."""
        return live

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        """Input of the halting head, (R, F), (R, W, F) or (N, F)."""
        features = self.strategy.features(state, candidate)
        if not self.strategy.token_units:
            rows = self.lays_out(features)
            return rows.mean(1) if self.full else masked_mean(rows, self.mask)
        if not self.strategy.running_mean:
            return features
        counts = self.counts
        if counts is None:
            counts = self.mask.cumsum(-1)
            counts = counts if self.cache is None else counts + self.cache.past_counts[:, None]
            counts = counts.clamp_min(1)[..., None]
            # a loop in a graph keeps nothing
            self.counts = None if in_graph() else counts
        return self.packs(self.running_sums(features, step) / counts).to(features.dtype)

    def running_sums(self, features: torch.Tensor, step: int) -> torch.Tensor:
        """Sums over each token and those before it, earlier calls' included, which are cached: (R, W, F)."""
        before = None if self.cache is None else self.cache.sums(step)
        sums = running_sums(self.features_in_rows(features), self.mask, before)
        if self.cache is not None:
            self.cache.write_sums(step, sums)
        return sums

    def features_in_rows(self, features: torch.Tensor) -> torch.Tensor:
        """Features of the halting head (R, W, F), those of halted tokens included."""
        return features

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        """Relative change of the states of each unit, or the largest of each unit's row."""
        change = relative_change(before, after)
        return self.for_units(torch.where(self.mask, self.lays_out(change), 0.0).amax(-1)) if by_row else change

    def ends(self, pooling: str) -> torch.Tensor:
        """Index (R,) of each row's last token, or of its first, among the places (R, W), row-major."""
        (num_rows, width), device = self.mask.shape, self.mask.device
        order = torch.arange(1, width + 1, device=device)
        column = (self.mask * (order if pooling == "end" else order.flip(0))).argmax(-1)
        return torch.arange(0, num_rows * width, width, device=device) + column

    def pool(self, states: torch.Tensor, pooling: str) -> torch.Tensor:
        """One state for each row (R, E), as of `config.pooling`; of any value in rows without tokens."""
        if pooling == "mean" or in_graph():
            return pool(self.lays_out(states), self.mask, pooling)
        if self.row_ends is None:
            self.row_ends = self.ends(pooling)
        return self.flat(states).index_select(0, self.row_ends)

    def flat(self, states: torch.Tensor) -> torch.Tensor:
        """States among which `ends` are counted."""
        return self.lays_out(states).flatten(0, 1)

    def answers(
        self,
        predict: Callable[..., torch.Tensor],
        states: torch.Tensor,
        live: torch.Tensor,
        by_row: bool,
        pooling: str | None = None,
    ) -> torch.Tensor:
        """Predictions of live units, or of their rows, for each unit; of any value for the others.

        Args:
            predict: of tokens or of pooled states `predict(states)` (n, E) -> (n, ...); of rows `predict(states, mask,
                rows, columns)`, for states (n, W, E), mask (n, W), numbers (n,) of the rows and the range of columns
                present -> (n, ...), or (n / 2, ...) if the rows are the first and the second sentences of pairs.
            pooling: how states of rows are pooled; None if `predict` does it.
        """
        if not by_row:
            return of_live(predict, live.flatten(), states.flatten(0, -2)).unflatten(0, live.shape)

        def of_rows(*parts: torch.Tensor) -> torch.Tensor:
            found = predict(*parts)
            pairs = parts[0].shape[0] // found.shape[0]
            return found if pairs == 1 else found.repeat(pairs, *(1,) * (found.dim() - 1))

        if pooling is not None:
            # a head on one state of each row costs less than to gather the live rows
            return self.for_units(of_rows(self.pool(states, pooling)))
        live = self.lays_out(live).any(-1) if self.strategy.token_units else live
        parts = self.lays_out(states), self.mask, self.row_numbers()
        return self.for_units(of_live(lambda *parts: of_rows(*parts, self.columns), live, *parts))

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Write keys, values and sums of the skipped steps, those of final states, for later tokens."""

    def write_skipped(self, block: nn.Module, state: NamedTuple) -> None:
        """`complete_cache` of the present tokens, by keys and values of `final_keys`."""
        strategy, cache, new = self.strategy, self.cache, None
        for step in range(cache.num_written, cache.depth):
            if self.keeps_keys:
                new = cache.newest(step - 1)
            elif new is None:
                new = self.final_keys(block, state)
            cache.write_new(step, *new)
        if strategy.running_mean:
            features = strategy.features(state, state.hidden if strategy.needs_candidate else None)
            for step in range(max(cache.num_written_sums, strategy.first_decision), cache.depth):
                self.running_sums(features, step)


class PaddedLayout(Layout):
    """Rows of a padded rectangle. The unit is the row or the token; compaction drops rows whose units have all halted.

    With a cache the keys, values and running sums of earlier tokens are read from it, step by step.
    """

    # layouts and states of rows that left a call with a cache
    left: tuple[tuple["PaddedLayout", NamedTuple], ...] = ()
    # keys and values (R, H, W, D) of the latest step, of each of its layers, where halted tokens keep them
    latest: tuple[KeyValue, ...] | None = None
    # class of the layout that takes the place of this one when the first token leaves; None if tokens leave with rows
    packed: type | None = None

    @property
    def units(self) -> torch.Tensor:
        rows = self.row_numbers()
        return self.tokens_of(rows) if self.strategy.token_units else rows

    def tokens_of(self, rows: torch.Tensor) -> torch.Tensor:
        """Numbers of the tokens of rows (n,), of all columns present."""
        return (rows[:, None] * self.num_columns + torch.arange(*self.columns, device=rows.device)).flatten()

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        return self.strategy.initial_state(hidden, self.mask if self.strategy.token_units else self.mask.any(-1))

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        if self.packed is not None:
            return live.flatten()
        return live.any(-1) if self.strategy.token_units else live

    def one_by_one(self, state: NamedTuple) -> tuple[Layout, NamedTuple]:
        if self.packed is None:
            return self, state
        layout = self.packed(self.config, self.strategy, self.mask, self.context, self.cache, self.leaves)

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.flatten(0, 1).index_select(0, layout.tokens)

        return layout.one_by_one(map_state(state, pack, pack))

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PaddedLayout"]:
        context = self.context if self.cache is None else self.cache.context(self.context, step)
        source = self.strategy.attended(state)
        if self.latest is not None:
            context = context._replace(kept=~state.live, latest=self.latest)
        output = block(state.hidden, context) if source is None else block(state.hidden, context, source)
        if self.cache is not None:
            self.cache.write(step, output.key, output.value)
        if not self.keeps_keys:
            return output, self
        layout = copy.copy(self)
        newest = (output.key, output.value) if self.cache is None else self.cache.newest(step)
        layout.latest = tuple(KeyValue(*pair) for pair in zip(*newest, strict=True))
        return output, layout

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        """All rows, or those at `index` (n,)."""
        if index is None and self.rows is None:
            return Finished(*self.strategy.output(state), None, None)
        found, rows = self.strategy.output(state), self.row_numbers()
        if index is not None:
            *found, rows = (None if each is None else each.index_select(0, index) for each in (*found, rows))
        hidden, cost, steps = found
        tokens = self.tokens_of(rows)
        if self.strategy.token_units:
            cost, steps, rows = cost.flatten(), steps.flatten(), tokens
        return Finished(hidden.flatten(0, 1), cost, steps, tokens, rows)

    def compact(self, state: NamedTuple, keep: torch.Tensor, drop: torch.Tensor) -> tuple["PaddedLayout", NamedTuple]:
        columns = used_columns(self.mask[keep]) if self.cache is None else slice(0, self.num_columns)
        layout, kept = self.select(state, keep, columns)
        if self.cache is not None:
            layout.left = (*self.left, self.select(state, drop, columns))
        return layout, kept

    def select(self, state: NamedTuple, rows: torch.Tensor, columns: slice) -> tuple["PaddedLayout", NamedTuple]:
        """Layout and state of the rows (n,) at these places, in some of the columns present."""

        def of_tokens(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[:, columns].index_select(0, rows)

        def of_units(tensor: torch.Tensor) -> torch.Tensor:
            return of_tokens(tensor) if self.strategy.token_units else tensor.index_select(0, rows)

        layout = copy.copy(self)
        layout.left = ()
        layout.mask, layout.rows = of_tokens(self.mask), self.row_numbers()[rows]
        layout.start, layout.row_ends, layout.counts = self.start + columns.start, None, None
        layout.context = self.context.select(rows, columns if self.cache is None else slice(None))
        layout.cache = None if self.cache is None else self.cache.of_rows(rows)
        layout.latest = mapped(self.latest, lambda states: states[:, :, columns].index_select(0, rows))
        return layout, map_state(state, of_units, of_tokens)

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        if self.cache is None:
            return
        for layout, final in (*self.left, (self, state)):
            layout.write_skipped(block, final)

    def final_keys(self, block: nn.Module, state: NamedTuple) -> list[torch.Tensor]:
        source = self.strategy.attended(state)
        projected = block.keys_values(state.hidden if source is None else source, self.context)
        return [states.transpose(1, 2) for states in projected]


class Halted(NamedTuple):
    """Tensors of halted tokens of a packed layout, whose live tokens attend to them."""

    # keys and values: buffers (R * W, H, D), of live tokens too; with gradients pieces (m, H, D); None before a step
    frozen: KeyValue | tuple[KeyValue, ...] | None
    places: torch.Tensor | None  # of all pieces (F,), R * W in rows that left; None for buffers
    hidden: torch.Tensor | None  # (R * W, E) final states, zeros elsewhere, for running means
    # of the tokens of the last compaction, whose final states' keys the next step computes: places and sources
    released: tuple[torch.Tensor, torch.Tensor] | None = None

    def after_step(self, key: torch.Tensor, value: torch.Tensor, number: int) -> "Halted":
        """Those after a step with this output, and so many live tokens."""
        if self.places is None:
            return self._replace(frozen=KeyValue(key, value), released=None)
        if self.released is None:
            return self
        # a view would keep the keys of live tokens; the newest come first, so that their order stays
        newest = KeyValue(key[number:].clone(), value[number:].clone())
        places = torch.cat((self.released[0], self.places))
        return self._replace(frozen=(newest, *self.frozen), places=places, released=None)


class PackedLayout(Layout):
    """Tokens packed (N, E), spread for attention only. The unit is the row or the token.

    Rows leave when their units have all halted. Or tokens leave one by one (`halted`): then they are no longer queries,
    but still keys. The step after a compaction computes the keys of their final states, which are frozen from then on.
    """

    halted: Halted | None = None

    def __init__(
        self,
        config,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        context: NamedTuple,
        cache=None,
        leaving: str | None = None,
    ):
        super().__init__(config, strategy, mask, context._replace(attention_mask=None), cache, leaving)
        self.tokens = mask.flatten().nonzero().squeeze(-1)  # (N,) their numbers
        self.set_places(self.tokens)
        if leaving == "tokens" and self.keeps_keys:
            self.begin()

    def one_by_one(self, state: NamedTuple) -> tuple["PackedLayout", NamedTuple]:
        if self.leaves != "tokens" or self.halted is not None:
            return self, state
        layout = copy.copy(self)
        layout.begin()
        return layout, state

    def begin(self) -> None:
        """Let tokens leave one by one."""
        # a buffer of each step would be kept for its backward pass
        pieces = ((), self.row.new_empty(0)) if torch.is_grad_enabled() else (None, None)
        self.halted = Halted(*pieces, None)
        if self.cache is None:
            self.take_rows(self.row_order(self.mask.sum(-1)), self.spread.places)

    def set_places(self, places: torch.Tensor) -> None:
        """Hold the tokens at these places (N,) of the mask."""
        num_rows, width = self.mask.shape
        self.row = places // width  # (N,)
        self.spread = Spread(places, num_rows, width)
        self.__dict__.pop("packed_context", None)
        self.row_ends = self.counts = None

    def ends(self, pooling: str) -> torch.Tensor:
        counts = torch.bincount(self.row, minlength=self.mask.shape[0])
        after = counts.cumsum(0)
        return after - 1 if pooling == "end" else after - counts

    def flat(self, states: torch.Tensor) -> torch.Tensor:
        return states

    @property
    def units(self) -> torch.Tensor:
        return self.tokens if self.strategy.token_units else self.row_numbers()

    def lays_out(self, states: torch.Tensor) -> torch.Tensor:
        return self.spread.unpack(states)

    def packs(self, rows: torch.Tensor) -> torch.Tensor:
        return self.spread.gather(rows)

    def for_units(self, values: torch.Tensor) -> torch.Tensor:
        return values.index_select(0, self.row) if self.strategy.token_units else values

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        by_row = self.strategy.token_units and self.leaves != "tokens"
        return self.lays_out(live).any(-1) if by_row else live

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        hidden = hidden.flatten(0, 1).index_select(0, self.tokens)
        if self.strategy.token_units:
            return self.strategy.initial_state(hidden, torch.ones_like(self.row, dtype=torch.bool))
        state = self.strategy.initial_state(hidden, self.mask.any(-1))
        return map_state(state, lambda tensor: tensor, lambda tensor: tensor, self.row)

    def features_in_rows(self, features: torch.Tensor) -> torch.Tensor:
        halted = None if self.halted is None else self.halted.hidden
        if halted is not None:
            halted = halted.repeat(1, features.shape[-1] // halted.shape[-1])
        return self.spread.unpack(features, halted)

    def in_context(self, places: torch.Tensor) -> torch.Tensor:
        """Numbers of the tokens at these places among the rows and columns of the batch's context."""
        width = self.spread.width
        return places // width * self.num_columns + self.start + places % width

    @cached_property
    def packed_context(self) -> NamedTuple:
        """Inputs of attention."""
        spread, mask, halted, batch = self.spread, self.mask, self.halted, self.context
        tokens = self.in_context(spread.places)
        if halted is None:
            return batch.pack_tokens(self.config, spread, mask, tokens)
        fresh = places = self.with_released(spread.places, 0)
        num_places = mask.numel()
        if halted.places is not None:
            places = torch.cat((fresh, halted.places))
        # without the released tokens, later keys will not fill all places
        full = halted.released is None and places.shape[0] == num_places
        every_place = torch.arange(num_places, device=places.device)
        index = None if full and torch.equal(places, every_place) else places
        if index is not None and halted.places is not None:
            # any token where there is none; one place more, for tokens that have none
            order = torch.arange(places.shape[0], device=places.device)
            index = order.new_zeros(num_places + 1).index_copy_(0, places, order)[:num_places]
        context = PackedContext(
            Rotations(batch.rotations_of(tokens).query, batch.rotations_of(self.in_context(fresh)).key),
            spread,
            num_key_places=num_places,
            frozen=halted.frozen,
            key_index=index,
            memory=batch.memory,
            key_scale=batch.scale_of(every_place),
        )
        queries_per_row = torch.bincount(self.row, minlength=mask.shape[0])
        if is_flash(self.config):
            varlen = varlen_arguments(queries_per_row, mask.sum(-1))
            return replace(context, varlen=varlen, valid_keys=mask.flatten().nonzero().squeeze(-1))
        return replace(context, grouped=self.grouped(queries_per_row))

    def grouped(self, queries_per_row: torch.Tensor) -> GroupedRows:
        """Rows by their numbers of queries (R,), and the keys of each group."""
        (num_rows, width), device = self.mask.shape, self.mask.device
        ends = (self.mask * torch.arange(1, width + 1, device=device)).amax(-1)
        counts, ends = torch.stack((queries_per_row, ends)).tolist()
        ranges = row_ranges(counts, ends) if device.type == "cpu" else [(0, num_rows)]
        columns = self.spread.places % width
        # tokens of a row are next to each other
        index = torch.arange(self.row.shape[0], device=device)
        first = index.new_zeros(num_rows).scatter_reduce(0, self.row, index, "amin", include_self=False)

        def complete(tokens: torch.Tensor, rows: torch.Tensor) -> RowGroup:
            start, stop = int(rows[0]), int(rows[-1]) + 1
            keys = slice(start, stop), slice(max(1, *ends[start:stop]))
            seen = self.mask[keys]
            if not self.config.is_causal:
                return RowGroup(tokens, valid_keys(self.config, seen), keys)
            visible = torch.arange(seen.shape[1], device=device) <= columns[tokens][..., None]
            visible = (visible & seen[:, None])[:, None]
            return RowGroup(tokens, as_implemented(self.config, visible, torch.float32), keys)

        groups = [(torch.arange(start, stop, device=device), max(1, *counts[start:stop])) for start, stop in ranges]
        return GroupedRows.of_rows(first, queries_per_row, self.row, groups, complete)

    def with_released(self, values: torch.Tensor, field: int) -> torch.Tensor:
        """Places (0) or sources (1) of the tokens present, followed by those of released ones."""
        released = self.halted.released
        return values if released is None else torch.cat((values, released[field]))

    def source(self, state: NamedTuple) -> torch.Tensor:
        """States that keys and values are computed from."""
        source = self.strategy.attended(state)
        return state.hidden if source is None else source

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PackedLayout"]:
        context = self.packed_context if self.cache is None else self.cache.of_packed(self.packed_context, step)
        if self.halted is None:
            source = self.strategy.attended(state)
            output = block(state.hidden, context, *(() if source is None else (source,)))
            if self.cache is not None:
                spread = (self.spread.unpack(states).transpose(1, 2) for states in (output.key, output.value))
                self.cache.write_new(step, *spread)
            return output, self
        context = replace(context, kept=~state.live) if self.keeps_keys else context
        output = block(state.hidden, context, self.with_released(self.source(state), 1))
        if self.cache is not None:
            # the next step overwrites them
            self.cache.write_new(step, *self.by_head(output.key.clone(), output.value.clone()))
        layout, number, index = copy.copy(self), self.row.shape[0], context.key_index
        layout.halted = halted = self.halted.after_step(output.key, output.value, number)
        rotations = context.rotations._replace(key=mapped(context.rotations.key, lambda table: table[:number]))
        layout.packed_context = replace(
            self.packed_context,
            frozen=halted.frozen,
            key_index=index[:number] if index is not None and halted.places is None else index,
            rotations=rotations,
        )
        return output, layout

    def by_head(self, *buffers: torch.Tensor) -> list[torch.Tensor]:
        """Keys and values (R * W, H, D) as caches hold them, (R, H, W, D)."""
        return [states.unflatten(0, self.mask.shape).transpose(1, 2) for states in buffers]

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        """All units; or the rows, or tokens if they leave one by one, at `index` (n,)."""
        hidden, cost, steps = self.strategy.output(state)
        if index is None:
            return Finished(hidden, cost, steps, self.tokens, self.units)
        tokens = self.tokens_of(index)
        units = tokens if self.strategy.token_units else index
        found = (None if each is None else each.index_select(0, units) for each in (cost, steps))
        return Finished(hidden.index_select(0, tokens), *found, self.tokens[tokens], self.units[units])

    def tokens_of(self, index: torch.Tensor) -> torch.Tensor:
        """Indices (m,) of the tokens of the rows at `index` (n,), or `index` if tokens leave one by one."""
        if self.halted is not None:
            return index
        return torch.zeros_like(self.mask[:, 0]).index_fill(0, index, True)[self.row].nonzero().squeeze(-1)

    def compact(self, state: NamedTuple, keep: torch.Tensor, drop: torch.Tensor) -> tuple["PackedLayout", NamedTuple]:
        chosen, layout = self.tokens_of(keep), copy.copy(self)
        layout.tokens = self.tokens[chosen]
        places, rows = self.spread.places[chosen], keep
        if self.halted is not None:
            live = torch.bincount(self.row[chosen], minlength=self.mask.shape[0])
            stays = live[self.row[drop]] > 0
            layout.halted = self.freeze(state, drop, drop if self.cache is not None else drop[stays])
            rows = self.row_order(live, live > 0) if self.cache is None and self.moving_pays(live) else None
        if rows is None:
            layout.set_places(places)
        else:
            layout.take_rows(rows, places)

        def of_tokens(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.index_select(0, chosen)

        if self.strategy.token_units:
            return layout, map_state(state, of_tokens, of_tokens)
        return layout, map_state(state, lambda tensor: tensor.index_select(0, keep), of_tokens, layout.row)

    def freeze(self, state: NamedTuple, drop: torch.Tensor, released: torch.Tensor) -> Halted:
        """Tensors of halted tokens with those at `drop` (n,), of which those `released` (m,) are attended to."""
        halted, places = self.halted, self.spread.places
        if self.strategy.running_mean:
            hidden = place(state.hidden[drop], places[drop], self.mask.numel(), halted.hidden)
            halted = halted._replace(hidden=hidden)
        if self.keeps_keys or not released.numel():
            return halted._replace(released=None)
        return halted._replace(released=(places[released], self.source(select_units(state, released))))

    def row_order(self, counts: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
        """The order of the `kept` (R,) rows with so many queries (R,): most first, so that similar ones are together.

        Packed kernels want rows in the order of their tokens.
        """
        if is_flash(self.config):
            return torch.arange(counts.shape[0], device=counts.device) if kept is None else kept.nonzero().squeeze(-1)
        order = counts.argsort(descending=True, stable=True)
        return order if kept is None else order[: int(kept.sum())]

    def moving_pays(self, live: torch.Tensor) -> bool:
        """Whether rows with so many live tokens (R,) are better put in order, and the others dropped."""
        if self.halted.frozen is None or torch.is_grad_enabled() or live.device.type != "cpu" or is_flash(self.config):
            return True
        counts, spared, moved = live.tolist(), 0, 0
        for group in self.packed_context.grouped.groups:
            rows, columns = group.keys
            present = [count + QUERIES_PER_ROW for count in counts[rows] if count]
            spared += columns.stop * ((rows.stop - rows.start) * max(present, default=0) - sum(present))
            moved += len(present) * self.mask.shape[1]
        return spared > PAIRS_PER_MOVE * moved

    def take_rows(self, rows: torch.Tensor, places: torch.Tensor) -> None:
        """Hold the `rows` (n,) alone, in this order, with tokens at `places` (N,), and the columns that they use."""
        columns, (num_rows, width) = used_columns(self.mask[rows]), self.mask.shape
        # one more than there are, for rows that left
        new_row = rows.new_full((num_rows + 1,), rows.shape[0])
        new_row[rows] = torch.arange(rows.shape[0], device=rows.device)
        new_width = columns.stop - columns.start

        def moved(places: torch.Tensor) -> torch.Tensor:
            row, column = new_row[places // width], places % width - columns.start
            return row * new_width + torch.where(row < rows.shape[0], column, 0)

        def select(buffer: torch.Tensor) -> torch.Tensor:
            return buffer.unflatten(0, (num_rows, width))[:, columns].index_select(0, rows).flatten(0, 1)

        halted = self.halted
        self.rows, self.context = self.row_numbers()[rows], self.context.select(rows)
        self.mask, self.start = self.mask[rows, columns], self.start + columns.start
        if halted is not None:
            released = halted.released
            self.halted = Halted(
                mapped(halted.frozen, select) if halted.places is None else halted.frozen,
                mapped(halted.places, moved),
                mapped(halted.hidden, select),
                None if released is None else (moved(released[0]), released[1]),
            )
        self.set_places(moved(places))

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        if self.cache is None or self.leaves is None:
            return
        layout, state = self.one_by_one(state)
        layout.write_skipped(block, state)

    def final_keys(self, block: nn.Module, state: NamedTuple) -> list[torch.Tensor]:
        places = self.with_released(self.spread.places, 0)
        context = self.context._replace(rotations=self.context.rotations_of(self.in_context(places)))
        projected = block.keys_values(self.with_released(self.source(state), 1), context)
        # none before a step, which no token has taken if all halt at once
        pairs = zip(projected, self.halted.frozen or (None, None), strict=True)
        return self.by_head(*(place(new, places, self.mask.numel(), old, overwrite=True) for new, old in pairs))
