"""The one loop over depth: halting, early exit, compaction and depth limits.

The loop is independent of how units halt (`HaltingStrategy`) and of their layout in memory (`Layout`).
Shapes: B sequences, S tokens, E width, L maximum of steps, U halting units (sequences, or tokens), I units present.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import nn

from ..common.graphs import end_of_step, in_graph
from ..common.sharding import is_sharded, largest_over_ranks
from ..common.validation import Problem
from .depth_steps import DepthSteps, loop_in_graph
from .launches import is_launch_bound
from .layouts import Finished

# compaction costs about a tenth of a step's element-wise work: it pays from this share of halted units on
MIN_SHARE_TO_COMPACT = 1 / 16


class HaltingState(Protocol):
    """A NamedTuple of tensors whose first dimension is that of the units present, or of their rows."""

    hidden: torch.Tensor  # running states
    live: torch.Tensor  # bool, units that have not halted
    probability: torch.Tensor  # conditional halting probability of the latest decision
    unit: torch.Tensor | None  # (N,) of packed states (N, E), None if states have the unit dims first


class HaltingStrategy(Protocol):
    """When units halt, and their output. Methods are pure functions of the state.

    A `step` is counted from 0: the number of the step, or (U,) the step of each unit where they differ.

    Attributes:
        halts: whether units ever halt; halting probabilities are recorded if they do.
        token_units: whether the unit is the token, rather than the whole sequence.
        running_mean: whether a token's decision sees the mean over itself and the tokens before it.
        needs_candidate: whether a decision sees the state after the step, too.
        skips_step: whether a unit that halts skips the step under decision.
        needs_every_step: whether every unit must take every step, so that compaction and early exit are not allowed.
        exits: whether `judge` stops units after a step.
        padding_in_ponder_cost: whether the mean ponder cost of a sequence divides by its columns, padding included.
    """

    halts: bool
    exits: bool
    token_units: bool
    running_mean: bool
    needs_candidate: bool
    skips_step: bool
    needs_every_step: bool

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> HaltingState: ...

    def decides(self, step: int) -> bool:
        """Whether units may halt at a step, counted from 0."""

    def features(self, state: HaltingState, candidate: torch.Tensor | None) -> torch.Tensor:
        """Input of the halting head, before any mean over tokens."""

    def decide(self, state: HaltingState, features: torch.Tensor, step: int | torch.Tensor) -> HaltingState:
        """The state with its new `live` and `probability`."""

    def commit(self, state: HaltingState, candidate: torch.Tensor, step: int | torch.Tensor) -> HaltingState:
        """The state after a step, whose result is the candidate."""

    def stopped(self, state: HaltingState, where: torch.Tensor) -> HaltingState:
        """The state in which the units where a mask (U,) holds have taken their last step."""

    def attended(self, state: HaltingState) -> torch.Tensor | None:
        """Source of keys and values, None for the running states."""

    def readout(self, state: HaltingState) -> torch.Tensor:
        """States that the output would be, were the units to stop now."""

    def output(self, state: HaltingState) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Final states, ponder costs and executed steps of the units."""


class Layout(Protocol):
    """Memory layout of the units; see `layouts`."""

    can_compact: bool

    @property
    def units(self) -> torch.Tensor:
        """Numbers (I,) of the units present: of sequences, or of tokens, `b * S + s`."""

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens of each unit's sequence; broadcasts against the units."""

    def initial_state(self, hidden: torch.Tensor) -> HaltingState: ...

    def has_live_units(self, live: torch.Tensor) -> torch.Tensor:
        """Bool, whether each unit or row that `compact` can select has a live unit."""

    def features(self, state: HaltingState, candidate: torch.Tensor | None, step: int) -> torch.Tensor: ...

    def largest_change(self, before: torch.Tensor, after: torch.Tensor, by_row: bool) -> torch.Tensor:
        """Relative change of the states of each unit, or the largest of each unit's row."""

    def answers(
        self, predict: Callable[..., torch.Tensor], states: torch.Tensor, live: torch.Tensor, by_row: bool
    ) -> torch.Tensor:
        """Predictions of live units, or of their rows, for each unit; zeros for the others.

        Args:
            predict: of tokens `predict(states)` (n, E) -> (n, ...); of rows `predict(states, mask, rows, columns)`, for
                states (n, W, E), mask (n, W), numbers (n,) of the rows and the range of columns present -> (n, ...), or
                (n / 2, ...) if the rows are the first and the second sentences of pairs.
        """

    def advance(self, block: nn.Module, state: HaltingState, step: int) -> tuple[NamedTuple, "Layout"]:
        """The block's output for one step, and the layout after it."""

    def compact(self, state: HaltingState, keep: torch.Tensor) -> tuple["Layout", HaltingState, Finished]:
        """Keep the units or rows at `keep` (n,) -> their layout and state, and the finished units."""

    def complete_cache(self, block: nn.Module, state: HaltingState) -> None:
        """Write keys and values of the skipped steps, for later tokens."""

    def finish(self, state: HaltingState) -> Finished: ...


