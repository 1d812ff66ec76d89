"""Stick-breaking halting of the Sparse Universal Transformer as pure steps over tokens, in log space.

A token's halting mass after a depth step depends on its state after that step, so the first step is always taken;
the last one takes all remaining mass. Source: section 3.2 and Algorithm 1 of the SUT paper, in the form of its
reference implementation, which compares the mass after the newest share was added.

Shapes: n tokens present, d width.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from ..depth.halting import HaltingStrategy
from ..ops.initialization import initialized_linear, torch_default
from ..ops.layers import Dropout, ReproducibleLinear, at_least_float32, deciding_dtype


def even_odds(linear: nn.Linear, bias: float | None) -> None:
    """Zero weights: tokens halt with probability one half, or with the log-odds `bias`."""
    init.zeros_(linear.weight)
    if linear.bias is not None:
        init.copy_(linear.bias, torch.tensor([0.0, bias]))


class LogHaltingHead(nn.Module):
    """Log-probabilities of going on and of halting, `log_softmax(W2 GELU(W1 h + b1))`, in float32.

    Args:
        bias_init: initial log-odds of halting, learned from there; None for no bias.
    """

    def __init__(self, hidden_size: int, dropout: float, bias_init: float | None):
        super().__init__()
        self.up_proj = initialized_linear(hidden_size, hidden_size, torch_default, kind=ReproducibleLinear)
        initializer, has_bias = partial(even_odds, bias=bias_init), bias_init is not None
        self.down_proj = initialized_linear(hidden_size, 2, initializer, has_bias, kind=ReproducibleLinear)
        self.dropout = Dropout(dropout)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, d) -> (n,), (n,)."""
        with torch.autocast(states.device.type, enabled=False):
            dtype = deciding_dtype(self.up_proj, self.down_proj)
            inner = nn.functional.gelu(self.up_proj(states.to(dtype)))
            odds = at_least_float32(self.down_proj(self.dropout(inner)))
        return odds.log_softmax(-1).unbind(-1)


class LogStickBreakingState(NamedTuple):
    """State of the tokens between two steps."""

    hidden: torch.Tensor  # (n, d) state h
    accumulated: torch.Tensor  # (n, d) states so far, weighted by their halting mass
    soft: torch.Tensor  # (n, d) expected halted state s
    log_remaining: torch.Tensor  # (n,) log probability of not having halted
    weighted_steps: torch.Tensor  # (n,) sum of steps, from 0, weighted by the mass that halted after them
    steps: torch.Tensor  # (n,) long, steps taken
    live: torch.Tensor  # (n,) bool
    probability: torch.Tensor  # (n,) conditional halting probability of the latest decision
    unit: None = None  # a unit has one state


class LogStickBreaking(HaltingStrategy):
    """Halting of the SUT paper.

    Args:
        head: the halting head, None to take all steps.
        threshold: halting mass beyond which a token stops.
        max_depth: the last step, which takes all remaining mass.
        frozen: whether the state of a halted token no longer changes. Otherwise the layer norms still change it and its
            mass still grows, as in the reference implementation.
        mixes: whether keys, values and output are those of the expected halted state, rather than of the running state.
    """

    token_units = skips_step = True

    def __init__(self, head: LogHaltingHead | None, threshold: float, max_depth: int, frozen: bool, mixes: bool = True):
        self.head = head
        self.halts = head is not None
        self.first_decision = 1 if self.halts else max_depth
        self.threshold = threshold
        self.max_depth = max_depth
        self.frozen = frozen
        self.mixes = mixes
        self.needs_every_step = not frozen

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> LogStickBreakingState:
        """The state before any step, from states (n, d); `live` (n,) is False for padding."""
        zeros = torch.zeros(live.shape, device=hidden.device, dtype=torch.promote_types(hidden.dtype, torch.float32))
        return LogStickBreakingState(
            hidden=hidden,
            accumulated=torch.zeros_like(hidden),
            soft=hidden,
            log_remaining=zeros,
            weighted_steps=zeros,
            steps=torch.zeros_like(live, dtype=torch.long),
            live=live,
            probability=zeros,
        )

    def decide(
        self, state: LogStickBreakingState, features: torch.Tensor, step: int | torch.Tensor
    ) -> LogStickBreakingState:
        """Decide by the states after step `step - 1`: tokens halt if their remaining mass is too small."""
        log_go, log_halt = self.head(features)
        moving = state.live if self.frozen else torch.ones_like(state.live)
        mass = torch.where(moving, (state.log_remaining + log_halt).exp(), 0.0)
        log_remaining = torch.where(moving, state.log_remaining + log_go, state.log_remaining)
        share = mass[:, None].to(state.hidden.dtype)
        return state._replace(
            accumulated=torch.addcmul(state.accumulated, share.expand_as(state.hidden), state.hidden),
            log_remaining=log_remaining,
            weighted_steps=state.weighted_steps + mass * (step - 1),
            live=state.live & (log_remaining.exp() >= 1.0 - self.threshold),
            probability=log_halt.exp(),
        )

    def commit(
        self, state: LogStickBreakingState, candidate: torch.Tensor, step: int | torch.Tensor
    ) -> LogStickBreakingState:
        """Update the states with those of a step (n, d)."""
        alive = state.live[:, None]
        hidden = torch.where(alive, candidate, state.hidden) if self.frozen else candidate
        soft = hidden
        if self.mixes:
            share = remaining_mass(state)[:, None].to(hidden.dtype)
            soft = torch.addcmul(state.accumulated, share.expand_as(hidden), hidden)
        return state._replace(hidden=hidden, soft=torch.where(alive, soft, state.soft), steps=state.steps + state.live)

    def attended(self, state: LogStickBreakingState) -> torch.Tensor:
        """Keys and values come from the soft state."""
        return state.soft

    def readout(self, state: LogStickBreakingState) -> torch.Tensor:
        return state.soft

    def output(self, state: LogStickBreakingState) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Soft state (n, d), ponder cost (n,) and steps (n,).

        The ponder cost is the expected number of steps, differentiable (Eq. 4); the mass that remains at the end
        counts with the last step.
        """
        if not self.halts:
            return state.soft, None, state.steps
        return state.soft, state.weighted_steps + remaining_mass(state) * (self.max_depth - 1) + 1.0, state.steps


def remaining_mass(state: LogStickBreakingState) -> torch.Tensor:
    """Probability (n,) of not having halted, 0 once a token has stopped."""
    # an infinite log would cause a NaN gradient in the branch that is not selected
    return torch.where(state.live, state.log_remaining.masked_fill(~state.live, 0.0).exp(), 0.0)
