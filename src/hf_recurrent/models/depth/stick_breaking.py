"""Stick-breaking halting as pure steps over halting units.

A *unit* halts as a whole: a sequence ("global") or a single token ("token"). Shapes: U units (any number of
leading dims), E width; a unit's states have the unit dims first, e.g. (B, S, E) for B sequences or (N, E) for N tokens.

Sources: Algorithms 1 and 3, Eq. 5-8 and 12-17 of the dynamic-halt paper, in the form of its reference
implementation: the step whose mass crosses the threshold is computed (when halting is transition-aware) and
thrown away, and the ponder cost counts the remainder with the number of accepted steps.
"""

from typing import NamedTuple

import torch
from torch import nn

from .halting import HaltingStrategy, expand_units, halted_by


class StickBreakingState(NamedTuple):
    """State of the units between two steps."""

    hidden: torch.Tensor  # running state H, (U, ..., E)
    accumulated: torch.Tensor  # halting-weighted sum of the states so far, like hidden
    remaining: torch.Tensor  # probability of not having halted yet, (U,) float32
    weighted_steps: torch.Tensor  # halting-weighted sum of step numbers, (U,) float32
    steps: torch.Tensor  # accepted steps, (U,) long
    live: torch.Tensor  # (U,) bool
    probability: torch.Tensor  # conditional halting probability of the latest decision, (U,) float32
    after: torch.Tensor  # `remaining` after the step under decision, if the unit takes it, (U,) float32
    unit: torch.Tensor | None = None  # (N,) of packed states (N, E), None if states have the unit dims first


class StickBreaking(HaltingStrategy):
    """Halting of the dynamic-halt paper.

    Args:
        head: the halting head, from features of the states to halting probabilities.
        threshold: halting mass at which a unit stops.
        token_units, running_mean: see `HaltingStrategy`.
        transition_aware: whether the head sees the state after the step under decision, too.
        halted_candidates: whether running means count the candidates of tokens that have halted.
        mixes: whether the output is the halting-weighted sum of the states. Otherwise it is the running state, the
            input state is no possible output, and the first step is always taken.
        attends_to_mixture: whether keys and values are those of that sum.
    """

    halts = True

    def __init__(
        self,
        head: nn.Module,
        threshold: float,
        token_units: bool,
        running_mean: bool = False,
        transition_aware: bool = False,
        halted_candidates: bool = False,
        mixes: bool = True,
        attends_to_mixture: bool = False,
    ):
        self.head = head
        self.threshold = threshold
        self.token_units = token_units
        self.running_mean = running_mean
        self.needs_candidate = transition_aware
        # without the candidate the decision precedes the step, so that units that halt skip it
        self.skips_step = not transition_aware
        self.halted_candidates = halted_candidates
        self.needs_every_step = running_mean and halted_candidates
        self.mixes = mixes
        self.first_decision = 0 if mixes else 1
        self.attends_to_mixture = attends_to_mixture

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> StickBreakingState:
        """The state before any step; `live` (U,) is False for padding."""
        zeros = torch.zeros(live.shape, device=hidden.device)
        ones = torch.ones_like(zeros)
        return StickBreakingState(
            hidden=hidden,
            accumulated=torch.zeros_like(hidden),
            remaining=ones,
            weighted_steps=zeros,
            steps=torch.zeros(live.shape, device=hidden.device, dtype=torch.long),
            live=live,
            probability=zeros,
            after=ones,
        )

    def features(self, state: StickBreakingState, candidate: torch.Tensor | None) -> torch.Tensor:
        """Input of the halting head before any mean: the running states and, beside them, the candidates."""
        if candidate is None:
            return state.hidden
        if self.running_mean and not self.halted_candidates and self.freezes:
            # the state of a halted token no longer changes, for the tokens after it either
            candidate = torch.where(state.live[..., None], candidate, state.hidden)
        return torch.cat((state.hidden, candidate), dim=-1)

    def decide(self, state: StickBreakingState, features: torch.Tensor, step: int | torch.Tensor) -> StickBreakingState:
        """Halt the units whose halting mass would reach the threshold with this step; halting is permanent."""
        probability = self.head(features)
        after = state.remaining * (1.0 - probability)
        # compared on the remaining mass: 1 - 1e-9 is 1 in float32, 1e-9 is not 0
        live = halted_by(state.live, after <= 1.0 - self.threshold)
        return state._replace(live=live, probability=probability, after=after)

    def commit(
        self, state: StickBreakingState, candidate: torch.Tensor, step: int | torch.Tensor
    ) -> StickBreakingState:
        """Live units take the candidate (U, ..., E) as their state; the others do not change, and get no gradient."""
        hidden, mass, after = candidate, state.remaining * state.probability, state.after
        if self.freezes:
            hidden = torch.where(expand_units(state.live, candidate, state.unit), candidate, state.hidden)
            mass, after = torch.where(state.live, mass, 0.0), torch.where(state.live, after, state.remaining)
        weights = expand_units(mass, state.hidden, state.unit).to(state.hidden.dtype)
        return state._replace(
            hidden=hidden,
            accumulated=torch.addcmul(state.accumulated, weights.expand_as(state.hidden), state.hidden),
            remaining=after,
            weighted_steps=state.weighted_steps + mass * (step + int(self.first_decision == 0)),
            steps=state.steps + state.live,
        )

    def attended(self, state: StickBreakingState) -> torch.Tensor | None:
        """Source of keys and values: the soft state (Algorithm 1), or None for the running state (Algorithm 3)."""
        return soft_state(state) if self.attends_to_mixture else None

    def readout(self, state: StickBreakingState) -> torch.Tensor:
        return soft_state(state) if self.mixes else state.hidden

    def output(self, state: StickBreakingState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Soft or running state (U, ..., E), ponder cost (U,) and accepted steps (U,)."""
        return self.readout(state), ponder_cost(state), state.steps


def soft_state(state: StickBreakingState) -> torch.Tensor:
    """S: every state weighted by its halting mass, the current one by all that remains (Eq. 7, 16)."""
    remaining = expand_units(state.remaining, state.hidden, state.unit).to(state.hidden.dtype)
    return torch.addcmul(state.accumulated, remaining.expand_as(state.hidden), state.hidden)


def ponder_cost(state: StickBreakingState) -> torch.Tensor:
    """Expected depth, differentiable: (U,) float32.

    Where a unit may halt on the input state, that counts as step 1 and the first as step 2, and the remainder weighs as
    much as the last accepted step, as in the reference implementation's training (Eq. 8 omits the remainder). Where the
    first step is always taken, steps count as themselves.
    """
    return state.weighted_steps + state.remaining * state.steps