class DepthOptions(NamedTuple):
    """One call's choices; defaults come from the config."""

    max_steps: int
    compaction: bool = True
    hard_stop: bool = True
    record_halting: bool = False
    record_states: bool = False
    cap_depth_by_length: bool = False
    # the first steps, through which no gradient is propagated
    steps_without_gradient: int = 0
    # whether a traced graph has a loop that ends with the last unit, rather than every step one after another
    loop_in_graph: bool = False

    def ends_early(self, strategy: HaltingStrategy) -> bool:
        """Whether results allow the loop to end early."""
        # a record of every step needs every step
        return self.hard_stop and not (strategy.needs_every_step or self.record_states)

    def may_stop(self, strategy: HaltingStrategy) -> bool:
        """Whether the loop may end early."""
        # a traced graph cannot branch on data
        return self.ends_early(strategy) and not in_graph()

    def loops_in_graph(self, strategy: HaltingStrategy) -> bool:
        wanted = self.loop_in_graph and torch.compiler.is_compiling() and not self.record_halting
        return wanted and self.ends_early(strategy) and (strategy.halts or strategy.exits)

    def may_compact(self, strategy: HaltingStrategy) -> bool:
        return self.compaction and self.may_stop(strategy)


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


class FixedState(NamedTuple):
    hidden: torch.Tensor
    live: torch.Tensor
    unit: torch.Tensor | None = None


class FixedDepth:
    """Every unit takes every step."""

    halts = exits = token_units = running_mean = needs_candidate = skips_step = False
    needs_every_step = True

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> FixedState:
        return FixedState(hidden, live)

    def decides(self, step: int) -> bool:
        return False

    def commit(self, state: FixedState, candidate: torch.Tensor, step: int | torch.Tensor) -> FixedState:
        return state._replace(hidden=candidate)

    def attended(self, state: FixedState) -> None:
        """Keys and values come from the running state."""

    def readout(self, state: FixedState) -> torch.Tensor:
        return state.hidden

    def output(self, state: FixedState) -> tuple[torch.Tensor, None, None]:
        return state.hidden, None, None


class LiveCount:
    """The number of live units, without making an accelerator wait for the host.

    On an accelerator the count is copied in the background and read one step late: by then it has arrived while
    the next step was being queued. Deciding late is exact, because halted units are masked until compaction.
    """

    def __init__(self):
        self.pending: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def poll(self, live: torch.Tensor) -> int | None:
        """The newest count that is known, None while there is none yet."""
        count = live.sum()
        if count.device.type != "cuda":
            return int(count)
        arrived, self.pending = self.pending, (count.to("cpu", non_blocking=True), torch.cuda.Event())
        # of the device that copies, which need not be the current one
        self.pending[1].record(torch.cuda.current_stream(count.device))
        if arrived is None:
            return None
        arrived[1].synchronize()
        return int(arrived[0])


