"""Adaptive computation time (ACT) as pure steps over tokens.

Sources: Graves 2016, "Adaptive Computation Time for Recurrent Neural Networks"; "The Neural Data Router", appendix on
ACT, in the form of its reference implementation: a token's state before a step decides, halted tokens are
still computed and attended to, and only the output is weighted.

Shapes: B sequences, S tokens, E width.
"""

from typing import NamedTuple

import torch

from ..ops.halting_heads import HaltingHead
from .halting import HaltingStrategy


class ACTState(NamedTuple):
    """State of the tokens between two steps."""

    hidden: torch.Tensor  # (B, S, E)
    output: torch.Tensor  # (B, S, E) halting-weighted states so far
    mass: torch.Tensor  # (B, S) probability of having halted
    remainder: torch.Tensor  # (B, S) mass that was left when the token stopped, 0 before
    steps: torch.Tensor  # (B, S) long, steps that count
    live: torch.Tensor  # (B, S) bool
    probability: torch.Tensor  # (B, S) conditional halting probability of the latest decision
    weights: torch.Tensor  # (B, S) weight of the step under way in the output
    unit: None = None  # a unit has one state


class ACT(HaltingStrategy):
    """Adaptive computation time.

    Args:
        head: the halting head.
        threshold: halting mass beyond which a token stops.
        max_depth: steps after which every token is stopped, unless `universal`.
        universal: the Universal Transformer's variant: later states replace a share of the output, and no token
            is forced to stop.
        needs_every_step: whether later calls need the keys and values of every step.
        padding_in_ponder_cost: divide the ponder cost by all columns instead of by the tokens.
    """

    # a token takes the step in which it stops, weighted by the remainder
    halts = token_units = True

    def __init__(
        self,
        head: HaltingHead,
        threshold: float,
        max_depth: int,
        universal: bool,
        needs_every_step: bool = False,
        padding_in_ponder_cost: bool = False,
    ):
        self.head, self.threshold, self.max_depth, self.universal = head, threshold, max_depth, universal
        self.needs_every_step, self.padding_in_ponder_cost = needs_every_step, padding_in_ponder_cost

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> ACTState:
        """The state before any step; padding has halted already."""
        zeros = torch.zeros(live.shape, device=live.device)
        steps = torch.zeros_like(live, dtype=torch.long)
        return ACTState(hidden, torch.zeros_like(hidden), zeros, zeros, steps, live, zeros, zeros)

    def decide(self, state: ACTState, features: torch.Tensor, step: int | torch.Tensor) -> ACTState:
        """Stop the tokens whose mass would pass the threshold, or all at the last step if that is forced."""
        probability = self.head(features)
        forced = not self.universal and step == self.max_depth - 1
        stops = state.live & ((state.mass + probability > self.threshold) | forced)
        runs = state.live & ~stops
        remainder = 1.0 - state.mass
        return state._replace(
            mass=torch.where(stops, 1.0, torch.where(runs, state.mass + probability, state.mass)),
            remainder=torch.where(stops, remainder, state.remainder),
            steps=state.steps + state.live,
            live=runs,
            probability=probability,
            weights=torch.where(stops, remainder, torch.where(runs, probability, 0.0)),
        )

    def commit(self, state: ACTState, candidate: torch.Tensor, step: int | torch.Tensor) -> ACTState:
        """Take the step's states (B, S, E) with their weights into the output."""
        share = state.weights[..., None].to(candidate.dtype)
        output = state.output * (1.0 - share) if self.universal else state.output
        return state._replace(hidden=candidate, output=torch.addcmul(output, share.expand_as(candidate), candidate))

    def readout(self, state: ACTState) -> torch.Tensor:
        """Output with all mass that is left on the running state; the universal form's shares need none."""
        if self.universal:
            return state.output
        rest = (1.0 - state.mass)[..., None].to(state.hidden.dtype)
        return torch.addcmul(state.output, rest.expand_as(state.hidden), state.hidden)

    def output(self, state: ACTState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Output (B, S, E), ponder cost (B, S) and steps (B, S)."""
        return state.output, state.remainder + state.steps, state.steps
