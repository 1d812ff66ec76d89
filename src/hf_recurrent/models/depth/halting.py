"""When the units of a depth loop halt: what all strategies have in common, and the strategy of a fixed depth.

Shapes: U halting units (sequences, or tokens), N packed states, E width.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from ..ops.graphs import in_graph

# fields of states that hold a state of each token, in the order of a layout; others hold a value of each unit
OF_TOKENS = ("hidden", "accumulated", "output", "soft")


def map_state(
    state: NamedTuple,
    of_units: Callable[[torch.Tensor], torch.Tensor],
    of_tokens: Callable[[torch.Tensor], torch.Tensor],
    unit: torch.Tensor | None = None,
) -> NamedTuple:
    """Functions of the tensors by unit and by token of a state, and of the state that it wraps; with another `unit`."""
    values: list = []
    for name, value in zip(state._fields, state, strict=True):
        if name == "unit":
            values.append(unit)
        elif isinstance(value, tuple):
            values.append(map_state(value, of_units, of_tokens, unit))
        else:
            values.append(of_tokens(value) if name in OF_TOKENS else of_units(value))
    return type(state)(*values)


def select_units(state: NamedTuple, index: torch.Tensor) -> NamedTuple:
    """The state of the units at `index` (n,), which have a state each."""

    def select(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.index_select(0, index)

    return map_state(state, select, select)


def at_hand(tensor: torch.Tensor) -> bool:
    """Whether the host reads it without a wait for an accelerator, and may: a graph must not depend on data."""
    return tensor.device.type == "cpu" and not in_graph()


def halted_by(live: torch.Tensor, halts: torch.Tensor) -> torch.Tensor:
    """`live` (U,) without the units that halt; the same tensor where the host knows that none of them lived."""
    return live if at_hand(live) and not bool((live & halts).any()) else live & ~halts


def expand_units(per_unit: torch.Tensor, states: torch.Tensor, unit: torch.Tensor | None = None) -> torch.Tensor:
    """(U,) in a form that broadcasts against states (U, ..., E), or against packed ones (N, E) of the units (N,)."""
    per_unit = per_unit if unit is None else per_unit.index_select(0, unit)
    return per_unit.reshape(per_unit.shape + (1,) * (states.dim() - per_unit.dim()))


class HaltingStrategy:
    """When units halt, and their output. Methods are pure functions of the state.

    A state is a NamedTuple of tensors whose first dimension is that of the units present, or of their tokens (see
    `OF_TOKENS`): the running states `hidden`; `live` (U,) bool, units that have not halted; with halting `probability`
    (U,), conditional halting probability of the latest decision; `unit` (N,) of packed states (N, E), None if states
    have the unit dims first. A `step` is counted from 0: the number of the step, or in a graph a tensor with it.

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
        freezes: whether there may be units that have halted and whose states are still read, by others or as output, so
            that they must stay; the loop says so.
        padding_in_ponder_cost: whether the mean ponder cost of a sequence divides by its columns, padding included.
    """

    halts = exits = token_units = running_mean = needs_candidate = skips_step = needs_every_step = False
    padding_in_ponder_cost = False
    freezes = True
    first_decision = 0

    def features(self, state: NamedTuple, candidate: torch.Tensor | None) -> torch.Tensor:
        """Input of the halting head, before any mean over tokens."""
        return state.hidden

    def attended(self, state: NamedTuple) -> torch.Tensor | None:
        """Source of keys and values, None for the running states."""

    def readout(self, state: NamedTuple) -> torch.Tensor:
        """States that the output would be, were the units to stop now."""
        return state.hidden


class FixedState(NamedTuple):
    hidden: torch.Tensor
    live: torch.Tensor
    unit: torch.Tensor | None = None


class FixedDepth(HaltingStrategy):
    """Every unit takes every step."""

    needs_every_step = True

    def __init__(self, token_units: bool = False):
        self.token_units = token_units

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> FixedState:
        return FixedState(hidden, live)

    def commit(self, state: FixedState, candidate: torch.Tensor, step: int | torch.Tensor) -> FixedState:
        return state._replace(hidden=candidate)

    def output(self, state: FixedState) -> tuple[torch.Tensor, None, None]:
        return state.hidden, None, None
