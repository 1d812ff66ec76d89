"""Stick-breaking halting as pure steps over halting units.

A *unit* is what halts together: a whole row ("global") or a single token ("token"). Shapes: U units (any number of
leading dims), E width; a unit's states have the unit dims first, e.g. (B, S, E) for B rows or (N, E) for N tokens.

Sources: Algorithms 1 and 3, Eq. 5-8 and 12-17 of the dynamic-halt paper, in the form of its reference
implementation: the step whose mass crosses the threshold is computed (when halting is transition-aware) and
thrown away, and the ponder cost counts the remainder with the number of accepted steps.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from ..common.initialization import initialized_linear, torch_default


class HaltingHead(nn.Module):
    """Conditional halting probability `sigmoid(W2 GELU(W1 x + b1) + b2)` (Eq. 5), in float32.

    Transition-aware heads see the state before and after the candidate step side by side (Eq. 17).
    """

    def __init__(self, hidden_size: int, transition_aware: bool, bias_init: float):
        super().__init__()
        features = 2 * hidden_size if transition_aware else hidden_size
        self.up_proj = initialized_linear(features, hidden_size, torch_default)
        self.down_proj = initialized_linear(hidden_size, 1, partial(torch_default, bias=bias_init))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(U, E) or (U, 2E) -> (U,)."""
        # the head stays in float32 when the rest of a checkpoint is loaded in half precision
        with torch.autocast(features.device.type, enabled=False):
            inner = nn.functional.gelu(self.up_proj(features.to(self.up_proj.weight.dtype)))
            return self.down_proj(inner).squeeze(-1).float().sigmoid()


class HaltingState(NamedTuple):
    """What a unit carries from step to step."""

    hidden: torch.Tensor  # running state H, (U, ..., E)
    accumulated: torch.Tensor  # halting-weighted sum of the states so far, like hidden
    remaining: torch.Tensor  # probability of not having halted yet, (U,) float32
    weighted_steps: torch.Tensor  # halting-weighted sum of step numbers, (U,) float32
    steps: torch.Tensor  # accepted steps, (U,) long
    live: torch.Tensor  # (U,) bool


def initial_state(hidden: torch.Tensor, live: torch.Tensor) -> HaltingState:
    """The state before any step; `live` (U,) is False for padding."""
    return HaltingState(
        hidden=hidden,
        accumulated=torch.zeros_like(hidden),
        remaining=torch.ones(live.shape, device=hidden.device),
        weighted_steps=torch.zeros(live.shape, device=hidden.device),
        steps=torch.zeros(live.shape, device=hidden.device, dtype=torch.long),
        live=live,
    )


def spread(per_unit: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Give (U,) the trailing singleton dims that let it broadcast against (U, ..., E)."""
    return per_unit.reshape(per_unit.shape + (1,) * (states.dim() - per_unit.dim()))


def soft_state(state: HaltingState) -> torch.Tensor:
    """S: every state weighted by its halting mass, the current one by all that remains (Eq. 7, 16)."""
    remaining = spread(state.remaining, state.hidden).to(state.hidden.dtype)
    return state.accumulated + remaining * state.hidden


def ponder_cost(state: HaltingState) -> torch.Tensor:
    """Expected depth, differentiable: (U,) float32.

    Step numbers start at 1 for the input state and the remainder weighs as much as the last accepted step, which
    is what the reference implementation trains with (Eq. 8 omits the remainder).
    """
    return state.weighted_steps + state.remaining * state.steps


def decide(state: HaltingState, probability: torch.Tensor, threshold: float) -> HaltingState:
    """Halt the units whose halting mass would reach the threshold with this step; halting is permanent."""
    # compared on the remaining mass: 1 - 1e-9 is 1 in float32, 1e-9 is not 0
    still_below = state.remaining * (1.0 - probability) > 1.0 - threshold
    return state._replace(live=state.live & still_below)


def commit(state: HaltingState, probability: torch.Tensor, candidate: torch.Tensor, step: int) -> HaltingState:
    """Live units take the candidate (U, ..., E) as their state; the others keep everything, and get no gradient."""
    mass = torch.where(state.live, state.remaining * probability, 0.0)
    weights = spread(mass, state.hidden).to(state.hidden.dtype)
    return HaltingState(
        hidden=torch.where(spread(state.live, candidate), candidate, state.hidden),
        accumulated=torch.addcmul(state.accumulated, weights.expand_as(state.hidden), state.hidden),
        remaining=torch.where(state.live, state.remaining * (1.0 - probability), state.remaining),
        weighted_steps=state.weighted_steps + mass * (step + 1),
        steps=state.steps + state.live,
        live=state.live,
    )
