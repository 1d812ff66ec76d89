"""The one loop over depth: halting, early exit, compaction and depth limits.

Shapes: B rows, S tokens, E width, L most steps, U halting units (rows, or tokens), I units present.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.attention import PaddedContext
from ..ops.stick_breaking import HaltingHead, HaltingState, commit, decide
from .layouts import Finished, PackedLayout, PaddedLayout

# gathering costs about a tenth of a step's element-wise work: leave fewer than this share of dead units in place
SMALLEST_SHARE_WORTH_GATHERING = 1 / 16


class DepthOptions(NamedTuple):
    """One call's choices; defaults come from the config."""

    max_steps: int
    halting_threshold: float
    compaction: bool
    hard_stop: bool
    record_halting: bool = False
    record_states: bool = False


class DepthOutput(NamedTuple):
    hidden_states: torch.Tensor  # soft state, (B, S, E)
    ponder_cost: torch.Tensor | None  # (B,) expected depth, mean over a row's units
    ponder_steps: torch.Tensor  # (B,), or (B, S) with -1 at padding
    halting_probabilities: torch.Tensor | None  # (B, L) or (B, S, L), zero once a unit has halted
    all_hidden_states: tuple[torch.Tensor, ...] | None  # L + 1 running states (B, S, E)
    attentions: tuple[torch.Tensor, ...] | None  # L of (B, H, S, S)
    gates: tuple[torch.Tensor, ...] | None  # L of (B, S, E)
    read_attentions: tuple[torch.Tensor, ...] | None = None  # L of (B, H, S, M), where a memory is read
    memory_states: tuple[torch.Tensor, ...] | None = None  # (B, M, E) before the first chunk and after each


class LiveCount:
    """How many units live, without making an accelerator wait for the host.

    On an accelerator the count is copied in the background and read one step late: by then it has arrived while
    the next step was being queued. Deciding late is exact, because halted units are masked until they leave.
    """

    def __init__(self):
        self.pending: tuple[torch.Tensor, torch.cuda.Event] | None = None

    def poll(self, live: torch.Tensor) -> int | None:
        """The newest count that is known, None while there is none yet."""
        count = live.sum()
        if count.device.type != "cuda":
            return int(count)
        arrived, self.pending = self.pending, (count.to("cpu", non_blocking=True), torch.cuda.Event())
        self.pending[1].record()
        if arrived is None:
            return None
        arrived[1].synchronize()
        return int(arrived[0])


