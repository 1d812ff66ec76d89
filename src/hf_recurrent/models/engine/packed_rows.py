"""Rows whose tokens are packed, so that nothing but attention is computed for padding.

Shapes: R rows present, W columns present, N tokens present, E width, F features; a batch has B rows and S columns.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from ..common.exit_criteria import relative_change
from ..ops.attention import (
    KeyValue,
    PackedContext,
    PaddedContext,
    Rotations,
    is_flash,
    key_mask,
    select_memory,
    varlen_arguments,
)
from ..ops.transformer_block import BlockOutput
from .depth_loop import DepthOptions, HaltingStrategy, Layout
from .layouts import Finished, PaddedLayout, masked_mean, row_answers, selected, used_columns

# of padding; with less, gathering and spreading tokens at every step would not pay
MIN_SHARE_TO_PACK = 1 / 16


class PackedRows:
    """Rows that halt as a whole, with their tokens packed (N, E). They are spread for attention only.

    Args:
        strategy: the halting strategy, whose unit is the row.
        mask: (R, W) bool, True at tokens.
        attention_mask: as transformers' mask helpers build it for the implementation.
        rotations: of the whole batch.
        rows: (R,) numbers of the rows.
        columns: the range of the batch's columns that are present.
        num_columns: S.
        memory: slots of the rows, or their projection.
    """

    can_compact = True

    def __init__(
        self,
        config,
        strategy: HaltingStrategy,
        mask: torch.Tensor,
        attention_mask: torch.Tensor | None,
        rotations: Rotations,
        rows: torch.Tensor,
        columns: tuple[int, int],
        num_columns: int,
        memory: KeyValue | torch.Tensor | None,
    ):
        self.config, self.strategy, self.mask = config, strategy, mask
        self.rotations, self.rows, self.columns, self.num_columns = rotations, rows, columns, num_columns
        self.places = mask.flatten().nonzero().squeeze(-1)
        self.row = self.places // mask.shape[1]
        self.context = self.build_context(attention_mask, memory)

    @classmethod
    def pack(
        cls, config, strategy: HaltingStrategy, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext
    ) -> tuple["PackedRows", torch.Tensor]:
        """(B, S, E) -> the layout of all rows, and the states of their tokens (N, E)."""
        num_rows, width = mask.shape
        rows, visible = torch.arange(num_rows, device=mask.device), context.attention_mask
        layout = cls(config, strategy, mask, visible, context.rotations, rows, (0, width), width, context.memory)
        return layout, hidden.flatten(0, 1).index_select(0, layout.places)

    def build_context(
        self, attention_mask: torch.Tensor | None, memory: KeyValue | torch.Tensor | None
    ) -> PackedContext:
        num_rows, width = self.mask.shape
        rotations = self.rotations.of_tokens(self.tokens)
        varlen = None
        if is_flash(self.config):
            lengths = self.mask.sum(-1)
            varlen, attention_mask = varlen_arguments(lengths, lengths), None
        filled = self.places.shape[0] == num_rows * width
        return PackedContext(
            attention_mask=attention_mask,
            query_rotation=rotations.query,
            key_rotation=rotations.key,
            query_places=self.places,
            key_places=None if filled or varlen is not None else self.places,
            num_rows=num_rows,
            query_width=width,
            key_width=width,
            frozen_key=None,
            frozen_value=None,
            varlen=varlen,
            valid_keys=None,
            memory=memory,
        )

    @property
    def units(self) -> torch.Tensor:
        return self.rows

    @property
    def tokens(self) -> torch.Tensor:
        """Numbers (N,) of the tokens present."""
        return self.rows[self.row] * self.num_columns + self.columns[0] + self.places % self.mask.shape[1]

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(-1)

    def initial_state(self, hidden: torch.Tensor) -> NamedTuple:
        state = self.strategy.initial_state(hidden, self.mask.any(-1))
        return selected(state, lambda wrapped: wrapped._replace(unit=self.row), lambda tensor: tensor)

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        return live

    def features(self, state: NamedTuple, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        return masked_mean(self.context.unpack(self.strategy.features(state, candidate)), self.mask)

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        change = relative_change(before, after)
        return change.new_zeros(self.mask.shape[0]).scatter_reduce(0, self.row, change, "amax")

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        return row_answers(predict, self.context.unpack(states), self.mask, live, self.rows, self.columns)

    def advance(self, block: nn.Module, state: NamedTuple, step: int) -> tuple[BlockOutput, "PackedRows"]:
        return block(state.hidden, self.context, self.strategy.attended(state)), self

    def complete_cache(self, block: nn.Module, state: NamedTuple) -> None:
        """Packed rows are not cached."""

    def finish(self, state: NamedTuple, index: torch.Tensor | None = None) -> Finished:
        """All rows, or those at `index` (n,)."""
        if index is None:
            hidden, cost, steps = self.strategy.output(state)
            return Finished(self.rows, hidden, cost, steps, self.tokens)
        chosen = self.tokens_of(index)
        hidden, cost, steps = self.strategy.output(self.select(state, index, chosen))
        return Finished(self.rows[index], hidden, cost, steps, self.tokens[chosen])

    def tokens_of(self, index: torch.Tensor) -> torch.Tensor:
        """Indices (m,) of the tokens of the rows at `index` (n,)."""
        return torch.zeros_like(self.mask[:, 0]).index_fill(0, index, True)[self.row].nonzero().squeeze(-1)

    def select(self, state: NamedTuple, rows: torch.Tensor, tokens: torch.Tensor) -> NamedTuple:
        """The state of the rows at `rows` (n,), whose tokens are at `tokens` (m,)."""
        new_row = torch.zeros_like(self.rows).index_copy(0, rows, torch.arange(rows.shape[0], device=rows.device))

        def select(wrapped: NamedTuple) -> NamedTuple:
            values = (tensor.index_select(0, tokens if tensor.dim() > 1 else rows) for tensor in wrapped[:-1])
            return type(wrapped)(*values, unit=new_row[self.row[tokens]])

        return selected(state, select, lambda tensor: tensor.index_select(0, rows))

    def compact(self, state: NamedTuple, keep: torch.Tensor) -> tuple["PackedRows", NamedTuple, Finished]:
        """Keep the rows at `keep` (n,) -> their layout and state, and the finished rows."""
        finished = self.finish(state, (~state.live).nonzero().squeeze(-1))
        mask = self.mask[keep]
        start, stop = used_columns(mask)
        mask, first = mask[:, start:stop], self.columns[0]
        shape_only = state.hidden[:1, :1].expand(*mask.shape, 1)
        layout = PackedRows(
            self.config,
            self.strategy,
            mask,
            key_mask(self.config, shape_only, mask),
            self.rotations,
            self.rows[keep],
            (first + start, first + stop),
            self.num_columns,
            select_memory(self.context.memory, keep),
        )
        return layout, self.select(state, keep, self.tokens_of(keep)), finished


def lay_out_rows(
    config,
    strategy: HaltingStrategy,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    context: PaddedContext,
    cache,
    options: DepthOptions,
    can_compact: bool = False,
) -> tuple[Layout, torch.Tensor]:
    """The layout of rows (B, S, E) and its states: packed if that pays, as in calls without a cache and records."""
    may_pack = not (strategy.token_units or options.record_states or torch.compiler.is_compiling()) and cache is None
    if may_pack and mask.numel() - int(mask.sum()) >= MIN_SHARE_TO_PACK * mask.numel() and bool(mask.any()):
        return PackedRows.pack(config, strategy, hidden, mask, context)
    return PaddedLayout(config, strategy, mask, context, cache, can_compact), hidden
