"""Depth steps of units as pure functions of their state, for units at depths of their own and for loops in a graph.

Shapes: U units, E width.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..ops.stick_breaking import expand_units

if TYPE_CHECKING:
    from .depth_loop import DepthOptions, HaltingState, HaltingStrategy, Layout


def chosen(condition: torch.Tensor, new: NamedTuple, old: NamedTuple) -> NamedTuple:
    """The new state of the units where `condition` (U,) holds, the old one of the others."""

    def choose(changed, kept):
        if changed is kept:
            return kept
        if isinstance(changed, tuple):
            return chosen(condition, changed, kept)
        where = expand_units(condition, changed, new.unit)
        # other runtimes have no choice between bools
        return (where & changed) | (~where & kept) if changed.dtype == torch.bool else torch.where(where, changed, kept)

    return type(new)(*map(choose, new, old))


class DepthSteps:
    """Depth steps of units, whose number each unit's state tells.

    Args:
        block: the block that all steps share.
        options: of a call without cache and without records of its states.
    """

    def __init__(self, block: nn.Module, strategy: "HaltingStrategy", options: "DepthOptions"):
        self.block = block
        self.strategy = strategy
        self.options = options

    @property
    def decides_after_step(self) -> bool:
        """Whether a decision on the next step is taken at once, so that a unit that skips it leaves its place."""
        return self.strategy.halts and self.strategy.skips_step

    def entered(self, layout: "Layout", hidden: torch.Tensor) -> "HaltingState":
        """The state of units that have taken no step, with input states as the layout holds them."""
        state = layout.initial_state(hidden)
        if self.decides_after_step and self.strategy.decides(0):
            state = self.decided(layout, state, None)
        return state

    def advanced(self, layout: "Layout", state: "HaltingState") -> tuple["Layout", "HaltingState"]:
        """Layout and state after one depth step, in which units that have finished are no longer live."""
        strategy, block = self.strategy, self.block
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
        state = strategy.stopped(state, steps + 1 >= self.options.max_steps)
        if self.decides_after_step:
            state = self.decided(layout, state, None)
        return layout, state

    def decided(self, layout: "Layout", state: "HaltingState", candidate: torch.Tensor | None) -> "HaltingState":
        """The state after the decisions of the units, those before their first one excepted."""
        steps, strategy = state.steps, self.strategy
        new = strategy.decide(state, layout.features(state, candidate, 0), steps)
        if not strategy.decides(0):
            new = chosen(steps > 0, new, state)
        if self.options.cap_depth_by_length:
            new = new._replace(live=new.live & (steps <= layout.lengths))
        return new


def loop_in_graph(steps: DepthSteps, layout: "Layout", hidden: torch.Tensor) -> "HaltingState":
    """The final state of all units, by one operation of a traced graph that ends when no unit lives.

    Args:
        layout: of units that stay in their places.
        hidden: input states, as the layout holds them.
    """

    def own(tensor: torch.Tensor) -> torch.Tensor:
        """What a loop carries must not share memory with anything else."""
        return tensor.clone(memory_format=torch.contiguous_format)

    state = steps.entered(layout, hidden)
    if steps.strategy.exits:
        # gives the latest prediction its shape
        _, state = steps.advanced(layout, state)
    leaves, structure = pytree.tree_flatten(state)
    # others are None or empty, and stay so
    places = [place for place, leaf in enumerate(leaves) if leaf is not None and leaf.numel() > 0]

    def state_of(carried: tuple[torch.Tensor, ...]) -> "HaltingState":
        values = dict(zip(places, carried, strict=True))
        return pytree.tree_unflatten([values.get(place, leaf) for place, leaf in enumerate(leaves)], structure)

    def goes_on(*carried: torch.Tensor) -> torch.Tensor:
        return state_of(carried).live.any()

    def advance(*carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        _, after = steps.advanced(layout, state_of(carried))
        changed = pytree.tree_leaves(after)
        return tuple(own(changed[place]) for place in places)

    return state_of(torch.while_loop(goes_on, advance, tuple(own(leaves[place]) for place in places)))
