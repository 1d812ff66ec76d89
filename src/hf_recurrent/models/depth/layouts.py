"""Memory layouts of the live units, and compaction.

* `PaddedLayout` holds the rows of a rectangle. Compaction drops halted rows and the columns that only they used.
* `PackedLayout` holds live tokens only, packed (N, E). Keys and values of halted tokens are frozen.

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

from ..ops.attention import KeptKeyValue, PackedContext, PaddedContext, Rotations, select_memory, varlen_arguments
from ..ops.graphs import in_graph
from ..ops.layers import at_least_float32, computing_dtype
from ..ops.masks import as_implemented, is_flash, valid_keys
from ..ops.row_groups import (
    QUERIES_PER_ROW,
    GroupedRows,
    KeyRows,
    RowGroup,
    Spread,
    place,
    row_ranges,
    token_at_places,
)
from ..ops.transformer_block import BlockOutput
from .exit_criteria import relative_change
from .frozen_tokens import FrozenTokens, Tokens
from .halting import HaltingStrategy
from .unit_states import select_rows, select_units

# of queries with one key, instead of which a key and a value can be moved
PAIRS_PER_MOVE = 4


class Finished(NamedTuple):
    """Units that left the loop."""

    units: torch.Tensor  # (n,) row or token numbers
    hidden_states: torch.Tensor  # (n, S, E) or (n, E)
    ponder_cost: torch.Tensor | None  # (n,)
    steps: torch.Tensor | None  # (n,)
    tokens: torch.Tensor | None = None  # (m,) numbers of the tokens of packed rows, whose states are (m, E)


def masked_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens (Eq. 14), zeros without any: (R, W, E), (R, W) -> (R, E)."""
    weights, number = mask.to(states.dtype), mask.sum(-1, keepdim=True).clamp_min(1).float()
    if computing_dtype(states) is torch.float16:
        # their sum may be too large for it; powers of two are exact
        scale = torch.ldexp(torch.ones_like(number), -number.log2().ceil())
        weights, number = weights * scale.to(states.dtype), number * scale
    total = torch.bmm(weights[:, None], states).squeeze(1)
    return (at_least_float32(total) / number).to(total.dtype)