def is_sharded(module: nn.Module) -> bool:
    """Whether each step gathers parameters collectively (FSDP2), so that all ranks must take the same number."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return False
    return any(hasattr(parameter, "device_mesh") for parameter in module.parameters())


def largest_over_ranks(count: int, device: torch.device) -> int:
    counts = torch.tensor(count, device=device)
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.MAX)
    return int(counts)


class Pruner:
    """Decides after each step whether to go on, and gathers halted units out when that pays.

    `every_step` keeps it from both: something needs what all steps make of all units.
    """

    def __init__(self, options: DepthOptions, block: nn.Module, every_step: bool):
        # a traced graph cannot branch on data, and a record of every step needs every step
        traced = torch.compiler.is_compiling()
        self.may_stop = options.hard_stop and not traced and not options.record_states and not every_step
        self.may_gather = self.may_stop and options.compaction
        self.sharded = is_sharded(block)
        self.live_count = LiveCount()
        self.finished: list[Finished] = []

    def lay_out(self, config, hidden: torch.Tensor, mask: torch.Tensor, context: PaddedContext, slots):
        """The layout in which (B, S, E) can be pruned as it may be, and its states."""
        if config.token_units:
            self.may_gather &= slots is None and PackedLayout.can_hold(config)
            if self.may_gather:
                return PackedLayout.pack(config, hidden, mask, context)
        return PaddedLayout(config, mask, context, slots), hidden

    def survivors(self, live: torch.Tensor) -> tuple[bool, torch.Tensor | None]:
        """Of (I,) -> whether any lives (on any rank, if sharded), and those (n,) to keep if dropping others pays."""
        if not self.may_stop:
            return True, None
        count = self.live_count.poll(live)
        if count is None:
            return True, None
        anywhere = largest_over_ranks(count, live.device) if self.sharded else count
        present = live.numel()
        worthwhile = present - count >= max(1, present * SMALLEST_SHARE_WORTH_GATHERING)
        if not (self.may_gather and worthwhile and count > 0):
            return anywhere > 0, None
        # the count may be a step old, so that fewer live by now, or none
        kept = live.nonzero().squeeze(-1)
        return anywhere > 0, kept if kept.numel() > 0 else None

    def prune(self, layout, state: HaltingState, probability: torch.Tensor):
        """-> whether any unit lives, and layout, state and probability of those present."""
        going_on, kept = self.survivors(state.live)
        if kept is not None:
            layout, state, finished = layout.compact(state, kept)
            self.finished.append(finished)
            probability = probability.index_select(0, kept)
        return going_on, layout, state, probability


def assemble(values: list[torch.Tensor], units: torch.Tensor, num_units: int, fill: float = 0) -> torch.Tensor:
    """Put the pieces (n, ...) that finished at different steps back in order -> (U, ...)."""
    whole = len(values) == 1 and not torch.compiler.is_compiling() and values[0].shape[0] == num_units
    if whole:
        return values[0]
    pieces = torch.cat(values)
    return pieces.new_full((num_units, *pieces.shape[1:]), fill).index_copy(0, units, pieces)


def recur(
    block: nn.Module,
    halting_head: HaltingHead,
    config,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    context: PaddedContext,
    options: DepthOptions,
    slots=None,
) -> DepthOutput:
    """Iterate one shared block until every unit has halted (Algorithms 1 and 3).

    Args:
        hidden: (B, S, E) input states.
        mask: (B, S) bool, True at tokens.
        slots: what earlier tokens left for each step, see `cache`; the new tokens' share is added to it.

    Raises:
        ValueError: a halting probability is NaN.
    """
    pruner = Pruner(options, block, every_step=config.running_mean and config.halted_candidates)
    layout, hidden = pruner.lay_out(config, hidden, mask, context, slots)
    state = layout.begin(hidden)
    num_units = mask.numel() if layout.token_units else mask.shape[0]
    trace = Trace(options, num_units, state.hidden)
    any_nan = torch.zeros((), dtype=torch.bool, device=hidden.device)

    for step in range(options.max_steps):
        candidate = None
        if config.transition_aware:
            output, layout = layout.advance(block, state, step)
            candidate = output.hidden_states
        probability = halting_head(layout.features(state, candidate, step))
        any_nan = any_nan | probability.isnan().any()
        trace.halting(step, layout, state.live, probability)
        state = decide(state, probability, options.halting_threshold)
        if config.cap_depth_by_length:
            state = state._replace(live=state.live & (step <= layout.lengths))
        if not config.transition_aware:
            # the decision needs no candidate here, so units that halt now are spared this step
            going_on, layout, state, probability = pruner.prune(layout, state, probability)
            if not going_on:
                break
            output, layout = layout.advance(block, state, step)
        state = commit(state, probability, output.hidden_states, step)
        trace.states(state.hidden, output)
        if config.transition_aware:
            going_on, layout, state, probability = pruner.prune(layout, state, probability)
            if not going_on:
                break

    refuse_nan(any_nan)
    layout.fill(block, state)
    return summarise([*pruner.finished, layout.finish(state)], mask, num_units, trace)


def refuse_nan(any_nan: torch.Tensor) -> None:
    if not torch.compiler.is_compiling() and any_nan:
        raise ValueError(
            "a halting probability is NaN: the weights or the inputs hold NaN or infinite values; "
            "check them (e.g. `all(p.isfinite().all() for p in model.parameters())`) before running the model"
        )


class Trace:
    """What a caller asked to see of each step."""

    def __init__(self, options: DepthOptions, num_units: int, hidden: torch.Tensor):
        self.options = options
        self.num_units = num_units
        self.probabilities: list[torch.Tensor] = []
        self.hidden_states = [hidden]
        self.outputs: list = []

    def halting(self, step: int, layout, live: torch.Tensor, probability: torch.Tensor) -> None:
        if self.options.record_halting:
            shown = torch.where(live, probability, 0.0).flatten()
            self.probabilities.append(assemble([shown], layout.units, self.num_units))

    def states(self, hidden: torch.Tensor, output) -> None:
        if self.options.record_states:
            self.hidden_states.append(hidden)
            self.outputs.append(output)

    def stacked_probabilities(self) -> torch.Tensor | None:
        """(U, L), steps never taken filled with zeros."""
        if not self.options.record_halting:
            return None
        taken = torch.stack(self.probabilities, dim=-1)
        return nn.functional.pad(taken, (0, self.options.max_steps - taken.shape[-1]))


def recorded(outputs: list, name: str) -> tuple[torch.Tensor, ...] | None:
    """A field of each step's `BlockOutput`, None where steps have none."""
    values = tuple(getattr(output, name) for output in outputs)
    return values if values and values[0] is not None else None


def summarise(finished: list[Finished], mask: torch.Tensor, num_units: int, trace: Trace) -> DepthOutput:
    batch_size, length = mask.shape
    units = torch.cat([piece.units for piece in finished])
    soft = assemble([piece.soft_state for piece in finished], units, num_units)
    cost = assemble([piece.ponder_cost for piece in finished], units, num_units)
    steps = assemble([piece.steps for piece in finished], units, num_units, fill=-1)
    probabilities = trace.stacked_probabilities()
    # units are tokens: their number alone does not tell, where rows have one token each
    if soft.dim() == 2:
        soft = soft.unflatten(0, (batch_size, length))
        cost = (cost.unflatten(0, (batch_size, length)) * mask).sum(-1) / mask.sum(-1).clamp_min(1)
        steps = steps.unflatten(0, (batch_size, length))
        if probabilities is not None:
            probabilities = probabilities.unflatten(0, (batch_size, length))
    return DepthOutput(
        hidden_states=soft,
        ponder_cost=cost,
        ponder_steps=steps,
        halting_probabilities=probabilities,
        all_hidden_states=tuple(trace.hidden_states) if trace.options.record_states else None,
        attentions=recorded(trace.outputs, "attentions"),
        gates=recorded(trace.outputs, "gate"),
        read_attentions=recorded(trace.outputs, "read_attentions"),
    )


def repeat(
    blocks: list[nn.Module], hidden: torch.Tensor, context: PaddedContext, record_states: bool, slots=None
) -> DepthOutput:
    """Fixed depth: apply each block in turn to (B, S, E). `slots` are those of `recur`."""
    states, outputs = [hidden], []
    for step, block in enumerate(blocks):
        if slots is not None:
            context = slots.enter(context, step)
        output = block(hidden, context)
        if slots is not None:
            slots.keep(step, output.key, output.value)
        hidden = output.hidden_states
        if record_states:
            states.append(hidden)
            outputs.append(output)

    return DepthOutput(
        hidden_states=hidden,
        ponder_cost=None,
        ponder_steps=None,
        halting_probabilities=None,
        all_hidden_states=tuple(states) if record_states else None,
        attentions=recorded(outputs, "attentions"),
        gates=recorded(outputs, "gate"),
        read_attentions=recorded(outputs, "read_attentions"),
    )
