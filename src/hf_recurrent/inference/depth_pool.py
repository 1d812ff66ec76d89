"""Continuous depth batching: rows of different depth share each step, and waiting rows take places of finished ones.

Shapes: n rows that are admitted, W columns of the longest of them, N their tokens, U units present.
"""

from typing import NamedTuple

import torch

from ..models.engine.depth_loop import HaltingState, Layout, Pruner, check_halting_probabilities
from ..models.engine.depth_steps import DepthSteps
from ..models.engine.layouts import Finished
from ..models.engine.unit_states import joined_states


class PoolSteps(DepthSteps):
    """Depth steps of units that are at depths of their own.

    Args:
        model: a base model with one shared block.
        call: the choices of a forward pass without cache and records.

    Attributes:
        decisions: of a call with `record_halting`, the numbers of units, the steps that they decided on, and their
            conditional halting probabilities, of all decisions so far.
    """

    def __init__(self, model, call: NamedTuple):
        max_steps = model.resolve_max_steps(call)
        super().__init__(model.block, model.strategy(call, max_steps, None), model.depth_options(call, max_steps))
        self.model = model
        self.decisions: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self.nan_step = torch.full((), -1, device=model.device)

    @property
    def max_steps(self) -> int:
        return self.options.max_steps

    def decided(self, layout: Layout, state: HaltingState, candidate: torch.Tensor | None) -> HaltingState:
        """The state after the decisions, which are recorded if the call wants it."""
        new = super().decided(layout, state, candidate)
        if self.options.record_halting:
            live = state.live.flatten().nonzero().squeeze(-1)
            values = layout.units, state.steps, new.probability
            self.decisions.append(tuple(each.flatten()[live] for each in values))
        is_nan = (new.probability.isnan() & state.live).any()
        self.nan_step = torch.where((self.nan_step < 0) & is_nan, state.steps.max(), self.nan_step)
        return new


class DepthPool(PoolSteps):
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
        self.pruner = Pruner(self.options, self.strategy, model.block, makes_room=True)
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
        self.pruner.units_joined()

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
