"""Rows whose tokens are packed, so that nothing but attention is computed for padding.

Shapes: R rows present, W columns present, N tokens present, E width, F features; a batch has B rows and S columns.
"""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import nn

from ..ops.graphs import in_graph
from ..ops.masks import is_flash
from ..ops.row_groups import Spread
from ..ops.transformer_block import BlockOutput
from .depth_cache import is_prefill
from .exit_criteria import relative_change
from .halting import HaltingStrategy
from .launches import is_launch_bound
from .layouts import (
    Finished,
    Layout,
    PaddedLayout,
    halted_keys_stay,
    masked_mean,
    of_live,
    row_answers,
    running_sums,
    used_columns,
)
from .loop import DepthOptions, FixedDepth
from .unit_states import select_units, selected

# of padding; with less, gathering and spreading tokens at every step would not pay
MIN_SHARE_TO_PACK = 1 / 16
# products of padding with a square matrix of the model's width, likewise: those of 16 tokens of width 128
MIN_PRODUCTS_TO_PACK = 1 << 18


class PackedRows(Layout):
    """Rows whose tokens are packed (N, E), and spread for attention only.

    The unit is the row or the token; compaction drops rows whose units have all halted.

    Args:
        strategy: the halting strategy, whose `token_units` says what the unit is.
        mask: (R, W) bool, True at tokens.
        padded: the block's context of these rows and columns, with `packed` and, if rows may be dropped, `select`.
        rows: (R,) numbers of the rows.
        columns: the range of the batch's columns that are present.
        num_columns: S.
        can_compact: whether rows may be dropped.
        cache: an empty cache's view, to which each of a fixed number of steps is written, so that none is skipped; None
            without a cache.
    """

    def __init__(
        self,
        config,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        padded: NamedTuple,
        rows: torch.Tensor,
        columns: tuple[int, int],
        num_columns: int,
        can_compact: bool,
        cache=None,
    ):
        self.cache = cache
        self.config, self.strategy, self.mask, self.padded = config, strategy, mask, padded
        self.rows, self.columns, self.num_columns, self.can_compact = rows, columns, num_columns, can_compact
        self.places = mask.flatten().nonzero().squeeze(-1)
        self.row = self.places // mask.shape[1]
        self.spread = Spread.at(self.places, *mask.shape)

    @cached_property
    def context(self) -> NamedTuple:
        """Inputs of attention."""
        return self.padded.packed(self.config, self.mask, self.places)

    @classmethod
    def pack(
        cls,
        config,
        strategy: HaltingStrategy,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        context: NamedTuple,
        can_compact: bool,
        cache=None,
    ) -> tuple["PackedRows", torch.Tensor]:
        """(B, S, E) -> the layout of all rows, and the states of their tokens (N, E)."""
        num_rows, width = mask.shape
        rows = torch.arange(num_rows, device=mask.device)
        layout = cls(config, strategy, mask, context, rows, (0, width), width, can_compact, cache)
        return layout, hidden.flatten(0, 1).index_select(0, layout.places)

    @property
    def units(self) -> torch.Tensor:
        return self.tokens if self.strategy.token_units else self.rows

    @property
    def tokens(self) -> torch.Tensor:
        """Numbers (N,) of the tokens present."""
        return self.rows[self.row] * self.num_columns + self.columns[0] + self.places % self.mask.shape[1]

    @property
    def lengths(self) -> torch.Tensor:
        return self.of_rows(self.mask.sum(-1))

    def of_rows(self, values: torch.Tensor) -> torch.Tensor:
        """Values of rows (R, ...) for each unit."""
        return values.index_select(0, self.row) if self.strategy.token_units else values

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        if self.strategy.token_units:
            return self.strategy.initial_state(hidden, torch.ones_like(self.row, dtype=torch.bool))
        state = self.strategy.initial_state(hidden, self.mask.any(-1))
        return selected(state, lambda wrapped: wrapped._replace(unit=self.row), lambda tensor: tensor)

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        if not self.strategy.token_units:
            return live
        return torch.zeros_like(self.rows).index_add(0, self.row, live.long()) > 0

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        features = self.strategy.features(state, candidate)
        if not self.strategy.token_units:
            return masked_mean(self.spread.unpack(features), self.mask)
        if not self.strategy.running_mean:
            return features
        sums = running_sums(self.spread.unpack(features), self.mask)
        return self.spread.gather(sums / self.mask.cumsum(-1).clamp_min(1)[..., None]).to(features.dtype)

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        change = relative_change(before, after)
        if not by_row:
            return change
        return self.of_rows(change.new_zeros(self.mask.shape[0]).scatter_reduce(0, self.row, change, "amax"))

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        if not by_row:
            return of_live(predict, live, states)
        rows, live = self.spread.unpack(states), self.has_live_units(live)
        return self.of_rows(row_answers(predict, rows, self.mask, live, self.rows, self.columns))

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PackedRows"]:
        source = self.strategy.attended(state)
        context = self.context if self.cache is None else self.cache.of_packed(self.context, step)
        output = block(state.hidden, context, *(() if source is None else (source,)))
        if self.cache is not None:
            spread = (self.spread.unpack(states).transpose(1, 2) for states in (output.key, output.value))
            self.cache.write_new(step, *spread)
        return output, self

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        """All rows, or those at `index` (n,)."""
        rows, tokens = self.rows, self.tokens
        if index is not None:
            chosen = self.tokens_of(index)
            state, rows, tokens = self.select(state, index, chosen), rows[index], tokens[chosen]
        output = self.strategy.output(state)
        return Finished(tokens, *output) if self.strategy.token_units else Finished(rows, *output, tokens)

    def tokens_of(self, index: torch.Tensor) -> torch.Tensor:
        """Indices (m,) of the tokens of the rows at `index` (n,)."""
        return torch.zeros_like(self.mask[:, 0]).index_fill(0, index, True)[self.row].nonzero().squeeze(-1)

    def select(self, state: NamedTuple, rows: torch.Tensor, tokens: torch.Tensor) -> NamedTuple:
        """The state of the rows at `rows` (n,), whose tokens are at `tokens` (m,)."""
        if self.strategy.token_units:
            return select_units(state, tokens)
        new_row = torch.zeros_like(self.rows).index_copy(0, rows, torch.arange(rows.shape[0], device=rows.device))

        def select(wrapped: NamedTuple) -> NamedTuple:
            values = (tensor.index_select(0, tokens if tensor.dim() > 1 else rows) for tensor in wrapped[:-1])
            return type(wrapped)(*values, unit=new_row[self.row[tokens]])

        return selected(state, select, lambda tensor: tensor.index_select(0, rows))

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["PackedRows", NamedTuple, Finished]:
        """Keep the rows at `keep` (n,), those with live units -> their layout and state, and the finished units."""
        finished = self.finish(state, (~self.has_live_units(state.live)).nonzero().squeeze(-1))
        mask = self.mask[keep]
        start, stop = used_columns(mask)
        mask, first = mask[:, start:stop], self.columns[0]
        shape_only = state.hidden[:1, :1].expand(*mask.shape, 1)
        padded = self.padded.select(self.config, shape_only, mask, keep, start, stop)
        columns = (first + start, first + stop)
        layout = PackedRows(
            self.config, self.strategy, mask, padded, self.rows[keep], columns, self.num_columns, self.can_compact
        )
        return layout, self.select(state, keep, self.tokens_of(keep)), finished


