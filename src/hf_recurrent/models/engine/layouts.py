"""Where the units that are still computing sit in memory, and how the finished ones leave.

* `PaddedLayout` holds rows of a rectangle. Rows that halt are gathered out, and with them the columns only they used.
* `PackedLayout` holds live tokens only, packed (N, E). Keys and values of halted tokens stay, frozen.

The depth loop knows nothing of either. Layouts are immutable: `compact` returns a new one.
Shapes: R rows present, W columns present, N tokens present, E width, F features; a batch has B rows and S columns, and
its tokens are numbered `b * S + s`.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask

from ..ops.attention import (
    KeyValue,
    PackedContext,
    PaddedContext,
    Rotations,
    as_implemented,
    is_flash,
    place,
    varlen_arguments,
)
from ..ops.stick_breaking import HaltingState, initial_state, ponder_cost, soft_state
from ..ops.transformer_block import BlockOutput


class Finished(NamedTuple):
    """Units that left the loop."""

    units: torch.Tensor  # (n,) row or token numbers
    soft_state: torch.Tensor  # (n, S, E) or (n, E)
    ponder_cost: torch.Tensor  # (n,)
    steps: torch.Tensor  # (n,)


def key_mask(config, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
    """The implementation's padding mask over keys, for any number of queries: (R, W, E), (R, W) -> (R, 1, 1, W)."""
    return create_bidirectional_mask(
        config=config, inputs_embeds=states[:, :1], encoder_hidden_states=states, attention_mask=mask
    )


