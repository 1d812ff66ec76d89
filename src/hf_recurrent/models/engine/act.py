"""Adaptive computation time as pure steps over tokens, and the loop that runs a shared layer under it.

Sources: Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks"; "The Neural Data Router", appendix on
ACT, in the form of its reference implementation: a token is judged by its state before a step, halted tokens go on
being computed and read by others, and only the output is weighted.

Shapes: B rows, S tokens, E width; R rows present, W columns present.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from ..common.initialization import initialized_linear, torch_default
from .depth_loop import (
    DepthOutput,
    Pruner,
    Trace,
    assemble,
    recorded,
    refuse_nan,
)
from .layouts import used_columns


class ACTHead(nn.Module):
    """Halting probability of a token, `sigmoid(w h + b)` in float32: (..., E) -> (...)."""

    def __init__(self, hidden_size: int, bias_init: float | None):
        super().__init__()
        self.proj = initialized_linear(hidden_size, 1, partial(torch_default, bias=bias_init))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        with torch.autocast(states.device.type, enabled=False):
            return self.proj(states.to(self.proj.weight.dtype)).squeeze(-1).float().sigmoid()


class ACTState(NamedTuple):
    """What tokens carry from step to step."""

    hidden: torch.Tensor  # (R, W, E)
    output: torch.Tensor  # (R, W, E) halting-weighted states so far
    mass: torch.Tensor  # (R, W) probability of having halted
    remainder: torch.Tensor  # (R, W) what was left of it when the token stopped, 0 before
    steps: torch.Tensor  # (R, W) long, steps that count
    live: torch.Tensor  # (R, W) bool

    def select(self, rows: torch.Tensor, width: int) -> "ACTState":
        return ACTState(*(tensor.index_select(0, rows)[:, :width] for tensor in self))


def initial_state(hidden: torch.Tensor, mask: torch.Tensor) -> ACTState:
    """The state before any step; padding has halted already."""
    zeros = torch.zeros(mask.shape, device=mask.device)
    return ACTState(hidden, torch.zeros_like(hidden), zeros, zeros, torch.zeros_like(mask, dtype=torch.long), mask)


def decide(state: ACTState, probability: torch.Tensor, threshold: float, forced: bool) -> tuple[ACTState, torch.Tensor]:
    """Stop the tokens whose mass would pass the threshold, or all if `forced` -> state, and its weights (R, W)."""
    stops = state.live & ((state.mass + probability > threshold) | forced)
    runs = state.live & ~stops
    remainder = 1.0 - state.mass
    weights = torch.where(stops, remainder, torch.where(runs, probability, 0.0))
    return (
        state._replace(
            mass=torch.where(stops, 1.0, torch.where(runs, state.mass + probability, state.mass)),
            remainder=torch.where(stops, remainder, state.remainder),
            steps=state.steps + state.live,
            live=runs,
        ),
        weights,
    )


def commit(state: ACTState, weights: torch.Tensor, hidden: torch.Tensor, universal: bool) -> ACTState:
    """Take the step's states (R, W, E) with their weights (R, W) into the output."""
    share = weights[..., None].to(hidden.dtype)
    kept = state.output * (1.0 - share) if universal else state.output
    return state._replace(hidden=hidden, output=torch.addcmul(kept, share.expand_as(hidden), hidden))


class Piece(NamedTuple):
    """Rows that left the loop, as wide as the batch."""

    rows: torch.Tensor  # (n,)
    output: torch.Tensor  # (n, S, E)
    remainder: torch.Tensor  # (n, S)
    steps: torch.Tensor  # (n, S)


def finish(state: ACTState, rows: torch.Tensor, width: int) -> Piece:
    missing = width - state.live.shape[1]

    def widened(values: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(values, (0, 0) * (values.dim() - 2) + (0, missing)) if missing else values

    return Piece(rows, *(widened(values) for values in (state.output, state.remainder, state.steps)))


def run_act(
    block: nn.Module, head: ACTHead, config, hidden: torch.Tensor, mask: torch.Tensor, context_of, options, slots=None
) -> DepthOutput:
    """Apply one shared layer until every token has halted.

    Args:
        hidden: (B, S, E) input states; every row's tokens stand in its first columns unless there are `slots`.
        mask: (B, S) bool, True at tokens.
        context_of: (R, W, E) states and (R, W) mask -> the layer's context.
        options: `DepthOptions` of the call.
        slots: what earlier tokens left for each step, see `cache`.

    Raises:
        ValueError: a halting probability is NaN.
    """
    length, universal = mask.shape[1], config.halting == "act_universal"
    # later tokens will ask for every step of cached ones
    pruner = Pruner(options, block, every_step=slots is not None)
    trace = Trace(options, mask.shape[0], hidden)
    rows, context = torch.arange(mask.shape[0], device=mask.device), context_of(hidden, mask)
    state, finished = initial_state(hidden, mask), []
    any_nan = torch.zeros((), dtype=torch.bool, device=mask.device)

    for step in range(options.max_steps):
        probability = head(state.hidden)
        any_nan = any_nan | (probability.isnan() & state.live).any()
        record(trace, probability, state.live, rows, length)
        forced = not universal and step == options.max_steps - 1
        state, weights = decide(state, probability, options.halting_threshold, forced)
        output = block(state.hidden, context if slots is None else slots.enter(context, step))
        if slots is not None:
            slots.keep(step, output.key, output.value)
        state = commit(state, weights, output.hidden_states, universal)
        trace.states(state.hidden, output)
        going_on, kept = pruner.survivors(state.live.any(-1))
        if not going_on:
            break
        if kept is not None:
            gone = (~state.live.any(-1)).nonzero().squeeze(-1)
            finished.append(finish(state.select(gone, state.live.shape[1]), rows[gone], length))
            rows = rows[kept]
            width = used_columns(mask[rows])[1]
            state = state.select(kept, width)
            context = context_of(state.hidden, mask[rows, :width])

    refuse_nan(any_nan)
    return summarise([*finished, finish(state, rows, length)], mask, config.padding_in_ponder_cost, trace)


def record(trace: Trace, probability: torch.Tensor, live: torch.Tensor, rows: torch.Tensor, length: int) -> None:
    """Probabilities (R, W) of the rows present, for the whole batch."""
    if trace.options.record_halting:
        shown = nn.functional.pad(torch.where(live, probability, 0.0), (0, length - live.shape[1]))
        trace.probabilities.append(assemble([shown], rows, trace.num_units))


def summarise(pieces: list[Piece], mask: torch.Tensor, padding_counts: bool, trace: Trace) -> DepthOutput:
    order = torch.cat([piece.rows for piece in pieces])
    output, remainder, steps = (assemble([piece[i] for piece in pieces], order, mask.shape[0]) for i in (1, 2, 3))
    counted = mask.shape[1] if padding_counts else mask.sum(-1).clamp_min(1)
    return DepthOutput(
        hidden_states=torch.where(mask[..., None], output, 0.0),
        ponder_cost=((remainder + steps) * mask).sum(-1) / counted,
        ponder_steps=torch.where(mask, steps, -1),
        halting_probabilities=trace.stacked_probabilities(),
        all_hidden_states=tuple(trace.hidden_states) if trace.options.record_states else None,
        attentions=recorded(trace.outputs, "attentions"),
        gates=recorded(trace.outputs, "gate"),
    )