def lay_out_rows(
    config,
    strategy: HaltingStrategy,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    context: NamedTuple,
    cache,
    options: DepthOptions,
    can_compact: bool = False,
) -> tuple[Layout, torch.Tensor]:
    """The layout of rows (B, S, E) and its states: packed if that pays, without records and cached tokens."""
    takes_cache = cache is None or (is_prefill(cache, mask) and isinstance(strategy, FixedDepth))
    records = options.record_states or in_graph()
    # padded FlashAttention packs its rows anew at each step
    is_small = is_launch_bound(mask.device, mask.numel(), hidden.shape[-1]) and not is_flash(config)
    may_pack = takes_cache and not (records or is_small or halted_keys_stay(config, strategy))
    if may_pack and packing_pays(mask, hidden.shape[-1]):
        return PackedRows.pack(config, strategy, hidden, mask, context, can_compact and cache is None, cache)
    return PaddedLayout(config, strategy, mask, context, cache, can_compact), hidden


def packing_pays(mask: torch.Tensor, width: int) -> bool:
    """Whether there is enough padding in (B, S), of states so wide."""
    return sparing_pays(mask.numel(), int(mask.sum()), width)


def sparing_pays(num_places: int, num_tokens: int, width: int) -> bool:
    """Whether so many of the places that would be computed, for states so wide, are padding that packing pays."""
    padding = num_places - num_tokens
    return num_tokens > 0 and padding >= max(MIN_SHARE_TO_PACK * num_places, MIN_PRODUCTS_TO_PACK / width**2)