def running_sums(states: torch.Tensor, mask: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
    """Sums over each token and those before it, from the sums (R, F) `before` the first: (R, W, F) in float32."""
    states = torch.where(mask[..., None], states, 0.0).float()
    if before is not None:
        states = torch.cat((states[:, :1] + before[:, None], states[:, 1:]), dim=1)
    return states.cumsum(1)


def used_columns(mask: torch.Tensor) -> tuple[int, int]:
    """The narrowest range of columns that holds every valid token of (R, W)."""
    columns = mask.any(0).nonzero().squeeze(-1)
    return int(columns[0]), int(columns[-1]) + 1


def last_keys_are_kept(config) -> bool:
    """Whether tokens that halt leave the keys and values of their last step, see `AdaptiveDepthConfig`."""
    return getattr(config, "keeps_last_keys", False)


def halted_keys_stay(config, strategy) -> bool:
    """Whether a layout must put the keys of halted tokens at their last step in the place of those of new steps."""
    return last_keys_are_kept(config) and (strategy.halts or strategy.exits) and not strategy.needs_every_step


def row_order(config, counts: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
    """The order of the `kept` (R,) rows with so many queries (R,): the most first, so that similar rows are together.

    Packed kernels want rows in the order of their tokens.
    """
    if is_flash(config):
        return torch.arange(counts.shape[0], device=counts.device) if kept is None else kept.nonzero().squeeze(-1)
    order = counts.argsort(descending=True, stable=True)
    return order if kept is None else order[: int(kept.sum())]


def of_live(function: Callable[..., torch.Tensor], live: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
    """`function` of the entries of states (n, ...) that are `live` (n,) -> (n, ...), zeros for the others."""
    # a traced graph must not depend on data
    if in_graph() or bool(live.all()):
        return function(*states)
    index = live.nonzero().squeeze(-1)
    found = function(*(tensor.index_select(0, index) for tensor in states))
    return found.new_zeros(live.shape[0], *found.shape[1:]).index_copy(0, index, found)


def row_answers(
    predict: Callable[..., torch.Tensor],
    states: torch.Tensor,
    mask: torch.Tensor,
    live: torch.Tensor,
    rows: torch.Tensor,
    columns: tuple[int, int],
) -> torch.Tensor:
    """Predictions of the live rows of states (R, W, E), mask (R, W): (R, ...), see `Layout.answers`."""

    def of_rows(states: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found = predict(states, mask, rows, columns)
        return found.repeat(states.shape[0] // found.shape[0], *(1,) * (found.dim() - 1))

    # attention kernels refuse empty batches
    return of_live(of_rows, live | ~live.any(), states, mask, rows)


class LeftRows(NamedTuple):
    """Rows (n,) that left a call with a cache, in their final state, and the steps that were cached until then."""

    rows: torch.Tensor
    state: NamedTuple
    num_written: int
    num_written_sums: int


class Layout:
    """Memory layout of the units of a halting strategy; here, of tokens one by one.

    Layouts also define `units` (I,), numbers of the units present, of sequences or of tokens `b * S + s`; `lengths`,
    tokens of each unit's sequence, which broadcasts against the units; `initial_state(hidden)`;
    `advance(block, state, step)`, the block's output for one step and the layout after it; `compact(state, keep)`, the
    layout and the state of the units or rows at `keep` (n,), and the finished units; and `finish(state)`, those left.
    """

    strategy: HaltingStrategy
    can_compact: bool

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        """Bool, whether each unit or row that `compact` can select has a live unit."""
        return live

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        """Input of the halting head."""
        return self.strategy.features(state, candidate)

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        """Relative change of the states of each unit, or the largest of each unit's row."""
        return relative_change(before, after)

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        """Predictions of live units, or of their rows, for each unit; zeros for the others.

        Args:
            predict: of tokens `predict(states)` (n, E) -> (n, ...); of rows `predict(states, mask, rows, columns)`, for
                states (n, W, E), mask (n, W), numbers (n,) of the rows and the range of columns present -> (n, ...), or
                (n / 2, ...) if the rows are the first and the second sentences of pairs.
        """
        return of_live(predict, live, states)

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Write keys and values of the skipped steps, for later tokens."""


class PaddedLayout(Layout):
    """Rows of a padded rectangle. The unit is the row or the token; compaction drops rows whose units have all halted.

    Args:
        strategy: the halting strategy, whose `token_units` says what the unit is.
        mask: (B, S) bool, True at tokens.
        context: the block's context, with `_replace(past=...)` if there is a cache and `select` if rows may be
            dropped.
        cache: a forward pass's view of the cache (`DepthCacheView`, `ChunkCacheView`), from which keys, values and
            running sums of each step are read; None without a cache.
        can_compact: whether rows may be dropped, unless gradients go through a cache or attention is packed.
    """

    def __init__(
        self, config, strategy, mask: torch.Tensor, context: NamedTuple, cache=None, can_compact: bool = False
    ):
        self.config = config
        self.strategy = strategy
        self.mask = mask  # (R, W) bool
        self.context = context
        self.cache = cache
        in_place = not torch.is_grad_enabled() and getattr(context, "packing", None) is None
        self.can_compact = can_compact and (cache is None or in_place)
        # of all rows; a reference to the layout itself would keep all of it until cycles are collected
        self.whole = (mask, context, cache)
        self.left: tuple[LeftRows, ...] = ()
        self.rows = torch.arange(mask.shape[0], device=mask.device)
        self.columns = (0, mask.shape[1])
        self.width = mask.shape[1]  # S, columns of the batch
        # keys and values (R, H, W, D) of the latest step, of each of its layers, where halted tokens keep them
        self.latest: tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]] | None = None

    @property
    def units(self) -> torch.Tensor:
        if not self.strategy.token_units:
            return self.rows
        column = torch.arange(*self.columns, device=self.mask.device)
        return (self.rows[:, None] * self.width + column).flatten()

    @property
    def lengths(self) -> torch.Tensor:
        """Valid tokens beside each unit, itself included; broadcasts against the units."""
        return self.mask.sum(-1, keepdim=self.strategy.token_units)

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        return self.strategy.initial_state(hidden, self.mask if self.strategy.token_units else self.mask.any(-1))

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        """Whether each row has a live unit: (R,)."""
        return live.any(-1) if self.strategy.token_units else live

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        """Input of the halting head, (R, F) or (R, W, F)."""
        features = self.strategy.features(state, candidate)
        if not self.strategy.token_units:
            return masked_mean(features, self.mask)
        return self.running_mean(features, step) if self.strategy.running_mean else features

    def running_mean(self, features: torch.Tensor, step: int) -> torch.Tensor:
        """Mean over each token and those before it, earlier calls' included: (R, W, F) -> (R, W, F)."""
        counts, before = self.mask.cumsum(-1), None
        if self.cache is not None:
            counts, before = counts + self.cache.past_counts[:, None], self.cache.sums(step)
        sums = running_sums(features, self.mask, before)
        if self.cache is not None:
            self.cache.write_sums(step, sums)
        return (sums / counts.clamp_min(1)[..., None]).to(features.dtype)

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        change = relative_change(before, after)
        return self.of_rows(torch.where(self.mask, change, 0.0).amax(-1)) if by_row else change

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        """Values of rows (R, ...) for each unit."""
        if not self.strategy.token_units:
            return values
        return values[:, None].expand(-1, self.mask.shape[1], *values.shape[1:])

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        if by_row:
            found = row_answers(predict, states, self.mask, self.has_live_units(live), self.rows, self.columns)
            return self.of_rows(found)
        return of_live(predict, live.flatten(), states.flatten(0, 1)).unflatten(0, live.shape)

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PaddedLayout"]:
        context = self.context if self.cache is None else self.cache.context(self.context, step)
        source = self.strategy.attended(state)
        if self.latest is not None:
            kept = tuple(KeptKeyValue(~state.live, *states) for states in zip(*self.latest, strict=True))
            context = context._replace(kept=kept)
        output = block(state.hidden, context) if source is None else block(state.hidden, context, source)
        if self.cache is not None:
            self.cache.write(step, output.key, output.value)
        if not halted_keys_stay(self.config, self.strategy):
            return output, self
        layout = copy.copy(self)
        layout.latest = (output.key, output.value) if self.cache is None else self.cache.newest(step)
        return output, layout

    def leaving(self, state: NamedTuple, index: torch.Tensor | None = None) -> LeftRows:
        """All rows, or those at `index` (n,), with what is cached of them."""
        rows = self.rows
        if index is not None:
            state, rows = select_rows(state, index, slice(None), self.strategy.token_units), rows[index]
        return LeftRows(rows, state, self.cache.num_written, self.cache.num_written_sums)

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Cache, for the steps that each row skipped, the keys, values and sums of its final states."""
        if self.cache is None:
            return
        groups, strategy = (*self.left, self.leaving(state)), self.strategy
        mask, context, whole_cache = self.whole
        rows = torch.cat([group.rows for group in groups])

        def in_order(states: list[torch.Tensor]) -> torch.Tensor:
            """States of the groups in the order of the batch."""
            return states[0] if len(states) == 1 else place(torch.cat(states), rows, rows.shape[0])

        def skipping(step: int, numbers: list[int]) -> torch.Tensor | None:
            """The rows of the groups that took no more than so many steps, None for all."""
            found = [group.rows for group, number in zip(groups, numbers, strict=True) if number <= step]
            return None if len(found) == len(groups) else torch.cat(found)

        numbers = [group.num_written for group in groups]
        if last_keys_are_kept(self.config):
            for step in range(numbers[0], self.cache.depth):
                index = skipping(step, numbers)
                cache = whole_cache if index is None else whole_cache.of_rows(index)
                cache.write_new(step, *cache.newest(step - 1))
        elif numbers[0] < self.cache.depth:
            sources = [strategy.attended(group.state) for group in groups]
            sources = [group.state.hidden for group in groups] if sources[0] is None else sources
            projected = block.keys_values(in_order(sources), context)
            new = [states.transpose(1, 2) for states in projected]
            for step in range(numbers[0], self.cache.depth):
                index = skipping(step, numbers)
                if index is None:
                    whole_cache.write_new(step, *new)
                else:
                    whole_cache.of_rows(index).write_new(step, *(states[index] for states in new))
        if strategy.running_mean:
            numbers = [group.num_written_sums for group in groups]
            candidates = [group.state.hidden if strategy.needs_candidate else None for group in groups]
            pairs = zip(groups, candidates, strict=True)
            features = in_order([strategy.features(group.state, candidate) for group, candidate in pairs])
            for step in filter(strategy.decides, range(numbers[0], self.cache.depth)):
                index, sums = skipping(step, numbers), running_sums(features, mask, whole_cache.sums(step))
                if index is None:
                    whole_cache.write_sums(step, sums)
                else:
                    whole_cache.of_rows(index).write_sums(step, sums[index])

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        """All rows, or those at `index` (n,); trimmed columns of whole rows are put back as zeros."""
        rows, (start, stop) = self.rows, self.columns
        if index is not None:
            state, rows = select_units(state, index), rows[index]
        hidden, cost, steps = self.strategy.output(state)
        if self.strategy.token_units:
            units = (rows[:, None] * self.width + torch.arange(start, stop, device=rows.device)).flatten()
            cost, steps = (None if values is None else values.flatten() for values in (cost, steps))
            return Finished(units, hidden.flatten(0, 1), cost, steps)
        if stop - start < self.width:
            hidden = nn.functional.pad(hidden, (0, 0, start, self.width - stop))
        return Finished(rows, hidden, cost, steps)

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["PaddedLayout", NamedTuple, Finished]:
        """Gather the rows at `keep` (n,), those with live units -> their layout and state, and the finished units."""
        drop = (~self.has_live_units(state.live)).nonzero().squeeze(-1)
        finished = self.finish(state, drop)
        if self.cache is not None:
            return *self.compact_cached(state, keep, drop), finished
        mask = self.mask[keep]
        start, stop = used_columns(mask)
        mask = mask[:, start:stop]
        state = select_rows(state, keep, slice(start, stop), self.strategy.token_units)
        layout = copy.copy(self)
        layout.mask, layout.rows = mask, self.rows[keep]
        layout.context = self.context.select(self.config, state.hidden, mask, keep, start, stop)
        layout.columns = (self.columns[0] + start, self.columns[0] + stop)
        return layout, state, finished

    def compact_cached(
        self, state: NamedTuple, keep: torch.Tensor, drop: torch.Tensor
    ) -> tuple["PaddedLayout", NamedTuple]:
        """The layout and state of the rows at `keep` (n,), in all columns, without those at `drop` (m,)."""
        layout = copy.copy(self)
        layout.left = (*self.left, self.leaving(state, drop))
        layout.mask, layout.rows = self.mask[keep], self.rows[keep]
        layout.context, layout.cache = self.context.of_rows(keep), self.cache.of_rows(keep)
        if self.latest is not None:
            layout.latest = tuple(tuple(each.index_select(0, keep) for each in states) for states in self.latest)
        return layout, select_rows(state, keep, slice(None), self.strategy.token_units)


class PackedLayout(Layout):
    """Live tokens packed (N, E), and the keys and values of all tokens in their rows.

    Tokens released by the last compaction are no longer queries, but still keys: the next step computes the keys and
    values of their final states, which are frozen from then on.
    """

    can_compact = True

    def __init__(
        self, config, strategy, mask: torch.Tensor, rotations: Rotations, tokens: Tokens, frozen: FrozenTokens
    ):
        self.config = config
        self.strategy = strategy
        self.mask = mask  # (R, W) bool: valid keys
        self.rotations = rotations  # of the whole batch, indexed by token number
        self.tokens = tokens
        self.frozen = frozen
        self.row = tokens.places // mask.shape[1]  # (N,)

    @cached_property
    def context(self) -> PackedContext:
        """Inputs of attention."""
        return self.build_context()

    @staticmethod
    def can_hold(config) -> bool:
        """Whether queries may be some of a sequence's tokens.

        Causal FlashAttention requires all of them, in order; and gradients go through keys of final states only.
        """
        in_pieces = torch.is_grad_enabled() and last_keys_are_kept(config)
        return not (config.is_causal and is_flash(config)) and not in_pieces

    @classmethod
    def pack(
        cls, config, strategy, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext
    ) -> tuple["PackedLayout", torch.Tensor]:
        """(B, S, E) -> the layout of all valid tokens, and their states (N, E)."""
        order, width = row_order(config, mask.sum(-1)), mask.shape[1]
        units = mask.flatten().nonzero().squeeze(-1)
        places = order.argsort()[units // width] * width + units % width
        halted = torch.zeros_like(hidden).flatten(0, 1) if strategy.running_mean else None
        frozen = FrozenTokens(memory=select_memory(context.memory, order), hidden=halted)
        if torch.is_grad_enabled():
            # a buffer of each step would be kept for its backward pass
            frozen = frozen._replace(key=(), value=(), places=places.new_empty(0))
        layout = cls(config, strategy, mask[order], context.rotations, Tokens(units, places), frozen)
        return layout, hidden.flatten(0, 1).index_select(0, units)

    @property
    def units(self) -> torch.Tensor:
        return self.tokens.units

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(-1)[self.row]

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        return self.strategy.initial_state(hidden, torch.ones_like(self.row, dtype=torch.bool))

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        features = self.strategy.features(state, candidate)
        if not self.strategy.running_mean:
            return features
        means = self.running_sums(features, step) / self.mask.cumsum(-1).clamp_min(1)[..., None]
        return means.flatten(0, 1).index_select(0, self.tokens.places).to(features.dtype)

    def running_sums(self, features: torch.Tensor, step: int) -> torch.Tensor:
        """Sums (R, W, F) over each token and those before it, of features (N, F) and halted tokens' states."""
        halted = self.frozen.hidden.repeat(1, features.shape[-1] // self.frozen.hidden.shape[-1])
        rows = place(features, self.tokens.places, self.mask.numel(), halted).unflatten(0, self.mask.shape)
        return running_sums(rows, self.mask)

    def build_context(self) -> PackedContext:
        num_rows, width = self.mask.shape
        queries_per_row = torch.bincount(self.row, minlength=num_rows)
        # tokens of a row are next to each other
        index = torch.arange(self.row.shape[0], device=self.row.device)
        first = index.new_zeros(num_rows).scatter_reduce(0, self.row, index, "amin", include_self=False)
        released = self.frozen.released
        fresh = self.tokens if released is None else self.tokens.followed_by(released)
        places, num_places, frozen_places = fresh.places, num_rows * width, self.frozen.places
        if frozen_places is not None:
            places = torch.cat((places, frozen_places))
        # without the released tokens, later keys will not fill all places
        full = released is None and places.shape[0] == num_places
        in_order = full and torch.equal(places, torch.arange(num_places, device=self.row.device))
        context = PackedContext(
            query_rotation=self.rotations.of_tokens(self.tokens.units).query,
            key_rotation=self.rotations.of_tokens(fresh.units).key,
            queries=Spread.at(self.tokens.places, num_rows, width),
            key_places=places if not in_order and frozen_places is None else None,
            key_tokens=None if in_order or frozen_places is None else token_at_places(places, num_places),
            num_key_places=num_places,
            frozen_key=self.frozen.key,
            frozen_value=self.frozen.value,
            memory=self.frozen.memory,
        )
        if is_flash(self.config):
            varlen = varlen_arguments(queries_per_row, self.mask.sum(-1))
            return replace(context, varlen=varlen, valid_keys=self.mask.flatten().nonzero().squeeze(-1))
        return replace(context, grouped=self.grouped(first, queries_per_row))

    def grouped(self, first: torch.Tensor, queries_per_row: torch.Tensor) -> GroupedRows:
        """Rows by their numbers of queries (R,), of which the first is at `first` (R,), and the keys of each group."""
        (num_rows, width), device = self.mask.shape, self.mask.device
        ends = (self.mask * torch.arange(1, width + 1, device=device)).amax(-1)
        counts, ends = torch.stack((queries_per_row, ends)).tolist()
        ranges = row_ranges(counts, ends) if device.type == "cpu" else [(0, num_rows)]
        columns = self.tokens.places % width

        def complete(tokens: torch.Tensor, rows: torch.Tensor) -> RowGroup:
            start, stop = int(rows[0]), int(rows[-1]) + 1
            keys = KeyRows(start, stop - start, max(1, *ends[start:stop]), width)
            seen = keys.of(self.mask.flatten())
            if not self.config.is_causal:
                return RowGroup(tokens, valid_keys(self.config, seen), keys)
            visible = torch.arange(keys.width, device=device) <= columns[tokens][..., None]
            return RowGroup(
                tokens, as_implemented(self.config, (visible & seen[:, None])[:, None], torch.float32), keys
            )

        groups = [(torch.arange(start, stop, device=device), max(1, *counts[start:stop])) for start, stop in ranges]
        return GroupedRows.of_rows(first, queries_per_row, self.row, groups, complete)

    def attended(self, state: NamedTuple) -> torch.Tensor:
        source = self.strategy.attended(state)
        return state.hidden if source is None else source

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PackedLayout"]:
        source = self.attended(state)
        if self.frozen.released_state is not None:
            source = torch.cat((source, self.frozen.released_state))
        context = self.context
        if halted_keys_stay(self.config, self.strategy):
            context = replace(context, kept=~state.live)
        output = block(state.hidden, context, source)
        return output, self.with_keys_values(output.key, output.value)

    def with_keys_values(self, key: torch.Tensor, value: torch.Tensor) -> "PackedLayout":
        """A layout of the same tokens with new keys and values, and without released tokens."""
        layout, number, key_places = copy.copy(self), self.row.shape[0], self.context.key_places
        layout.frozen = self.frozen.after_step(key, value, number)
        layout.context = replace(
            self.context,
            frozen_key=layout.frozen.key,
            frozen_value=layout.frozen.value,
            key_places=None if key_places is None else key_places[:number],
            key_rotation=self.context.key_rotation[:number],
        )
        return layout

    def finish(self, state: NamedTuple) -> Finished:
        return Finished(self.units, *self.strategy.output(state))

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["PackedLayout", NamedTuple, Finished]:
        """Keep the live tokens at `keep` (n,) and their rows -> layout, state and the finished tokens."""
        drop = (~state.live).nonzero().squeeze(-1)
        live = torch.bincount(self.row[keep], minlength=self.mask.shape[0])
        dropped = select_units(state, drop)
        frozen = self.freeze(state, drop, drop[live[self.row[drop]] > 0])
        layout = PackedLayout(self.config, self.strategy, self.mask, self.rotations, self.tokens.at(keep), frozen)
        if self.moving_pays(live):
            layout = layout.with_rows(row_order(self.config, live, live > 0))
        return layout, select_units(state, keep), Finished(self.units[drop], *self.strategy.output(dropped))

    def freeze(self, state: NamedTuple, drop: torch.Tensor, released: torch.Tensor) -> FrozenTokens:
        """Frozen tokens with those at `drop` (n,), of which those `released` (m,) are attended to."""
        halted = self.frozen.hidden
        if halted is not None:
            halted = place(state.hidden[drop], self.tokens.places[drop], self.mask.numel(), halted)
        if last_keys_are_kept(self.config):
            return self.frozen._replace(hidden=halted)
        return self.frozen._replace(
            hidden=halted,
            released=self.tokens.at(released) if released.numel() else None,
            released_state=self.attended(select_units(state, released)) if released.numel() else None,
        )

    def moving_pays(self, live: torch.Tensor) -> bool:
        """Whether rows with so many live tokens (R,) are better put in order, and the others dropped."""
        if self.frozen.key is None or torch.is_grad_enabled() or live.device.type != "cpu" or is_flash(self.config):
            return True
        counts, spared, moved = live.tolist(), 0, 0
        for group in self.context.grouped.groups:
            first, number, width, stride = group.keys
            present = [count + QUERIES_PER_ROW for count in counts[first : first + number] if count]
            spared += width * (number * max(present, default=0) - sum(present))
            moved += len(present) * stride
        return spared > PAIRS_PER_MOVE * moved

    def with_rows(self, rows: torch.Tensor) -> "PackedLayout":
        """The layout of the `rows` (n,), which have all tokens present, in this order."""
        columns, width = slice(*used_columns(self.mask[rows])), self.mask.shape[1]
        mask = self.mask[rows, columns]
        # one more than there are, for rows that left
        new_row = self.row.new_full((self.mask.shape[0] + 1,), rows.shape[0])
        new_row[rows] = torch.arange(rows.shape[0], device=rows.device)

        def moved(places: torch.Tensor) -> torch.Tensor:
            row, column = new_row[places // width], places % width - columns.start
            return row * mask.shape[1] + torch.where(row < rows.shape[0], column, 0)

        frozen = self.frozen.of_rows(rows, width, columns, moved)
        tokens = self.tokens._replace(places=moved(self.tokens.places))
        return PackedLayout(self.config, self.strategy, mask, self.rotations, tokens, frozen)
