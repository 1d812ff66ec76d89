"""Stick-breaking halting of the Sparse Universal Transformer as pure steps over tokens, in log space.

A token's halting mass after a call l is judged by its state behind that call, so that the first call is never spared;
the last takes all mass that is left. Source: section 3.2 and Algorithm 1 of the SUT paper, in the form of its reference
implementation, which compares the mass after the newest share was added.

Shapes: n tokens present, d width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from ..common.initialization import initialized_linear, torch_default
from ..common.layers import Dropout, at_least_float32


def even_odds(linear: nn.Linear, bias: float | None) -> None:
    """Zeros, so that a token halts with probability one half, or with the log-odds `bias`."""
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
        self.up_proj = initialized_linear(hidden_size, hidden_size, torch_default)
        self.down_proj = initialized_linear(
            hidden_size, 2, lambda linear: even_odds(linear, bias_init), bias=bias_init is not None
        )
        self.dropout = Dropout(dropout)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, d) -> (n,), (n,)."""
        with torch.autocast(states.device.type, enabled=False):
            inner = nn.functional.gelu(self.up_proj(states.to(self.up_proj.weight.dtype)))
            odds = at_least_float32(self.down_proj(self.dropout(inner)))
        return odds.log_softmax(-1).unbind(-1)


class TokenState(NamedTuple):
    """What tokens carry from call to call."""

    hidden: torch.Tensor  # (n, d) state h
    accumulated: torch.Tensor  # (n, d) states so far, weighted by their halting mass
    soft: torch.Tensor  # (n, d) expected halted state s
    log_remaining: torch.Tensor  # (n,) log probability of not having halted
    weighted_steps: torch.Tensor  # (n,) sum of calls, from 0, weighted by the mass that halted after them
    steps: torch.Tensor  # (n,) long, calls taken
    live: torch.Tensor  # (n,) bool

    def select(self, index: torch.Tensor) -> "TokenState":
        return TokenState(*(tensor.index_select(0, index) for tensor in self))


def initial_state(hidden: torch.Tensor, live: torch.Tensor) -> TokenState:
    """Before any call: (n, d), and which tokens are not padding (n,)."""
    zeros = torch.zeros(live.shape, device=hidden.device, dtype=torch.promote_types(hidden.dtype, torch.float32))
    return TokenState(
        hidden, torch.zeros_like(hidden), hidden, zeros, zeros, torch.zeros_like(live, dtype=torch.long), live
    )


def decide(
    state: TokenState, log_go: torch.Tensor, log_halt: torch.Tensor, step: int, threshold: float, frozen: bool
) -> TokenState:
    """Halt with what the states behind call `step` (from 1) say; tokens stop whose remaining mass is too small.

    With `frozen`, tokens that have stopped keep everything.
    """
    moving = state.live if frozen else torch.ones_like(state.live)
    mass = torch.where(moving, (state.log_remaining + log_halt).exp(), 0.0)
    log_remaining = torch.where(moving, state.log_remaining + log_go, state.log_remaining)
    share = mass[:, None].to(state.hidden.dtype)
    return state._replace(
        accumulated=torch.addcmul(state.accumulated, share.expand_as(state.hidden), state.hidden),
        log_remaining=log_remaining,
        weighted_steps=state.weighted_steps + mass * (step - 1),
        live=state.live & (log_remaining.exp() >= 1.0 - threshold),
    )


def remaining(state: TokenState) -> torch.Tensor:
    """Probability (n,) of not having halted, 0 once a token has stopped."""
    # an infinite log would make the gradient of what is not chosen NaN
    return torch.where(state.live, state.log_remaining.masked_fill(~state.live, 0.0).exp(), 0.0)


def commit(state: TokenState, candidate: torch.Tensor, frozen: bool) -> TokenState:
    """Take the states (n, d) of a call."""
    alive = state.live[:, None]
    hidden = torch.where(alive, candidate, state.hidden) if frozen else candidate
    share = remaining(state)[:, None].to(hidden.dtype)
    return state._replace(
        hidden=hidden,
        soft=torch.where(alive, torch.addcmul(state.accumulated, share.expand_as(hidden), hidden), state.soft),
        steps=state.steps + state.live,
    )


def ponder_cost(state: TokenState, last_step: int) -> torch.Tensor:
    """Expected number of calls (n,), differentiable (Eq. 4): what is left at the end counts with the last call."""
    return state.weighted_steps + remaining(state) * (last_step - 1) + 1.0
