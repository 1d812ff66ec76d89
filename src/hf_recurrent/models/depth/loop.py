"""The one loop over depth: halting, early exit, compaction and depth limits.

The loop is independent of how units halt (`HaltingStrategy`) and of their layout in memory (`Layout`).
Shapes: B sequences, S tokens, E width, L maximum of steps, U halting units (sequences, or tokens), I units present.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import nn

from ..ops.graphs import end_of_step, in_graph
from ..ops.sharding import is_sharded, largest_over_ranks
from .halting import HaltingStrategy, at_hand
from .layouts import Finished, Layout, is_launch_bound

# of halted units, from which on an accelerator gathers them out
MIN_SHARE_ON_ACCELERATOR = 1 / 16
# Products that a CPU core computes in the time of a compaction, about 0.7 ms, whose operators cost more than what they
# move. Once halted units have wasted as many since the latest one, another pays: whenever the others halt, waste and
# compaction together then cost at most twice what the best choice would.
PRODUCTS_PER_COMPACTION = 1 << 23
# and those that it computes in the time in which it moves a number of the states
PRODUCTS_PER_MOVE = 64


class DepthOptions(NamedTuple):
    """One call's choices; defaults come from the config."""

    max_depth: int
    compaction: bool = True
    hard_stop: bool = True
    record_halting: bool = False
    record_states: bool = False
    cap_depth_by_length: bool = False
    # the first steps, through which no gradient is propagated
    steps_without_gradient: int = 0
    # of an exporter: a loop of a traced graph that ends with the last unit, rather than every step one after another
    loop_in_graph: Callable[..., NamedTuple] | None = None
    full: bool = False  # whether the host knows that no token is padding

    def ends_early(self, strategy: HaltingStrategy) -> bool:
        """Whether results allow the loop to end early."""
        # a record of every step needs every step
        return self.hard_stop and not (strategy.needs_every_step or self.record_states)

    def may_compact(self, strategy: HaltingStrategy) -> bool:
        # a traced graph cannot branch on data
        return self.compaction and self.ends_early(strategy) and not in_graph()


class DepthOutput(NamedTuple):
    hidden_states: torch.Tensor  # final states, (B, S, E), zero at padding
    ponder_cost: torch.Tensor | None = None  # (B,) expected depth, mean over a sequence's units
    ponder_steps: torch.Tensor | None = None  # (B,), or (B, S) with -1 at padding
    halting_probabilities: torch.Tensor | None = None  # (B, L) or (B, S, L), zero once a unit has halted
    all_hidden_states: tuple[torch.Tensor, ...] | None = None  # L + 1 running states (B, S, E)
    attentions: tuple[torch.Tensor, ...] | None = None  # L of (B, H, S, S)
    gates: tuple[torch.Tensor, ...] | None = None  # L of (B, S, E)
    read_attentions: tuple[torch.Tensor, ...] | None = None  # L of (B, H, S, M), to memory slots
    memory_states: tuple[torch.Tensor, ...] | None = None  # (B, M, E) before the first chunk and after each
    step_features: tuple[torch.Tensor, ...] | None = None  # L of (B, F), or of (B, S, E) for tokens
    halting_distribution: torch.Tensor | None = None  # (B, L), or (B, S, L) for tokens
    extras: tuple | None = None  # of the architecture's own


class LateValues:
    """Values of each step, such as the number of live units, without making an accelerator wait for the host.

    On an accelerator they are copied in the background and read one step late: by then they have arrived while the
    next step was being queued. Deciding late is exact, because halted units are masked until compaction.
    """

    def __init__(self):
        self.pending: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def poll(self, values: torch.Tensor) -> int | list | None:
        """The newest values that are known, as `tolist` has them; None while there are none yet."""
        if values.device.type != "cuda":
            return values.tolist()
        arrived, self.pending = self.pending, (values.to("cpu", non_blocking=True), torch.cuda.Event())
        # of the device that copies, which need not be the current one
        self.pending[1].record(torch.cuda.current_stream(values.device))
        if arrived is None:
            return None
        arrived[1].synchronize()
        return arrived[0].tolist()


