"""What a model would have answered, had it stopped earlier: from one pass at full depth.

A pass takes every step, and keeps the states after each of them and the evidence of exit criteria. Where a row stops as
a whole, its states do not depend on when other rows stop. So the states after k steps are those of a run that stops
after k steps, and the head answers from them.

Shapes: B rows of the base model's batch, S tokens, E width, L steps of full depth.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..models.common.exit_criteria import CRITERIA, OF_TWO, ExitRule
from ..models.engine.depth_loop import DepthOptions, DepthOutput, Trace, summarize
from ..models.engine.early_exit import EarlyExit, RunOn
from ..models.engine.shared_block import SharedBlockModel
from ..models.ops.stick_breaking import StickBreaking


def can_record(model: Any) -> bool:
    """Whether a pass at full depth holds the passes of fewer steps: not where chunks read what earlier chunks left."""
    return isinstance(model.base_model, SharedBlockModel) and model.config.capabilities.reads != "chunks"


def stops_rows(model: Any, criterion: str) -> bool:
    """Whether an exit criterion stops the rows of a model as a whole, rather than tokens that others attend to."""
    answers_tokens = model.answer_head().answers == "tokens" and model.config.token_units
    return not (model.config.stops_by_token(criterion) or answers_tokens)


def halts_rows(model: Any) -> bool:
    """Whether learned halting stops the rows of a model as a whole, by nothing but their own states."""
    return model.config.halting == "global" and not (model.config.is_causal or caps_depth(model))


def caps_depth(model: Any) -> bool:
    """Whether runs without an exit criterion take no more steps than a row has tokens."""
    return model.base_model.depth_follows_length


class DepthRecord:
    """A pass over a batch at full depth, which is that of the model's config.

    Attributes:
        output: what the model returns at full depth.

    Args:
        model: a task model for which `can_record` holds.
        inputs: of a batch, on the model's device.
        criteria: exit criteria whose evidence is kept; each `stops_rows`.
    """

    output: Any

    def __init__(self, model: Any, inputs: Mapping[str, torch.Tensor], criteria: Sequence[str]):
        self.model, self.inputs = model, inputs
        self.rules = [ExitRule(CRITERIA[name], None, 1, 1) for name in criteria]
        # a criterion is needed to run through `EarlyExit`; here none stops any unit
        carrier = CRITERIA[criteria[0] if criteria else "convergence"]
        self.options = {"exit_criterion": carrier.name, "exit_threshold": carrier.default_threshold}
        self.depths: list[DepthOutput] = []
        self.scores: dict[str, list[torch.Tensor]] = {name: [] for name in criteria}
        self.after: list[torch.Tensor] = []
        base = model.base_model
        with replaced(base, run_depth=self._recorded(base.run_depth), strategy=self._watching(base.strategy)):
            self.output = model(**inputs, **self.options)

    @property
    def num_rows(self) -> int:
        """B, more than examples where each of them is several sentences or choices."""
        return len(self.depths[0].hidden_states)

    @property
    def most_steps(self) -> int:
        """L."""
        return len(self.depths) - 1

    def steps_by(self, rule: ExitRule) -> torch.Tensor:
        """Steps (B,) after which each row stops by a rule, as `EarlyExit.judge` decides."""
        compares = rule.criterion.name in OF_TWO
        unread = max(0, rule.min_depth - rule.patience - compares) + compares
        scores = self.scores[rule.criterion.name]
        steps = self.fixed_steps(self.most_steps)
        streak = torch.zeros_like(steps)
        for taken, score in enumerate(scores, 1):
            streak = torch.where(rule.met(score) & (taken > unread), streak + 1, 0)
            stops = (streak >= rule.patience) & (taken >= rule.min_depth) & (steps == self.most_steps)
            steps = steps.masked_fill(stops, taken)
        return steps

    def steps_by_mass(self, threshold: float) -> torch.Tensor:
        """Steps (B,) after which each row halts as it learned, at a threshold."""
        steps = self.fixed_steps(self.most_steps)
        for taken in reversed(range(self.most_steps)):
            steps = torch.where(self.after[taken] > 1.0 - threshold, steps, taken)
        return steps

    def stopped_after(self, steps: int | torch.Tensor) -> Any:
        """What the model returns if its rows stop after so many steps (B,)."""
        steps = self.fixed_steps(steps) if isinstance(steps, int) else steps
        rows = torch.arange(self.num_rows, device=steps.device)

        def chosen(name: str) -> torch.Tensor:
            return torch.stack([getattr(depth, name) for depth in self.depths])[steps, rows]

        def run_depth(*_: Any) -> DepthOutput:
            return DepthOutput(*map(chosen, ("hidden_states", "ponder_cost", "ponder_steps")))

        with replaced(self.model.base_model, run_depth=run_depth):
            return self.model(**self.inputs, **self.options)

    def fixed_steps(self, steps: int) -> torch.Tensor:
        """So many steps for all rows: (B,)."""
        return torch.full((self.num_rows,), steps, device=self.depths[0].hidden_states.device)

    def _recorded(self, run_depth: Any) -> Any:
        """`run_depth`, of which the mask (B, S) and the last states are kept."""

        def run(hidden: torch.Tensor, mask: torch.Tensor, *more: Any) -> DepthOutput:
            self.mask = mask
            return run_depth(hidden, mask, *more)

        return run

    def _watching(self, strategy: Any) -> Any:
        """`strategy`, but for a halting strategy whose `judge` keeps what it sees, and stops no unit."""

        def watching(call: Any, max_depth: int, cache: Any) -> Any:
            whole = strategy(call, max_depth, cache)
            exits = {
                rule.criterion.name: plain(strategy(call._replace(exit=rule), max_depth, cache)) for rule in self.rules
            }
            previous: dict[str, torch.Tensor] = {}

            def judge(before: NamedTuple, state: NamedTuple, layout: Any, step: int) -> NamedTuple:
                if step == 0:
                    self._keep(before, layout, whole)
                self._keep(state, layout, whole)
                own = state.inner if isinstance(whole, RunOn) else state
                if isinstance(plain(whole).inner, StickBreaking) and not layout.strategy.token_units:
                    self.after.append(own.inner.after)
                if step + 1 == max_depth:
                    return state
                for name, rule_exit in exits.items():
                    seen = own._replace(previous=previous.get(name, own.previous))
                    score, previous[name] = rule_exit.score(before, seen, layout, step + 1)
                    self.scores[name].append(self._by_row(score, layout))
                return state

            whole.judge = judge
            return whole

        return watching

    def _keep(self, state: NamedTuple, layout: Any, strategy: Any) -> None:
        trace = Trace()
        trace.begin(DepthOptions(1), 0, state.hidden)
        self.depths.append(summarize([layout.finish(state)], self.mask, strategy, trace))

    def _by_row(self, score: torch.Tensor | None, layout: Any) -> torch.Tensor:
        """Scores of units, which are those of their rows, as (B,); NaN if there are none yet."""
        rows = layout.units // (self.mask.shape[1] if layout.strategy.token_units else 1)
        found = torch.full((len(self.mask),), math.nan, device=rows.device)
        return found if score is None else found.index_copy(0, rows, score.flatten().float())


def plain(strategy: Any) -> EarlyExit:
    return strategy.inner if isinstance(strategy, RunOn) else strategy


@contextmanager
def replaced(module: Any, **methods: Any) -> Iterator[None]:
    """Other methods of a module, which gets its own back afterwards."""
    for name, method in methods.items():
        setattr(module, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(module, name)
