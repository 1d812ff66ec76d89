"""Stick-breaking halting of one sequence, decision by decision."""

from dataclasses import dataclass

import torch

from .block import block, two_layers


@dataclass
class Unit:
    """A halting unit: a sequence (n, E) or a token (E,)."""

    hidden: torch.Tensor
    soft: torch.Tensor
    accumulated: torch.Tensor | float = 0.0
    remaining: torch.Tensor | float = 1.0  # probability of not having halted
    mass: torch.Tensor | float = 0.0  # cumulative halting mass
    penalty: torch.Tensor | float = 0.0
    slack: torch.Tensor | float = 0.0
    steps: int = 0
    halted: bool = False
    margin: float = 1.0  # distance of the closest decision to the threshold

    def step(self, candidate: torch.Tensor, probability: torch.Tensor, threshold: float, index: int) -> None:
        """Accept the candidate, unless the halting mass reaches the threshold with this step: then never again."""
        if self.halted:
            return
        mass = self.remaining * probability
        self.mass = self.mass + mass
        self.margin = min(self.margin, abs(float(torch.as_tensor(self.mass).detach()) - threshold))
        if self.mass >= threshold:
            self.halted = True
            return
        self.accumulated = self.accumulated + mass * self.hidden
        self.remaining = self.remaining * (1 - probability)
        self.hidden, self.soft = candidate, self.accumulated + (1 - self.mass) * candidate
        self.penalty = self.penalty + mass * (index + 1)
        self.slack = (1 - self.mass) * (index + 1)
        self.steps = index + 1


def depth(config, length: int) -> int:
    return min(config.num_hidden_layers, length + 1) if config.cap_depth_by_length else config.num_hidden_layers


def summary(units: list[Unit]) -> tuple[torch.Tensor, torch.Tensor, list[int], float]:
    """Token-level halting of a sequence: soft states (n, E), mean ponder cost, steps, margin."""
    costs = [torch.as_tensor(unit.penalty + unit.slack).sum() for unit in units]
    soft = torch.stack([unit.soft for unit in units])
    return soft, torch.stack(costs).mean(), [unit.steps for unit in units], min(unit.margin for unit in units)


def halt_row(model, states: torch.Tensor, memory: torch.Tensor | None = None):
    """One unit for all tokens, judged by the mean token -> soft state (n, E), ponder cost, steps, margin."""
    config, unit = model.config, Unit(states, states)
    for index in range(depth(config, len(states))):
        candidate = block(model.block, unit.hidden, unit.hidden, memory)
        seen = unit.hidden.mean(0)
        if config.transition_aware:
            seen = torch.cat((seen, candidate.mean(0)))
        probability = two_layers(model.halting_head, seen).sigmoid()
        unit.step(candidate, probability, config.halting_threshold, index)
    return unit.soft, torch.as_tensor(unit.penalty + unit.slack).sum(), [unit.steps], unit.margin


def halt_tokens(model, states: torch.Tensor, memory: torch.Tensor | None = None):
    """A unit per token; tokens attend to soft states -> soft states (n, E), mean ponder cost, steps, margin."""
    config, units = model.config, [Unit(state, state) for state in states]
    for index in range(depth(config, len(states))):
        hidden = torch.stack([unit.hidden for unit in units])
        soft = torch.stack([unit.soft for unit in units])
        candidates = block(model.block, hidden, soft, memory, config.is_causal)
        for unit, candidate in zip(units, candidates, strict=True):
            seen = torch.cat((unit.hidden, candidate)) if config.transition_aware else unit.hidden
            unit.step(candidate, two_layers(model.halting_head, seen).sigmoid(), config.halting_threshold, index)
    return summary(units)


def halt_causally(model, states: torch.Tensor, memory: torch.Tensor | None = None):
    """A unit per token that sees the tokens before it; under "global" halting judged by the mean over all it sees.

    A token that has halted counts with the state it keeps, unless `halted_candidates` says otherwise.
    """
    config = model.config
    if config.halting == "token":
        return halt_tokens(model, states, memory)
    units = [Unit(state, state) for state in states]
    for index in range(depth(config, len(states))):
        hidden = torch.stack([unit.hidden for unit in units])
        candidates = block(model.block, hidden, hidden, memory, causal=True)
        counted = torch.stack(
            [
                unit.hidden if unit.halted and not config.halted_candidates else candidate
                for unit, candidate in zip(units, candidates, strict=True)
            ]
        )
        for place, unit in enumerate(units):
            seen = hidden[: place + 1].mean(0)
            if config.transition_aware:
                seen = torch.cat((seen, counted[: place + 1].mean(0)))
            probability = two_layers(model.halting_head, seen).sigmoid()
            unit.step(candidates[place], probability, config.halting_threshold, index)
    return summary(units)
