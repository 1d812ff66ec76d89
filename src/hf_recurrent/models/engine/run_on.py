"""Units that go on through all steps after they have stopped, as the code of Ouro and Huginn computes exits.

Shapes: U units, E width.
"""

from typing import NamedTuple

import torch

from .depth_loop import HaltingState, HaltingStrategy, Layout


class RunOnState(NamedTuple):
    """State of the wrapped strategy, in which units that have stopped keep theirs, and the states that run on."""

    inner: HaltingState
    hidden: torch.Tensor

    @property
    def live(self) -> torch.Tensor:
        return self.inner.live

    @property
    def probability(self) -> torch.Tensor:
        return self.inner.probability


class RunOn:
    """Halting strategy whose units stop for their output alone; see `depth_loop.HaltingStrategy`.

    The output of a unit is that of the wrapped strategy. Its state goes on through all steps, and others attend to it.
    """

    needs_every_step = True

    def __init__(self, inner: HaltingStrategy):
        self.inner = inner
        self.halts, self.exits, self.token_units = inner.halts, inner.exits, inner.token_units
        self.running_mean, self.needs_candidate, self.skips_step = (
            inner.running_mean,
            inner.needs_candidate,
            inner.skips_step,
        )

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> RunOnState:
        return RunOnState(self.inner.initial_state(hidden, live), hidden)

    def decides(self, step: int) -> bool:
        return self.inner.decides(step)

    def features(self, state: RunOnState, candidate: torch.Tensor | None) -> torch.Tensor:
        return self.inner.features(state.inner, candidate)

    def decide(self, state: RunOnState, features: torch.Tensor, step: int | torch.Tensor) -> RunOnState:
        return state._replace(inner=self.inner.decide(state.inner, features, step))

    def commit(self, state: RunOnState, candidate: torch.Tensor, step: int | torch.Tensor) -> RunOnState:
        return RunOnState(self.inner.commit(state.inner, candidate, step), candidate)

    def judge(self, before: RunOnState, state: RunOnState, layout: Layout, step: int | torch.Tensor) -> RunOnState:
        return state._replace(inner=self.inner.judge(before.inner, state.inner, layout, step))

    def stopped(self, state: RunOnState, where: torch.Tensor) -> RunOnState:
        return state._replace(inner=self.inner.stopped(state.inner, where))

    def attended(self, state: RunOnState) -> None:
        """Keys and values come from the running states."""

    def readout(self, state: RunOnState) -> torch.Tensor:
        return self.inner.readout(state.inner)

    def output(self, state: RunOnState) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        return self.inner.output(state.inner)
