"""Continuous depth batching: rows of different depth share each step, and waiting rows take places of finished ones.

Shapes: n rows that are admitted, W columns of the longest of them, N their tokens, U units present.
"""

from typing import NamedTuple

import torch

from ..models.engine.depth_loop import HaltingState, Layout, Pruner, check_halting_probabilities
from ..models.engine.layouts import Finished, joined_states
from ..models.ops.stick_breaking import expand_units


def chosen(condition: torch.Tensor, new: NamedTuple, old: NamedTuple) -> NamedTuple:
    """The new state of the units where `condition` (U,) holds, the old one of the others."""

    def choose(changed, kept):
        if changed is kept:
            return kept
        if isinstance(changed, tuple):
            return chosen(condition, changed, kept)
        return torch.where(expand_units(condition, changed, new.unit), changed, kept)

    return type(new)(*map(choose, new, old))


class DepthSteps:
    """Depth steps of units that are at depths of their own.

    Args:
        model: a base model with one shared block.
        call: the choices of a forward pass without cache and records.

    Attributes:
        decisions: of a call with `record_halting`, the numbers of units, the steps that they decided on, and their
            conditional halting probabilities, of all decisions so far.
    """

    def __init__(self, model, call: NamedTuple):
        self.model = model
        self.decisions: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.max_steps = model.resolve_max_steps(call)
        self.strategy = model.strategy(call, self.max_steps, None)
        self.options = model.depth_options(call, self.max_steps)
        self.nan_step = torch.full((), -1, device=model.device)

    @property
    def decides_after_step(self) -> bool:
        """Whether a decision on the next step is taken at once, so that a unit that skips it leaves its place."""
        return self.strategy.halts and self.strategy.skips_step

    def entered(self, layout: Layout, hidden: torch.Tensor) -> HaltingState:
        """The state of units that have taken no step, with input states as the layout holds them."""
        state = layout.initial_state(hidden)
        if self.decides_after_step and self.strategy.decides(0):
            state = self.decided(layout, state, None)
        return state

    def advanced(self, layout: Layout, state: HaltingState) -> tuple[Layout, HaltingState]:
        """Layout and state after one depth step, in which units that have finished are no longer live."""
        strategy, block = self.strategy, self.model.block
        steps, output = state.steps, None
        if strategy.needs_candidate:
            output, layout = layout.advance(block, state, 0)
        if strategy.halts and not self.decides_after_step:
            state = self.decided(layout, state, None if output is None else output.hidden_states)
        if output is None:
            output, layout = layout.advance(block, state, 0)
        before, state = state, strategy.commit(state, output.hidden_states, steps)
        if strategy.exits:
            state = strategy.judge(before, state, layout, steps)
        state = strategy.stopped(state, steps + 1 >= self.max_steps)
        if self.decides_after_step:
            state = self.decided(layout, state, None)
        return layout, state

    def decided(self, layout: Layout, state: HaltingState, candidate: torch.Tensor | None) -> HaltingState:
        """The state after the decisions of the units, those before their first one excepted."""
        steps, strategy = state.steps, self.strategy
        new = strategy.decide(state, layout.features(state, candidate, 0), steps)
        if not strategy.decides(0):
            new = chosen(steps > 0, new, state)
        if self.options.record_halting:
            live = state.live.flatten().nonzero().squeeze(-1)
            values = layout.units, steps, new.probability
            self.decisions.append(tuple(each.flatten()[live] for each in values))
        is_nan = (new.probability.isnan() & state.live).any()
        self.nan_step = torch.where((self.nan_step < 0) & is_nan, steps.max(), self.nan_step)
        if self.options.cap_depth_by_length:
            new = new._replace(live=new.live & (steps <= layout.lengths))
        return new


class DepthPool(DepthSteps):
    """Rows under way through one shared block, each at a depth of its own.

    Results are those of the plain forward pass, because a row's computations do not depend on the rows beside it.

    Args:
        model: a `SharedBlockModel`.
        call: the choices of a forward pass without cache and records.
        length: tokens of the longest row to come; tokens are numbered `row * length + column`.
    """

    def __init__(self, model, call: NamedTuple, length: int):
        super().__init__(model, call)
        self.length = length
        self.tables = model.pool_tables(length)
        self.pruner = Pruner(self.options, self.strategy, model.block)
        self.layout: Layout | None = None
        self.state: HaltingState | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that the next step is computed for."""
        return 0 if self.layout is None else self.state.hidden.shape[0]

    @property
    def width(self) -> int:
        """Tokens of the longest row, 0 without rows."""
        return 0 if self.layout is None else self.layout.mask.shape[1]

    @property
    def num_places(self) -> int:
        """Places of tokens in the rectangle that attention is computed over."""
        return 0 if self.layout is None else self.layout.mask.numel()

    def admit(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, mask: torch.Tensor, rows: torch.Tensor
    ) -> None:
        """Add rows, which take their first step with the next one.

        Args:
            input_ids, token_type_ids: (N,) of the tokens, row by row.
            mask: (n, W) bool, True at tokens, which are each row's first columns.
            rows: (n,) numbers of the rows.
        """
        layout = self.model.pool_layout(self.strategy, mask, self.tables, rows, self.length)
        state = self.entered(layout, self.model.embedded_tokens(input_ids, token_type_ids, mask))
        if self.layout is not None:
            layout = self.layout.joined(layout, state, self.context)
            state = joined_states(self.state, state)
        self.layout, self.state = layout, state

    def context(self, mask: torch.Tensor) -> NamedTuple:
        return self.model.pool_context(mask, self.tables)

    def step(self) -> list[Finished]:
        """Take one depth step -> the units that finished."""
        layout, state = self.advanced(self.layout, self.state)
        any_live, layout, state = self.pruner.prune(layout, state)
        finished, self.pruner.finished = self.pruner.finished, []
        if not any_live:
            finished.append(layout.finish(state))
            layout = state = None
            check_halting_probabilities(self.nan_step)
        self.layout, self.state = layout, state
        return finished
