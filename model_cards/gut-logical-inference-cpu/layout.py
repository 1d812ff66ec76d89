"""Where the units that are still computing sit in memory, and how the finished ones leave.

Two layouts share one interface, so that the depth loop knows nothing of either:

* `PaddedLayout` holds rows of a rectangle. Rows that halt are gathered out, and with them the columns only they used.
* `PackedLayout` holds live tokens only, packed (N, E). Keys and values of halted tokens stay behind, frozen.

Layouts are immutable: `compact` returns a new one. Shapes: R rows present, W columns present, N tokens present,
E width, h rotation planes; a batch has B rows and S columns, and its tokens are numbered `b * S + s`.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from .attention import PackedContext, PaddedContext
from .block import BlockOutput
from .halting import HaltingState, initial_state, ponder_cost, soft_state


class Finished(NamedTuple):
    """Units that left the loop."""

    units: torch.Tensor  # (n,) row or token numbers
    soft_state: torch.Tensor  # (n, S, E) or (n, E)
    ponder_cost: torch.Tensor  # (n,)
    steps: torch.Tensor  # (n,)


class Rotations(NamedTuple):
    """xPos tables of queries and keys, (B, S, 1, h) complex each, or (1, S, 1, h) where all rows share them."""

    query: torch.Tensor
    key: torch.Tensor

    def select(self, rows: torch.Tensor, start: int, stop: int) -> "Rotations":
        """Keep `rows` (n,) and the columns `start:stop`."""
        shared = self.query.shape[0] == 1
        columns = (table[:, start:stop] for table in self)
        return Rotations(*(table if shared else table.index_select(0, rows) for table in columns))

    def of_tokens(self, units: torch.Tensor) -> "Rotations":
        """Of the tokens with these numbers: (N,) -> tables of (N, 1, h)."""
        shared, length = self.query.shape[0] == 1, self.query.shape[1]
        index = units % length if shared else units
        return Rotations(*(table.flatten(0, 1).index_select(0, index) for table in self))


def key_mask(config, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    """The implementation's padding mask over keys, for any number of queries: (R, W, E), (R, W) -> (R, 1, 1, W)."""
    return create_bidirectional_mask(
        config=config, inputs_embeds=states[:, :1], encoder_hidden_states=states, attention_mask=mask
    )


