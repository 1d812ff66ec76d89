"""Halting strategies around another one: early exit by a criterion, and units that go on after they have stopped.

Shapes: U units, E width, A answers of a unit, C classes of an answer.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from ..ops.graphs import is_captured
from .exit_criteria import OF_ONE, OF_TWO, ExitRule
from .halting import HaltingStrategy, expand_units, halted_by
from .layouts import Layout


class WrappedStrategy(HaltingStrategy):
    """A strategy whose state has that of another one as `inner`."""

    def __init__(self, inner: HaltingStrategy):
        self.inner = inner
        for name in ("halts", "token_units", "running_mean", "needs_candidate", "first_decision"):
            setattr(self, name, getattr(inner, name))

    @property
    def freezes(self) -> bool:
        return self.inner.freezes

    @freezes.setter
    def freezes(self, value: bool) -> None:
        self.inner.freezes = value

    def features(self, state: NamedTuple, candidate: torch.Tensor | None) -> torch.Tensor:
        return self.inner.features(state.inner, candidate)

    def readout(self, state: NamedTuple) -> torch.Tensor:
        return self.inner.readout(state.inner)


class ExitState(NamedTuple):
    """State of the wrapped strategy, and of the criterion."""

    inner: NamedTuple
    live: torch.Tensor  # (U,) bool
    steps: torch.Tensor  # (U,) long, steps taken
    streak: torch.Tensor  # (U,) long, latest successive steps for which the criterion held
    previous: torch.Tensor  # (U, A, C) log-probabilities of the latest prediction, (U, 0, 0) if there is none

    @property
    def hidden(self) -> torch.Tensor:
        return self.inner.hidden

    @property
    def probability(self) -> torch.Tensor:
        return self.inner.probability


class EarlyExit(WrappedStrategy):
    """Stops units when an exit criterion holds, in the place of the halting head.

    A unit that has stopped keeps its state, to which others attend. Its output is that of the wrapped strategy, had it
    stopped there: the running state or, of a model trained on a mixture of states, that mixture.

    Args:
        inner: the model's own strategy, which no longer stops any unit.
        rule: the exit criterion with its settings.
        predict: function from the states of units, and the `steps` that they have taken, to log-probabilities
            (n, A, C), or to the probe's probability (n,); see `Layout.answers`. None for criteria that need no head.
        max_depth: the last step, after which nothing is left to decide.
        token_units: whether the unit is the token.
        by_row: whether all units of a row stop together.
        watched: function from running states to what a criterion on states looks at; None for all of them.
        pooling: how states of rows are pooled before `predict`; None if it does that.
    """

    exits = True

    def __init__(
        self,
        inner: HaltingStrategy,
        rule: ExitRule,
        predict: Callable[..., torch.Tensor] | None,
        max_depth: int,
        token_units: bool,
        by_row: bool,
        watched: Callable[[torch.Tensor], torch.Tensor] | None = None,
        pooling: str | None = None,
    ):
        super().__init__(inner)
        self.rule, self.predict, self.max_depth, self.watched = rule, predict, max_depth, watched
        self.pooling = pooling
        self.token_units, self.by_row = token_units, by_row

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> ExitState:
        steps = torch.zeros_like(live, dtype=torch.long)
        previous = hidden.new_empty((*live.shape, 0, 0), dtype=torch.float32)
        return ExitState(self.inner.initial_state(hidden, live), live, steps, steps, previous)

    def decide(self, state: ExitState, features: torch.Tensor, step: int | torch.Tensor) -> ExitState:
        """Update halting probabilities, by which mixtures weigh their states, without stopping any unit."""
        inner = self.inner.decide(state.inner, features, step)
        return state._replace(inner=inner._replace(live=state.live))

    def commit(self, state: ExitState, candidate: torch.Tensor, step: int | torch.Tensor) -> ExitState:
        inner = self.inner.commit(state.inner, candidate, step)
        if self.freezes:
            hidden = torch.where(expand_units(state.live, inner.hidden, inner.unit), inner.hidden, state.hidden)
            inner = inner._replace(hidden=hidden)
        return state._replace(inner=inner, steps=state.steps + state.live)

    def judge(self, before: ExitState, state: ExitState, layout: Layout, step: int | torch.Tensor) -> ExitState:
        """The state after a step, counted from 0, with those units stopped for which the criterion holds."""
        taken, rule = step + 1, self.rule
        compares = rule.criterion.name in OF_TWO
        unread = max(0, rule.min_depth - rule.patience - compares)
        # a captured state holds predictions from the first step on
        reads = ((taken > unread) | is_captured()) & (taken < self.max_depth)
        if reads is False:
            return state
        score, previous = self.score(before, state, layout, taken)
        if score is None:
            return state._replace(previous=previous)
        # the first of predictions that are compared has no score
        stops, streak = where_both(rule.met(score), reads & (taken > unread + compares)), state.streak
        if rule.patience > 1:
            streak = torch.where(stops, streak + 1, 0)
            stops = streak >= rule.patience
        live = halted_by(state.live, where_both(stops, taken >= rule.min_depth))
        inner = state.inner if live is state.live else state.inner._replace(live=live)
        return state._replace(inner=inner, live=live, streak=streak, previous=previous)

    def score(
        self, before: ExitState, state: ExitState, layout: Layout, steps: int | torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Scores (U,) after so many steps, None if no unit has a prediction to compare with; and the predictions."""
        criterion = self.rule.criterion
        if criterion.evidence == "states":
            states = before.hidden, state.hidden
            states = states if self.watched is None else map(self.watched, states)
            return layout.largest_change(*states, self.by_row), state.previous
        predict = partial(self.predict, steps=steps)
        answers = layout.answers(predict, self.inner.readout(state.inner), state.live, self.by_row, self.pooling)
        if criterion.evidence == "probe":
            return answers, state.previous
        if criterion.name in OF_ONE:
            return OF_ONE[criterion.name](answers), state.previous
        first = state.previous.shape[-1] == 0
        return (None if first else OF_TWO[criterion.name](state.previous, answers)), answers

    def attended(self, state: ExitState) -> torch.Tensor | None:
        return self.inner.attended(state.inner)

    def output(self, state: ExitState) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Final states, and executed steps as ponder cost and as steps."""
        return self.readout(state), state.steps.float(), state.steps


def where_both(condition: torch.Tensor, also: bool | torch.Tensor) -> torch.Tensor:
    """`condition & also`, without an operator if the host knows that it holds."""
    return condition if also is True else condition & also


class RunOnState(NamedTuple):
    """State of the wrapped strategy, in which units that have stopped keep theirs, and the states that run on."""

    inner: NamedTuple
    hidden: torch.Tensor

    @property
    def live(self) -> torch.Tensor:
        return self.inner.live

    @property
    def probability(self) -> torch.Tensor:
        return self.inner.probability


class RunOn(WrappedStrategy):
    """Units stop for their output alone, as the code of Ouro and Huginn computes exits.

    The output of a unit is that of the wrapped strategy. Its state goes on through all steps, and others attend to it.
    """

    needs_every_step = True

    def __init__(self, inner: HaltingStrategy):
        super().__init__(inner)
        self.exits, self.skips_step = inner.exits, inner.skips_step

    def initial_state(self, hidden: torch.Tensor, live: torch.Tensor) -> RunOnState:
        return RunOnState(self.inner.initial_state(hidden, live), hidden)

    def decide(self, state: RunOnState, features: torch.Tensor, step: int | torch.Tensor) -> RunOnState:
        return state._replace(inner=self.inner.decide(state.inner, features, step))

    def commit(self, state: RunOnState, candidate: torch.Tensor, step: int | torch.Tensor) -> RunOnState:
        return RunOnState(self.inner.commit(state.inner, candidate, step), candidate)

    def judge(self, before: RunOnState, state: RunOnState, layout: Layout, step: int | torch.Tensor) -> RunOnState:
        return state._replace(inner=self.inner.judge(before.inner, state.inner, layout, step))

    def output(self, state: RunOnState) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        return self.inner.output(state.inner)


def exit_indicator(steps: torch.Tensor, max_depth: int) -> torch.Tensor:
    """Halting probabilities of units that stopped after `steps` (U,), for sure and not before: (U, L)."""
    decision = torch.arange(max_depth, device=steps.device)
    return (decision == steps[..., None]).float()