class Pruner:
    """Early exit and compaction, if it pays, after each decision of the units.

    Where nobody reads the states of rows that have halted, their outputs are taken at once, and their states may then
    have any value: to compute them on costs less than to keep them.
    """

    def __init__(self, options: DepthOptions, strategy: HaltingStrategy, block: nn.Module, layout: Layout):
        self.may_compact = options.may_compact(strategy) and layout.leaves is not None
        stops = options.ends_early(strategy) and (strategy.halts or strategy.exits)
        self.may_stop = stops and not in_graph()
        # steps of a captured graph, which later runs of it may leave out; a record of each needs them all
        self.may_skip = stops and in_graph() and not options.record_halting
        self.sharded = self.may_stop and is_sharded(block)
        self.at_hand = at_hand(layout.mask)
        # every rank of a sharded block propagates gradients back through as many steps, whether or not its rows live
        takes = self.at_hand and self.may_stop and self.may_compact and not self.sharded
        self.takes_outputs = takes and layout.discards_halted
        # until one halts, where no unit is padding
        self.strategy, strategy.freezes = strategy, not (self.takes_outputs or (layout.full and self.at_hand))
        self.finished: list[Finished] = []
        # of the latest state: its own, which is another tensor if a unit has halted; the units or rows that can leave,
        # of which so many live; and those among them whose outputs have been taken, if any
        self.seen: torch.Tensor | None = None
        self.live, self.live_count, self.count = torch.empty(0), LateValues(), None
        self.taken: torch.Tensor | None = None
        # products of halted units since the latest compaction
        self.wasted = 0

    def end_of_step(self, state: NamedTuple) -> NamedTuple:
        return end_of_step(state, self) if self.may_skip else state

    def observe(self, layout: Layout, state: NamedTuple) -> None:
        """Count the live units if one has halted, and take the outputs of those that have, where that is the way."""
        if state.live is self.seen or in_graph():
            return
        self.seen = state.live
        if self.at_hand and not self.takes_outputs:
            self.strategy.freezes = not bool(state.live.all())
        if not self.may_stop:
            return
        self.live = layout.has_live_units(state.live) if self.may_compact else state.live
        self.count = self.live_count.poll(self.live.sum())
        if self.takes_outputs:
            new = ~self.live if self.taken is None else ~(self.live | self.taken)
            index = new.nonzero().squeeze(-1)
            if index.numel() > 0:
                # all at once need no numbers
                self.finished.append(layout.finish(state, None if index.numel() == new.numel() else index))
                self.taken = ~self.live

    def prune(self, layout: Layout, state: NamedTuple) -> tuple[bool, Layout, NamedTuple]:
        """-> whether any unit lives, on any rank if sharded, and layout and state of the units present."""
        self.observe(layout, state)
        if not self.may_stop:
            return True, layout, self.end_of_step(state)
        live, count = self.live, self.count
        if count is None:
            return True, layout, state
        any_live = count > 0
        if self.sharded:
            any_live = largest_over_ranks(count, live.device) > 0
        if self.may_compact and 0 < count < live.numel() and self.pays(layout, state.hidden):
            layout, state = layout.one_by_one(state)
            live = layout.has_live_units(state.live)
            keep = live.nonzero().squeeze(-1)
            # the count may be a step old, so that now fewer units live, or none; or it was of padding
            if 0 < keep.numel() < live.numel():
                drop = (~live).nonzero().squeeze(-1)
                if not self.takes_outputs:
                    self.finished.append(layout.finish(state, drop))
                layout, state = layout.compact(state, keep, drop)
                self.taken = None
            self.wasted = 0
        return any_live, layout, state

    def pays(self, layout: Layout, hidden: torch.Tensor) -> bool:
        """Whether compaction pays; called once a step."""
        present, num_tokens, width = self.live.numel(), hidden.shape[:-1].numel(), hidden.shape[-1]
        halted = present - self.count
        if not self.at_hand:
            launch_bound = is_launch_bound(hidden.device, num_tokens, width)
            return not launch_bound and halted >= max(1, present * MIN_SHARE_ON_ACCELERATOR)
        # maps of attention and of a feed-forward network of usual sizes, and attention
        self.wasted += halted * num_tokens // present * width * (8 * width + 2 * layout.mask.shape[1])
        return self.wasted >= PRODUCTS_PER_COMPACTION + PRODUCTS_PER_MOVE * num_tokens * width

    def outputs(self, layout: Layout, state: NamedTuple) -> list[Finished]:
        """The outputs of all units."""
        if self.taken is None:
            return [*self.finished, layout.finish(state)]
        rest = (~self.taken).nonzero().squeeze(-1)
        return [*self.finished, layout.finish(state, rest)] if rest.numel() > 0 else self.finished