def masked_mean(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over valid tokens (Eq. 14): (R, W, E), (R, W) -> (R, E)."""
    total = torch.bmm(mask[:, None].to(states.dtype), states).squeeze(1)
    return (total.float() / mask.sum(-1, keepdim=True)).to(total.dtype)


def running_sums(states: torch.Tensor, mask: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
    """Sums over each token and those before it, from the sums (R, F) `before` the first: (R, W, F) in float32."""
    states = torch.where(mask[..., None], states, 0.0).float()
    if before is not None:
        states = torch.cat((states[:, :1] + before[:, None], states[:, 1:]), dim=1)
    return states.cumsum(1)


def seen_states(config, state: HaltingState, candidate: torch.Tensor | None) -> torch.Tensor:
    """What the halting head judges by, before any mean: the running states and, side by side, the candidates."""
    if candidate is None:
        return state.hidden
    if config.running_mean and not config.halted_candidates:
        # a halted token keeps its state, so that is what the tokens after it find
        candidate = torch.where(state.live[..., None], candidate, state.hidden)
    return torch.cat((state.hidden, candidate), dim=-1)


def attended_state(config, state: HaltingState) -> torch.Tensor:
    """Where keys and values come from: the soft state (Algorithm 1), or the running state (Algorithm 3)."""
    return soft_state(state) if config.halting == "token" else state.hidden


def used_columns(mask: torch.Tensor) -> tuple[int, int]:
    """The narrowest range of columns that holds every valid token of (R, W)."""
    columns = mask.any(0).nonzero().squeeze(-1)
    return int(columns[0]), int(columns[-1]) + 1


def select_units(state: HaltingState, index: torch.Tensor) -> HaltingState:
    return HaltingState(*(tensor.index_select(0, index) for tensor in state))


def select_memory(memory: KeyValue | torch.Tensor | None, rows: torch.Tensor) -> KeyValue | torch.Tensor | None:
    """Of slots (B, M, E), or their projection, those of `rows` (n,)."""
    if memory is None:
        return None
    return memory.select(rows) if isinstance(memory, KeyValue) else memory.index_select(0, rows)


class PaddedLayout:
    """The unit is the row ("global") or, where nothing is gathered out, the token.

    With `slots` (see `cache`) keys, values and running sums of each step go on from those of earlier tokens.
    """

    def __init__(self, config, mask: torch.Tensor, context: PaddedContext, slots=None, rows=None, columns=None):
        self.config = config
        self.mask = mask  # (R, W) bool
        self.context = context
        self.slots = slots
        self.rows = torch.arange(mask.shape[0], device=mask.device) if rows is None else rows
        self.columns = (0, mask.shape[1], mask.shape[1]) if columns is None else columns  # start, stop, S
        self.token_units = config.token_units

    @property
    def units(self) -> torch.Tensor:
        return torch.arange(self.mask.numel(), device=self.mask.device) if self.token_units else self.rows

    @property
    def lengths(self) -> torch.Tensor:
        """Valid tokens beside each unit, itself included; broadcasts against the units."""
        return self.mask.sum(-1, keepdim=self.token_units)

    def begin(self, hidden: torch.Tensor) -> HaltingState:
        return initial_state(hidden, self.mask if self.token_units else self.mask.any(-1))

    def features(self, state: HaltingState, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        seen = seen_states(self.config, state, candidate)
        if not self.token_units:
            return masked_mean(seen, self.mask)
        return self.running_mean(seen, step) if self.config.running_mean else seen

    def running_mean(self, seen: torch.Tensor, step: int) -> torch.Tensor:
        """Mean over each token and those before it, earlier calls' included: (R, W, F) -> (R, W, F)."""
        counts, before = self.mask.cumsum(-1), None
        if self.slots is not None:
            counts, before = counts + self.slots.past_counts[:, None], self.slots.sums(step)
        sums = running_sums(seen, self.mask, before)
        if self.slots is not None:
            self.slots.keep_sums(step, sums)
        return (sums / counts.clamp_min(1)[..., None]).to(seen.dtype)

    def advance(self, block: nn.Module, state: HaltingState, step: int) -> tuple[BlockOutput, "PaddedLayout"]:
        context = self.context if self.slots is None else self.slots.enter(self.context, step)
        source = attended_state(self.config, state) if self.config.halting == "token" else None
        output = block(state.hidden, context, source)
        if self.slots is not None:
            self.slots.keep(step, output.key, output.value)
        return output, self

    def fill(self, block: nn.Module, state: HaltingState) -> None:
        """Give the steps that were spared what they would have found: states that no longer change."""
        if self.slots is None:
            return
        projected = block.keys_values(attended_state(self.config, state), self.context)
        key, value = (states.transpose(1, 2) for states in projected)
        for step in range(self.slots.kept, self.slots.depth):
            past = self.slots.past(step)
            self.slots.keep(step, *((key, value) if past is None else past.extended(key, value)))
        if self.config.running_mean:
            seen = seen_states(self.config, state, state.hidden if self.config.transition_aware else None)
            for step in range(self.slots.kept_sums, self.slots.depth):
                self.slots.keep_sums(step, running_sums(seen, self.mask, self.slots.sums(step)))

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
        mask = mask[:, start:stop]
        wide = state._replace(hidden=state.hidden[:, start:stop], accumulated=state.accumulated[:, start:stop])
        state = select_units(wide, keep)
        context = self.context._replace(
            attention_mask=key_mask(self.config, state.hidden, mask),
            rotations=self.context.rotations.select(keep, start, stop),
            memory=select_memory(self.context.memory, keep),
        )
        offset, _, total = self.columns
        columns = (offset + start, offset + stop, total)
        return PaddedLayout(self.config, mask, context, rows=self.rows[keep], columns=columns), state, finished


class Tokens(NamedTuple):
    """Tokens by their number in the batch, `b * S + s`, and by their slot in a layout, `r * W + w`."""

    units: torch.Tensor
    slots: torch.Tensor

    def followed_by(self, other: "Tokens") -> "Tokens":
        return Tokens(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


class Carried(NamedTuple):
    """What a layout hands to the next one."""

    key: torch.Tensor | None = None  # (R * W, H, D)
    value: torch.Tensor | None = None
    memory: KeyValue | torch.Tensor | None = None  # of the rows present
    halted: torch.Tensor | None = None  # (R * W, E) states of halted tokens, zeros elsewhere, for running means
    released: Tokens | None = None
    released_state: torch.Tensor | None = None


class PackedLayout:
    """Live tokens packed (N, E), and the keys and values of every token of the rows they sit in.

    Tokens released by the last compaction attend no more, but the others still attend to them: the next step
    computes the keys and values of their final states, which then stay as they are.
    """

    token_units = True

    def __init__(self, config, mask: torch.Tensor, rotations: Rotations, tokens: Tokens, carried: Carried):
        self.config = config
        self.mask = mask  # (R, W) bool: valid keys
        self.rotations = rotations  # of the whole batch, indexed by token number
        self.tokens = tokens
        self.carried = carried
        self.row = tokens.slots // mask.shape[1]  # (N,)
        self.context = self.build_context()

    @staticmethod
    def can_hold(config) -> bool:
        """Whether the implementation can attend from some tokens of a row: FlashAttention knows whole rows' order."""
        return not (config.is_causal and is_flash(config))

    @classmethod
    def pack(cls, config, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext):
        """(B, S, E) -> the layout of all valid tokens, and their states (N, E)."""
        slots = mask.flatten().nonzero().squeeze(-1)
        halted = torch.zeros_like(hidden).flatten(0, 1) if config.running_mean else None
        carried = Carried(memory=context.memory, halted=halted)
        layout = cls(config, mask, context.rotations, Tokens(slots, slots), carried)
        return layout, hidden.flatten(0, 1).index_select(0, slots)

    @property
    def units(self) -> torch.Tensor:
        return self.tokens.units

    @property
    def lengths(self) -> torch.Tensor:
        return self.mask.sum(-1)[self.row]

    def begin(self, hidden: torch.Tensor) -> HaltingState:
        return initial_state(hidden, torch.ones_like(self.row, dtype=torch.bool))

    def features(self, state: HaltingState, candidate: torch.Tensor | None, step: int) -> torch.Tensor:
        seen = seen_states(self.config, state, candidate)
        if not self.config.running_mean:
            return seen
        halted = self.carried.halted
        halted = halted if candidate is None else torch.cat((halted, halted), dim=-1)
        rows = place(seen, self.tokens.slots, self.mask.numel(), halted).unflatten(0, self.mask.shape)
        means = running_sums(rows, self.mask) / self.mask.cumsum(-1).clamp_min(1)[..., None]
        return means.flatten(0, 1).index_select(0, self.tokens.slots).to(seen.dtype)

    def build_context(self) -> PackedContext:
        num_rows, width = self.mask.shape
        queries_per_row = torch.bincount(self.row, minlength=num_rows)
        query_width = int(queries_per_row.max())
        first = queries_per_row.cumsum(0) - queries_per_row
        rank = torch.arange(self.row.shape[0], device=self.row.device) - first[self.row]
        released = self.carried.released
        fresh = self.tokens if released is None else self.tokens.followed_by(released)
        # released tokens come after the live ones, so that even a full set of keys is out of order with them
        in_order = released is None and fresh.slots.shape[0] == num_rows * width
        varlen = varlen_arguments(queries_per_row, self.mask.sum(-1)) if is_flash(self.config) else None
        context = PackedContext(
            attention_mask=None,
            query_rotation=self.rotations.of_tokens(self.tokens.units).query,
            key_rotation=self.rotations.of_tokens(fresh.units).key,
            query_slots=self.row * query_width + rank,
            key_slots=None if in_order else fresh.slots,
            num_rows=num_rows,
            query_width=query_width,
            key_width=width,
            frozen_key=self.carried.key,
            frozen_value=self.carried.value,
            varlen=varlen,
            valid_keys=None if varlen is None else self.mask.flatten().nonzero().squeeze(-1),
            memory=self.carried.memory,
        )
        return context if varlen is not None else context._replace(attention_mask=self.attention_mask(context))

    def attention_mask(self, context: PackedContext) -> torch.Tensor | None:
        if not self.config.is_causal:
            shape_only = self.mask.new_empty((), dtype=torch.float32).expand(*self.mask.shape, 1)
            return key_mask(self.config, shape_only, self.mask)
        width = self.mask.shape[1]
        column = torch.arange(width, device=self.mask.device)
        visible = (column <= context.spread(self.tokens.slots % width)[..., None]) & self.mask[:, None]
        return as_implemented(self.config, visible[:, None], torch.float32)

    def advance(self, block: nn.Module, state: HaltingState, step: int) -> tuple[BlockOutput, "PackedLayout"]:
        source = attended_state(self.config, state)
        if self.carried.released_state is not None:
            source = torch.cat((source, self.carried.released_state))
        output = block(state.hidden, self.context, source)
        return output, self.carrying(output.key, output.value)

    def carrying(self, key: torch.Tensor, value: torch.Tensor) -> "PackedLayout":
        """The same tokens, with the keys and values of the step just taken and nothing newly released."""
        layout = copy.copy(self)
        layout.carried = self.carried._replace(key=key, value=value, released=None, released_state=None)
        fresh = slice(self.row.shape[0])
        layout.context = self.context._replace(
            frozen_key=key,
            frozen_value=value,
            key_slots=None if self.context.key_slots is None else self.context.key_slots[fresh],
            key_rotation=self.context.key_rotation[fresh],
        )
        return layout

    def fill(self, block: nn.Module, state: HaltingState) -> None:
        """Nothing is cached of packed tokens."""

    def finish(self, state: HaltingState, index: torch.Tensor | None = None) -> Finished:
        units = self.units
        if index is not None:
            state, units = select_units(state, index), units[index]
        return Finished(units, soft_state(state), ponder_cost(state), state.steps)

    def compact(self, state: HaltingState, keep: torch.Tensor) -> tuple["PackedLayout", HaltingState, Finished]:
        """Keep the tokens at `keep` (n,), the live ones, and their rows -> layout and state, and what finished."""
        drop = (~state.live).nonzero().squeeze(-1)
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

        stays = drop[row_lives[self.row[drop]]]
        halted = self.carried.halted
        if halted is not None:
            halted = place(state.hidden[drop], self.tokens.slots[drop], self.mask.numel(), halted)
        carried = Carried(
            key=trimmed(self.carried.key),
            value=trimmed(self.carried.value),
            memory=select_memory(self.carried.memory, rows),
            halted=trimmed(halted),
            released=moved(stays) if stays.numel() else None,
            released_state=attended_state(self.config, state)[stays] if stays.numel() else None,
        )
        layout = PackedLayout(self.config, self.mask[rows, start:stop], self.rotations, moved(keep), carried)
        return layout, select_units(state, keep), self.finish(state, drop)
