"""Stick-breaking halting of the Sparse Universal Transformer as pure steps over tokens.

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


class TokenHaltingHead(nn.Module):
    """Probabilities of going on and of halting, `softmax(W2 GELU(W1 h + b1))`, in float32.

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
        return odds.softmax(-1).unbind(-1)


class TokenStickBreakingState(NamedTuple):
    """State of the tokens between two steps."""

    hidden: torch.Tensor  # (n, d) state h
    accumulated: torch.Tensor  # (n, d) states so far, weighted by their halting mass
    soft: torch.Tensor  # (n, d) expected halted state s
    remaining: torch.Tensor  # (n,) probability of not having halted; what it is once a token has stopped has no meaning
    weighted_steps: torch.Tensor  # (n,) sum of steps, from 0, weighted by the mass that halted after them
    steps: torch.Tensor  # (n,) long, steps taken
    live: torch.Tensor  # (n,) bool
    probability: torch.Tensor  # (n,) conditional halting probability of the latest decision
    unit: None = None  # a unit has one state


class TokenStickBreaking(HaltingStrategy):
    """Halting of the SUT paper.

    Args:
        head: the halting head.
        threshold: halting mass beyond which a token stops.
        max_depth: the last step, which takes all remaining mass.
        frozen: whether the state of a halted token no longer changes. Otherwise the layer norms still change it and its
            mass still grows, as in the reference implementation.
        mixes: whether keys, values and output are those of the expected halted state, rather than of the running state.
    """

    halts = token_units = skips_step = True
    first_decision = 1

    def __init__(self, head: TokenHaltingHead, threshold: float, max_depth: int, frozen: bool, mixes: bool = True):
        self.head, self.threshold, self.max_depth = head, threshold, max_depth
        self.frozen, self.mixes = frozen, mixes
        self.needs_every_step = not frozen

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> TokenStickBreakingState:
        """The state before any step, from states (n, d); `live` (n,) is False for padding."""
        zeros = torch.zeros_like(live, dtype=torch.promote_types(hidden.dtype, torch.float32))
        return TokenStickBreakingState(
            hidden=hidden,
            accumulated=torch.zeros_like(hidden),
            soft=hidden,
            remaining=torch.ones_like(zeros),
            weighted_steps=zeros,
            steps=torch.zeros_like(live, dtype=torch.long),
            live=live,
            probability=zeros,
        )

    def decide(
        self, state: TokenStickBreakingState, features: torch.Tensor, step: int | torch.Tensor
    ) -> TokenStickBreakingState:
        """Decide by the states after step `step - 1`: tokens halt if their remaining mass is too small."""
        go_on, halt = self.head(features)
        mass, remaining = state.remaining * halt, state.remaining * go_on
        if self.frozen:
            mass = torch.where(state.live, mass, 0.0)
        share = mass[:, None].to(state.hidden.dtype).expand_as(state.hidden)
        return state._replace(
            accumulated=torch.addcmul(state.accumulated, share, state.hidden),
            remaining=remaining,
            weighted_steps=state.weighted_steps + mass * (step - 1),
            live=state.live & (remaining >= 1.0 - self.threshold),
            probability=halt,
        )

    def commit(
        self, state: TokenStickBreakingState, candidate: torch.Tensor, step: int | torch.Tensor
    ) -> TokenStickBreakingState:
        """Update the states with those of a step (n, d)."""
        hidden = soft = candidate
        if self.mixes:
            share = state.remaining[:, None].to(hidden.dtype).expand_as(hidden)
            soft = torch.addcmul(state.accumulated, share, hidden)
        if self.freezes:
            alive = state.live[:, None]
            hidden = torch.where(alive, candidate, state.hidden) if self.frozen else candidate
            soft = torch.where(alive, soft, state.soft)
        return state._replace(hidden=hidden, soft=soft, steps=state.steps + state.live)

    def readout(self, state: TokenStickBreakingState) -> torch.Tensor:
        return state.soft

    # keys and values come from it, too
    attended = readout

    def output(self, state: TokenStickBreakingState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Soft state (n, d), ponder cost (n,) and steps (n,).

        The ponder cost is the expected number of steps, differentiable (Eq. 4); the mass that remains at the end
        counts with the last step.
        """
        last = token_weights(state) * (self.max_depth - 1)
        return state.soft, state.weighted_steps + last + 1.0, state.steps


def token_weights(state: NamedTuple) -> torch.Tensor:
    """Probability (n,) of not having halted: 0 once a token has stopped, 1 before without a halting head."""
    state = getattr(state, "inner", state)
    if not hasattr(state, "remaining"):
        return state.live.to(torch.promote_types(state.hidden.dtype, torch.float32))
    return torch.where(state.live, state.remaining, 0.0)
