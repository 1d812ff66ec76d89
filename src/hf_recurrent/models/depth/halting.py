"""When the units of a depth loop halt: what all strategies have in common.

Shapes: U halting units (sequences, or tokens), N packed states, E width.
"""

from typing import NamedTuple

import torch


class HaltingStrategy:
    """When units halt, and their output. Methods are pure functions of the state.

    A state is a NamedTuple of tensors whose first dimension is that of the units present, or of their rows: the running
    states `hidden`; `live` (U,) bool, units that have not halted; with halting `probability` (U,), conditional halting
    probability of the latest decision; `unit` (N,) of packed states (N, E), None if states have the unit dims first.
    A `step` is counted from 0: the number of the step, or in a graph a tensor with it.

    Strategies also define `initial_state(hidden, live)`, before any step, where `live` is False for padding;
    `decide(state, features, step)`, the state with its new `live` and `probability`; `commit(state, candidate, step)`,
    the state after a step, whose result is the candidate; and `output(state)`, final states, ponder costs and executed
    steps of the units.

    Attributes:
        halts: whether units ever halt; halting probabilities are recorded if they do.
        exits: whether `judge(before, state, layout, step)`, the state after a step, stops units.
        token_units: whether the unit is the token, rather than the whole sequence.
        running_mean: whether a token's decision sees the mean over itself and the tokens before it.
        needs_candidate: whether a decision sees the state after the step, too.
        skips_step: whether a unit that halts skips the step under decision.
        needs_every_step: whether every unit must take every step, so that compaction and early exit are not allowed.
        first_decision: the first step at which units may halt.
        padding_in_ponder_cost: whether the mean ponder cost of a sequence divides by its columns, padding included.
    """

    halts = exits = token_units = running_mean = needs_candidate = skips_step = needs_every_step = False
    padding_in_ponder_cost = False
    first_decision = 0

    def decides(self, step: int) -> bool:
        """Whether units may halt at a step."""
        return step >= self.first_decision

    def features(self, state: NamedTuple, candidate: torch.Tensor | None) -> torch.Tensor:
        """Input of the halting head, before any mean over tokens."""
        return state.hidden

    def attended(self, state: NamedTuple) -> torch.Tensor | None:
        """Source of keys and values, None for the running states."""

    def readout(self, state: NamedTuple) -> torch.Tensor:
        """States that the output would be, were the units to stop now."""
        return state.hidden