class Trace:
    """The requested record of each step."""

    def begin(self, options: DepthOptions, num_units: int, hidden: torch.Tensor) -> None:
        self.options, self.num_units = options, num_units
        self.probabilities: list[torch.Tensor] = []
        self.hidden_states, self.outputs = [hidden], []

    def step(self, layout: Layout, state: NamedTuple, output: NamedTuple) -> None:
        if self.options.record_states:
            self.hidden_states.append(state.hidden)
            self.outputs.append(output)

    def recorded(self, name: str) -> tuple[torch.Tensor, ...] | None:
        """A field of each step's output, None where steps have none."""
        values = tuple(getattr(output, name, None) for output in self.outputs)
        return values if values and values[0] is not None else None


def iterate(
    blocks: Sequence[nn.Module],
    strategy: HaltingStrategy,
    layout: Layout,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    options: DepthOptions,
    trace: Trace | None = None,
) -> DepthOutput:
    """Apply blocks in turn, or one shared block again and again, until every unit has halted (Algorithms 1 and 3).

    Args:
        blocks: one block that all steps share, or one for each step.
        layout: of the units of the whole batch.
        hidden: input states.
        mask: (B, S) bool, True at tokens.
        trace: the record of each step to fill; a plain one if None.

    Raises:
        ValueError: a halting probability is NaN.
    """
    state = layout.initial_state(hidden)
    trace = Trace() if trace is None else trace
    trace.begin(options, mask.numel() if strategy.token_units else mask.shape[0], state.hidden)
    stops = options.ends_early(strategy) and (strategy.halts or strategy.exits)
    if stops and options.loop_in_graph and torch.compiler.is_compiling() and not options.record_halting:
        state = options.loop_in_graph(blocks[0], strategy, layout, state, options)
        return summarize([layout.finish(state)], mask, strategy, trace)
    pruner, decisions = Pruner(options, strategy, blocks[0], layout), []

    for step in range(options.max_depth):
        block, decides = blocks[step % len(blocks)], strategy.halts and step >= strategy.first_decision
        with torch.no_grad() if step < options.steps_without_gradient else nullcontext():
            output = None
            if strategy.needs_candidate:
                output, layout = layout.advance(block, state, step)
            live = state.live
            if decides:
                candidate = None if output is None else output.hidden_states
                state = strategy.decide(state, layout.features(state, candidate, step), step)
                decisions.append((step, state.probability.detach(), live))
            if strategy.halts and options.cap_depth_by_length:
                state = state._replace(live=state.live & (step <= layout.lengths))
            if strategy.halts and options.record_halting:
                # zero for units that halted before this decision
                probability = torch.where(live, state.probability, 0.0).flatten()
                trace.probabilities.append(assemble([probability], [layout.units], trace.num_units))
            if decides:
                # before the step, which units that halt do not take
                pruner.observe(layout, state)
            if strategy.skips_step and step >= strategy.first_decision:
                any_live, layout, state = pruner.prune(layout, state)
                if not any_live:
                    break
            if output is None:
                output, layout = layout.advance(block, state, step)
            before, state = state, strategy.commit(state, output.hidden_states, step)
            trace.step(layout, state, output)
            if strategy.exits:
                state = strategy.judge(before, state, layout, step)
            if not strategy.skips_step:
                any_live, layout, state = pruner.prune(layout, state)
                if not any_live:
                    break

    if strategy.skips_step:
        # the last one ends after its decision
        state = pruner.end_of_step(state)
    check_halting_probabilities(decisions)
    layout.complete_cache(blocks[0], state)
    return summarize(pruner.outputs(layout, state), mask, strategy, trace)


