"""The loop over depth as one operation of a traced graph."""

from typing import NamedTuple

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ...models.depth.halting import HaltingStrategy
from ...models.depth.layouts import Layout
from ...models.depth.loop import DepthOptions


def iterate_in_graph(
    block: nn.Module, strategy: HaltingStrategy, layout: Layout, state: NamedTuple, options: DepthOptions
) -> NamedTuple:
    """The final state of units that stay in their places, by one operation of a traced graph, which ends with the last.

    The first step comes before it, because it may decide nothing, and gives the latest prediction its shape.
    """

    def decided(state: NamedTuple, step: torch.Tensor, candidate: torch.Tensor | None = None) -> NamedTuple:
        state = strategy.decide(state, layout.features(state, candidate, 0), step)
        return state._replace(live=state.live & (step <= layout.lengths)) if options.cap_depth_by_length else state

    def after(state: NamedTuple, step: torch.Tensor, decides: bool) -> NamedTuple:
        """The state after a step; decisions by which units skip one have been taken."""
        output = None
        if strategy.needs_candidate:
            output, _ = layout.advance(block, state, 0)
        if decides and not strategy.skips_step:
            state = decided(state, step, None if output is None else output.hidden_states)
        if output is None:
            output, _ = layout.advance(block, state, 0)
        before, state = state, strategy.commit(state, output.hidden_states, step)
        return strategy.judge(before, state, layout, step) if strategy.exits else state

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        """What a loop carries must not share memory with anything else."""
        return tensor.clone(memory_format=torch.contiguous_format)

    decides_at_once = strategy.halts and strategy.skips_step
    step = torch.zeros((), dtype=torch.long, device=state.hidden.device)
    if decides_at_once and strategy.first_decision == 0:
        state = decided(state, step)
    state = after(state, step, strategy.halts and strategy.first_decision == 0)
    if options.max_depth == 1:
        return state
    step = step + 1
    state = decided(state, step) if decides_at_once else state
    leaves, structure = pytree.tree_flatten(state)
    # others are None or empty, and stay so
    places = [place for place, leaf in enumerate(leaves) if leaf is not None and leaf.numel() > 0]

    def state_of(carried: tuple[torch.Tensor, ...]) -> NamedTuple:
        values = dict(zip(places, carried, strict=True))
        return pytree.tree_unflatten([values.get(place, leaf) for place, leaf in enumerate(leaves)], structure)

    def goes_on(step: torch.Tensor, *carried: torch.Tensor) -> torch.Tensor:
        return state_of(carried).live.any() & (step < options.max_depth)

    def advance(step: torch.Tensor, *carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        new, step = after(state_of(carried), step, strategy.halts), step + 1
        changed = pytree.tree_leaves(new)
        if decides_at_once:
            # a decision on a step after the last one does not count
            pairs = zip(pytree.tree_leaves(decided(new, step)), changed, strict=True)
            changed = [chosen(step < options.max_depth, *pair) for pair in pairs]
        return step, *(apart(changed[place]) for place in places)

    _, *carried = torch.while_loop(goes_on, advance, (step, *(apart(leaves[place]) for place in places)))
    return state_of(carried)


def chosen(condition: torch.Tensor, new: torch.Tensor | None, old: torch.Tensor | None) -> torch.Tensor | None:
    """The new tensor if a condition, a tensor, holds, else the old one."""
    if new is old:
        return old
    # other runtimes have no choice between bools
    return (condition & new) | (~condition & old) if new.dtype == torch.bool else torch.where(condition, new, old)