def is_small(hidden: torch.Tensor) -> bool:
    """Whether a step of these states (..., E) takes no less time with fewer of them."""
    width = hidden.shape[-1]
    return is_launch_bound(hidden.device, hidden.numel() // width, width)


class Pruner:
    """Early exit and compaction, if it pays, after each decision of the units."""

    def __init__(self, options: DepthOptions, strategy: HaltingStrategy, block: nn.Module):
        self.may_stop = options.may_stop(strategy)
        self.may_compact = options.may_compact(strategy)
        # steps of a graph, which later runs of it may leave out; a record of each needs them all
        may_skip = options.ends_early(strategy) and not options.record_halting
        self.may_skip = in_graph() and may_skip and (strategy.halts or strategy.exits)
        self.sharded = self.may_stop and is_sharded(block)
        self.live_count = LiveCount()
        self.finished: list[Finished] = []

    def survivors(self, live: torch.Tensor, can_compact: bool) -> tuple[bool, torch.Tensor | None]:
        """Whether any of `live` (I,) lives, on any rank if sharded, and the indices (n,) to keep if compaction pays."""
        count = self.live_count.poll(live)
        if count is None:
            return True, None
        anywhere = largest_over_ranks(count, live.device) if self.sharded else count
        present = live.numel()
        pays = present - count >= max(1, present * MIN_SHARE_TO_COMPACT)
        if not (self.may_compact and can_compact and pays and count > 0):
            return anywhere > 0, None
        # the count may be a step old, so that now fewer units live, or none
        index = live.nonzero().squeeze(-1)
        return anywhere > 0, index if index.numel() > 0 else None

    def prune(self, layout: Layout, state: HaltingState) -> tuple[bool, Layout, HaltingState]:
        """-> whether any unit lives, and layout and state of the units present."""
        if not self.may_stop:
            return True, layout, self.end_of_step(state)
        can_compact = layout.can_compact and not is_small(state.hidden)
        live = layout.has_live_units(state.live) if can_compact else state.live
        any_live, keep = self.survivors(live, can_compact)
        if keep is not None:
            layout, state, finished = layout.compact(state, keep)
            self.finished.append(finished)
        return any_live, layout, state

    def end_of_step(self, state: HaltingState) -> HaltingState:
        return end_of_step(state, self) if self.may_skip else state


def iterate(
    blocks: Sequence[nn.Module],
    strategy: HaltingStrategy,
    layout: Layout,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    options: DepthOptions,
    trace: "Trace | None" = None,
) -> DepthOutput:
    """Apply blocks in turn, or one shared block again and again, until every unit has halted (Algorithms 1 and 3).

    Args:
        blocks: one block that all steps share, or one for each step.
        layout: of the units of the whole batch.
        hidden: input states, as the layout holds them.
        mask: (B, S) bool, True at tokens.
        trace: the record of each step to fill; a plain one if None.

    Raises:
        ValueError: a halting probability is NaN.
    """
    pruner = Pruner(options, strategy, blocks[0])
    state = layout.initial_state(hidden)
    trace = Trace() if trace is None else trace
    trace.begin(options, mask.numel() if strategy.token_units else mask.shape[0], state.hidden)
    if options.loops_in_graph(strategy):
        state = loop_in_graph(DepthSteps(blocks[0], strategy, options), layout, hidden)
        return summarize([layout.finish(state)], mask, strategy, trace)
    decisions: list[Decision] = []

    for step in range(options.max_steps):
        with torch.no_grad() if step < options.steps_without_gradient else nullcontext():
            output = None
            if strategy.needs_candidate:
                output, layout = layout.advance(blocks[step % len(blocks)], state, step)
            if strategy.halts:
                live = state.live
                if strategy.decides(step):
                    features = layout.features(state, None if output is None else output.hidden_states, step)
                    state = strategy.decide(state, features, step)
                    decisions.append(Decision(step, state.probability.detach(), live))
                if options.cap_depth_by_length:
                    state = state._replace(live=state.live & (step <= layout.lengths))
                trace.halting(layout, live, state.probability)
            if strategy.skips_step and strategy.decides(step):
                any_live, layout, state = pruner.prune(layout, state)
                if not any_live:
                    break
            if output is None:
                output, layout = layout.advance(blocks[step % len(blocks)], state, step)
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
    check_halting_probabilities(first_nan_step(decisions))
    layout.complete_cache(blocks[0], state)
    return summarize([*pruner.finished, layout.finish(state)], mask, strategy, trace)


class Decision(NamedTuple):
    """Conditional halting probabilities of the units present at a step, and which of them had not halted before."""

    step: int
    probability: torch.Tensor
    live: torch.Tensor


def first_nan_step(decisions: list[Decision]) -> int:
    """The first step in which the halting probability of a live unit is NaN, -1 if there is none.

    All are looked at together: one after another they would be a tenth of an accelerator's launches.
    """
    # a traced graph must not depend on data
    if not decisions or in_graph():
        return -1
    probability, live = (torch.cat([each[field].flatten() for each in decisions]) for field in (1, 2))
    if not (probability.isnan() & live).any():
        return -1
    return next(each.step for each in decisions if (each.probability.isnan() & each.live).any())


def check_halting_probabilities(nan_step: torch.Tensor | int) -> None:
    """Raise a ValueError if the first step with a NaN is not -1."""
    if in_graph() or int(nan_step) < 0:
        return
    raise ValueError(nan_probability(nan_step)[1]())


def nan_probability(nan_step: torch.Tensor | int) -> Problem:
    """The problem of halting probabilities, if the first step with a NaN is not -1."""

    def message() -> str:
        return (
            f"a halting probability is NaN at depth step {int(nan_step)}, counted from 0: the weights or the inputs "
            "hold NaN or infinite values; check them (e.g. `all(p.isfinite().all() for p in model.parameters())`) "
            "before running the model"
        )

    return nan_step >= 0, message


class Trace:
    """The requested record of each step."""

    def begin(self, options: DepthOptions, num_units: int, hidden: torch.Tensor) -> None:
        self.options = options
        self.num_units = num_units
        self.probabilities: list[torch.Tensor] = []
        self.hidden_states = [hidden]
        self.outputs: list[NamedTuple] = []

    def halting(self, layout: Layout, live: torch.Tensor, probability: torch.Tensor) -> None:
        """Record conditional halting probabilities, zero for units that halted before this decision."""
        if self.options.record_halting:
            shown = torch.where(live, probability, 0.0).flatten()
            self.probabilities.append(assemble([shown], layout.units, self.num_units))

    def step(self, layout: Layout, state: HaltingState, output: NamedTuple) -> None:
        if self.options.record_states:
            self.hidden_states.append(state.hidden)
            self.outputs.append(output)

    def stacked_probabilities(self) -> torch.Tensor | None:
        """(U, L), zero at steps that were not taken."""
        if not self.probabilities:
            return None
        taken = torch.stack(self.probabilities, dim=-1)
        return nn.functional.pad(taken, (0, self.options.max_steps - taken.shape[-1]))

    def recorded(self, name: str) -> tuple[torch.Tensor, ...] | None:
        """A field of each step's output, None where steps have none."""
        values = tuple(getattr(output, name, None) for output in self.outputs)
        return values if values and values[0] is not None else None


def assemble(values: list[torch.Tensor], units: torch.Tensor, num_units: int, fill: float = 0) -> torch.Tensor:
    """Concatenate values (n, ...) of units that finished at different steps, in order -> (U, ...)."""
    # values of all units are in order; a traced graph must not compare sizes
    if len(values) == 1 and not in_graph() and values[0].shape[0] == num_units:
        return values[0]
    pieces = torch.cat(values)
    return pieces.new_full((num_units, *pieces.shape[1:]), fill).index_copy(0, units, pieces)


def summarize(finished: list[Finished], mask: torch.Tensor, strategy: HaltingStrategy, trace: Trace) -> DepthOutput:
    batch_size, length = mask.shape
    num_units = mask.numel() if strategy.token_units else batch_size
    units = torch.cat([piece.units for piece in finished])

    def whole(name: str, fill: float = 0) -> torch.Tensor | None:
        values = [getattr(piece, name) for piece in finished]
        if values[0] is None:
            return None
        if strategy.needs_every_step and not strategy.token_units:
            return values[0]
        by_unit = assemble(values, units, num_units, fill)
        return by_unit.unflatten(0, (batch_size, length)) if strategy.token_units else by_unit

    cost, steps = whole("ponder_cost"), whole("steps", fill=-1)
    if finished[0].tokens is None:
        hidden = whole("hidden_states")
    else:
        tokens = torch.cat([piece.tokens for piece in finished])
        hidden = assemble([piece.hidden_states for piece in finished], tokens, mask.numel())
        hidden = hidden.unflatten(0, (batch_size, length))
    probabilities = trace.stacked_probabilities()
    if strategy.token_units:
        if cost is not None:
            all_columns = getattr(strategy, "padding_in_ponder_cost", False)
            cost = (cost * mask).sum(-1) / (length if all_columns else mask.sum(-1).clamp_min(1))
        steps = None if steps is None else torch.where(mask, steps, -1)
        probabilities = None if probabilities is None else probabilities.unflatten(0, (batch_size, length))
    return DepthOutput(
        hidden_states=torch.where(mask[..., None], hidden, 0.0),
        ponder_cost=cost,
        ponder_steps=steps,
        halting_probabilities=probabilities,
        all_hidden_states=tuple(trace.hidden_states) if trace.options.record_states else None,
        attentions=trace.recorded("attentions"),
        gates=trace.recorded("gate"),
        read_attentions=trace.recorded("read_attentions"),
    )