def check_halting_probabilities(decisions: list[tuple[int, torch.Tensor, torch.Tensor]]) -> None:
    """Raise a ValueError if the halting probability of a live unit is NaN.

    All are looked at together: one after another they would be a tenth of an accelerator's launches.

    Args:
        decisions: a step, conditional halting probabilities of the units present, and which had not halted before.
    """
    # a traced graph must not depend on data
    if not decisions or in_graph():
        return
    probability, live = (torch.cat([each[field].flatten() for each in decisions]) for field in (1, 2))
    if (probability.isnan() & live).any():
        step = next(step for step, probability, live in decisions if (probability.isnan() & live).any())
        raise ValueError(
            f"a halting probability is NaN at depth step {step}, counted from 0: the weights or the inputs hold NaN or "
            "infinite values; check them (e.g. `all(p.isfinite().all() for p in model.parameters())`) before running "
            "the model"
        )


def assemble(
    values: list[torch.Tensor], numbers: list[torch.Tensor | None], size: int, fill: float = 0
) -> torch.Tensor:
    """Values (n, ...) by the numbers (n,) of what they are of, which are all of so many if None -> (size, ...)."""
    if numbers[0] is None:
        return values[0]
    pieces = torch.cat(values)
    return pieces.new_full((size, *pieces.shape[1:]), fill).index_copy(0, torch.cat(numbers), pieces)


def summarize(finished: list[Finished], mask: torch.Tensor, strategy: HaltingStrategy, trace: Trace) -> DepthOutput:
    """The output of a loop over a batch with this mask (B, S)."""
    by_token, shape, options = strategy.token_units, mask.shape, trace.options
    units = [piece.units for piece in finished]

    def by_unit(values: list[torch.Tensor], fill: float = 0) -> torch.Tensor | None:
        if values[0] is None:
            return None
        whole = assemble(values, units, mask.numel() if by_token else shape[0], fill)
        return whole.unflatten(0, shape) if by_token and whole.dim() == 1 else whole

    tokens = [piece.tokens for piece in finished]
    hidden = assemble([piece.hidden_states for piece in finished], tokens, mask.numel())
    hidden = hidden if hidden.dim() == 3 else hidden.unflatten(0, shape)
    cost = by_unit([piece.ponder_cost for piece in finished])
    steps = by_unit([piece.steps for piece in finished], -1)
    probabilities = None
    if trace.probabilities:
        # zero at steps that were not taken
        taken = torch.stack(trace.probabilities, dim=-1)
        probabilities = nn.functional.pad(taken, (0, options.max_depth - taken.shape[-1]))
    if by_token:
        if cost is not None:
            number = shape[1] if strategy.padding_in_ponder_cost else mask.sum(-1).clamp_min(1)
            cost = (cost * mask).sum(-1) / number
        steps = None if steps is None else torch.where(mask, steps, -1)
        probabilities = None if probabilities is None else probabilities.unflatten(0, shape)
    return DepthOutput(
        hidden_states=hidden if options.full else torch.where(mask[..., None], hidden, 0.0),
        ponder_cost=cost,
        ponder_steps=steps,
        halting_probabilities=probabilities,
        all_hidden_states=tuple(trace.hidden_states) if options.record_states else None,
        attentions=trace.recorded("attentions"),
        gates=trace.recorded("gate"),
        read_attentions=trace.recorded("read_attentions"),
    )
