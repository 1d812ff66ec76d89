"""Rows of a padded rectangle, see `layout`.

Shapes: R rows present, W columns present, E width, F features.
"""

import torch
from torch import nn

from .attention import PaddedContext
from .block import BlockOutput
from .halting import HaltingState, initial_state, ponder_cost, soft_state
from .layout import (
    Finished,
    attended_state,
    key_mask,
    masked_mean,
    running_sums,
    seen_states,
    select_memory,
    select_units,
    used_columns,
)


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