def masked_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens (Eq. 14): (R, W, E), (R, W) -> (R, E)."""
    total = torch.bmm(mask[:, None].to(states.dtype), states).squeeze(1)
    return (total.float() / mask.sum(-1, keepdim=True)).to(total.dtype)


def used_columns(mask: torch.Tensor) -> tuple[int, int]:
    """The narrowest range of columns that holds every valid token of (R, W)."""
    columns = mask.any(0).nonzero().squeeze(-1)
    return int(columns[0]), int(columns[-1]) + 1


def select_units(state: HaltingState, index: torch.Tensor) -> HaltingState:
    return HaltingState(*(tensor.index_select(0, index) for tensor in state))


class PaddedLayout:
    """Rows of a padded rectangle. The unit is the row ("global") or, where nothing is gathered out, the token."""

    def __init__(self, config, states: torch.Tensor, mask: torch.Tensor, rotations: Rotations, rows=None, columns=None):
        self.config = config
        self.mask = mask  # (R, W) bool
        self.rotations = rotations
        self.rows = torch.arange(mask.shape[0], device=mask.device) if rows is None else rows
        self.columns = (0, mask.shape[1], mask.shape[1]) if columns is None else columns  # start, stop, S
        self.token_units = config.halting == "token"
        self.context = PaddedContext(key_mask(config, states, mask), rotations.query, rotations.key)

    @property
    def units(self) -> torch.Tensor:
        return torch.arange(self.mask.numel(), device=self.mask.device) if self.token_units else self.rows

    @property
    def lengths(self) -> torch.Tensor:
        """Valid tokens beside each unit, itself included; broadcasts against the units."""
        return self.mask.sum(-1, keepdim=self.token_units)

    def begin(self, hidden: torch.Tensor) -> HaltingState:
        return initial_state(hidden, self.mask if self.token_units else self.mask.any(-1))

    def features(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden if self.token_units else masked_mean(hidden, self.mask)

    def advance(self, block: nn.Module, state: HaltingState) -> tuple[BlockOutput, "PaddedLayout"]:
        return block(state.hidden, self.context, soft_state(state) if self.token_units else None), self

    def finish(self, state: HaltingState, index: torch.Tensor | None = None) -> Finished:
        """All units, or those at `index`; padding is zeroed and trimmed columns are put back as zeros."""
        mask, units = self.mask, self.units
        if index is not None:
            state, mask, units = select_units(state, index), mask[index], units[index]
        soft = torch.where(mask[..., None], soft_state(state), 0.0)
        if self.token_units:
            return Finished(
                units,
                soft.flatten(0, 1),
                ponder_cost(state).flatten(),
                torch.where(mask, state.steps, -1).flatten(),
            )
        start, stop, total = self.columns
        if stop - start < total:
            soft = nn.functional.pad(soft, (0, 0, start, total - stop))
        return Finished(units, soft, ponder_cost(state), state.steps)

    def compact(self, state: HaltingState, keep: torch.Tensor) -> tuple["PaddedLayout", HaltingState, Finished]:
        """Gather the rows at `keep` (n,), the live ones -> their layout and state, and what finished."""
        finished = self.finish(state, (~state.live).nonzero().squeeze(-1))
        mask = self.mask[keep]
        start, stop = used_columns(mask)
        wide = state._replace(hidden=state.hidden[:, start:stop], accumulated=state.accumulated[:, start:stop])
        state = select_units(wide, keep)
        rotations = self.rotations.select(keep, start, stop)
        offset, _, total = self.columns
        columns = (offset + start, offset + stop, total)
        layout = PaddedLayout(self.config, state.hidden, mask[:, start:stop], rotations, self.rows[keep], columns)
        return layout, state, finished


class PackedLayout:
    """Live tokens packed (N, E), and the keys and values of every token of the rows they sit in.

    Tokens released by the last compaction attend no more, but the others still attend to them: the next step
    computes the keys and values of their final soft states, which then stay as they are.
    """

    token_units = True

    def __init__(self, config, mask: torch.Tensor, rotations: Rotations, tokens: "Tokens", **carried):
        self.config = config
        self.mask = mask  # (R, W) bool: valid keys
        self.rotations = rotations  # of the whole batch, indexed by token number
        self.tokens = tokens
        self.released: Tokens | None = carried.pop("released", None)
        self.released_state: torch.Tensor | None = carried.pop("released_state", None)
        self.row = tokens.slots // mask.shape[1]  # (N,)
        self.context = self.build_context(**carried)

    @classmethod
    def pack(cls, config, hidden: torch.Tensor, mask: torch.Tensor, rotations: Rotations):
        """(B, S, E) -> the layout of all valid tokens, and their states (N, E)."""
        slots = mask.flatten().nonzero().squeeze(-1)
        return cls(config, mask, rotations, Tokens(slots, slots)), hidden.flatten(0, 1).index_select(0, slots)

    @property
    def units(self) -> torch.Tensor:
        return self.tokens.units

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(-1)[self.row]

    def begin(self, hidden: torch.Tensor) -> HaltingState:
        return initial_state(hidden, torch.ones_like(self.row, dtype=torch.bool))

    def features(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def build_context(self, key: torch.Tensor | None = None, value: torch.Tensor | None = None) -> PackedContext:
        num_rows, width = self.mask.shape
        queries_per_row = torch.bincount(self.row, minlength=num_rows)
        query_width = int(queries_per_row.max())
        first = queries_per_row.cumsum(0) - queries_per_row
        rank = torch.arange(self.row.shape[0], device=self.row.device) - first[self.row]
        fresh = self.tokens if self.released is None else self.tokens.followed_by(self.released)
        # released tokens come after the live ones, so that even a full set of keys is out of order with them
        in_order = self.released is None and fresh.slots.shape[0] == num_rows * width
        attention_mask = varlen = None
        if "flash" in self.config._attn_implementation:
            varlen = varlen_arguments(queries_per_row, self.mask)
        else:
            shape_only = self.mask.new_empty((), dtype=torch.float32).expand(num_rows, width, 1)
            attention_mask = key_mask(self.config, shape_only, self.mask)
        return PackedContext(
            attention_mask=attention_mask,
            query_rotation=self.rotations.of_tokens(self.tokens.units).query,
            key_rotation=self.rotations.of_tokens(fresh.units).key,
            query_slots=self.row * query_width + rank,
            key_slots=None if in_order else fresh.slots,
            num_rows=num_rows,
            query_width=query_width,
            key_width=width,
            frozen_key=key,
            frozen_value=value,
            varlen=varlen,
            valid_keys=None if varlen is None else self.mask.flatten().nonzero().squeeze(-1),
        )

    def advance(self, block: nn.Module, state: HaltingState) -> tuple[BlockOutput, "PackedLayout"]:
        source = soft_state(state)
        if self.released_state is not None:
            source = torch.cat((source, self.released_state))
        output = block(state.hidden, self.context, source)
        return output, self.carrying(output.key, output.value)

    def carrying(self, key: torch.Tensor, value: torch.Tensor) -> "PackedLayout":
        """The same tokens, with the keys and values of the step just taken and nothing newly released."""
        layout = copy.copy(self)
        layout.released = layout.released_state = None
        fresh = slice(self.row.shape[0])
        layout.context = self.context._replace(
            frozen_key=key,
            frozen_value=value,
            key_slots=None if self.context.key_slots is None else self.context.key_slots[fresh],
            key_rotation=self.context.key_rotation[fresh],
        )
        return layout

    def finish(self, state: HaltingState, index: torch.Tensor | None = None) -> Finished:
        units = self.units
        if index is not None:
            state, units = select_units(state, index), units[index]
        return Finished(units, soft_state(state), ponder_cost(state), state.steps)

    def compact(self, state: HaltingState, keep: torch.Tensor) -> tuple["PackedLayout", HaltingState, Finished]:
        """Keep the tokens at `keep` (n,), the live ones, and their rows -> layout and state, and what finished."""
        drop = (~state.live).nonzero().squeeze(-1)
        finished = self.finish(state, drop)
        row_lives = torch.zeros_like(self.mask[:, 0]).index_fill(0, self.row[keep], True)
        rows = row_lives.nonzero().squeeze(-1)
        start, stop = used_columns(self.mask[rows])
        old_width, new_width = self.mask.shape[1], stop - start
        new_row = row_lives.cumsum(0) - 1

        def moved(index: torch.Tensor) -> Tokens:
            row, column = self.row[index], self.tokens.slots[index] % old_width
            return Tokens(self.units[index], new_row[row] * new_width + column - start)

        def trimmed(buffer: torch.Tensor | None) -> torch.Tensor | None:
            if buffer is None:
                return None
            return buffer.unflatten(0, (-1, old_width))[:, start:stop].index_select(0, rows).flatten(0, 1)

        stays = row_lives[self.row[drop]].nonzero().squeeze(-1)
        layout = PackedLayout(
            self.config,
            self.mask[rows, start:stop],
            self.rotations,
            moved(keep),
            released=moved(drop[stays]) if stays.numel() else None,
            released_state=finished.soft_state[stays] if stays.numel() else None,
            key=trimmed(self.context.frozen_key),
            value=trimmed(self.context.frozen_value),
        )
        return layout, select_units(state, keep), finished


class Tokens(NamedTuple):
    """Tokens by their number in the batch, `b * S + s`, and by their slot in a layout, `r * W + w`."""

    units: torch.Tensor
    slots: torch.Tensor

    def followed_by(self, other: "Tokens") -> "Tokens":
        return Tokens(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


def varlen_arguments(queries_per_row: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor | int]:
    """FlashAttention's packed-sequence arguments: cumulative lengths (R + 1,) int32 and maximal lengths."""
    keys_per_row = mask.sum(-1)

    def ends(lengths: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))

    return {
        "cu_seq_lens_q": ends(queries_per_row),
        "cu_seq_lens_k": ends(keys_per_row),
        "max_length_q": int(queries_per_row.max()),
        "max_length_k": int(keys_per_row.max()),
    }
