"""What a model would have answered, had it stopped earlier: from one pass at full depth.

A pass takes every step, and keeps the states after each of them and the evidence of exit criteria. Where a row stops as
a whole, its states do not depend on when other rows stop. So the states after k steps are those of a run that stops
after k steps, and the head answers from them.

Shapes: B rows of the base model's batch, S tokens, E width, L steps of full depth.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from ..models.base.shared_block import SharedBlockModel
from ..models.config.exit_criteria import CRITERIA, FIXED, LEARNED
from ..models.depth.early_exit import EarlyExit, RunOn
from ..models.depth.exit_criteria import OF_TWO, ExitRule
from ..models.depth.loop import DepthOptions, DepthOutput, Trace, summarize
from ..models.depth.stick_breaking import StickBreaking
from .exit_settings import Setting

RECORDED = ("hidden_states", "ponder_cost", "ponder_steps")


def in_record(model: Any, setting: Setting) -> bool:
    """Whether a pass at full depth shows what a model would answer at a setting.

    It does where the setting stops the rows of the model as a whole, by nothing but their own states: not tokens that
    others attend to, and not where chunks read what earlier chunks left.
    """
    config, base = model.config, model.base_model
    if not isinstance(base, SharedBlockModel) or config.capabilities.reads == "chunks":
        return False
    if setting.criterion == FIXED:
        return not base.depth_follows_length
    if setting.criterion == LEARNED:
        return config.halting == "global" and not (config.is_causal or base.depth_follows_length)
    answers_tokens = model.answer_head().answers == "tokens" and config.token_units
    return not (config.stops_by_token(setting.criterion) or answers_tokens)


class DepthRecord:
    """A pass over a batch at full depth, which is that of the model's config.

    Args:
        model: a task model.
        inputs: of a batch, on the model's device.
        criteria: exit criteria whose evidence is kept; settings of each are `in_record`.
    """

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
        run_depth = base.run_depth
        # what is before the steps is the same wherever they stop
        self.before = {name: once(getattr(base, name)) for name in ("embedded", "context") if hasattr(base, name)}

        def run(hidden: torch.Tensor, mask: torch.Tensor, *more: Any) -> DepthOutput:
            self.mask = mask
            return run_depth(hidden, mask, *more)

        with replaced(base, run_depth=run, strategy=self._watching(base.strategy), **self.before):
            model(**inputs, **self.options)
        self.most_steps = len(self.depths) - 1
        # (L + 1, B, ...) each
        self.states = {name: torch.stack([getattr(own, name) for own in self.depths]) for name in RECORDED}
        del self.depths

    def steps_at(self, setting: Setting) -> torch.Tensor:
        """Steps (B,) after which each row stops at a setting; by a criterion, as `EarlyExit.judge` decides."""
        steps = torch.full((len(self.mask),), self.most_steps, device=self.mask.device)
        if setting.criterion == FIXED:
            return torch.full_like(steps, setting.max_depth)
        if setting.criterion == LEARNED:
            for taken in reversed(range(self.most_steps)):
                steps = torch.where(self.after[taken] > 1.0 - setting.threshold, steps, taken)
            return steps
        rule = ExitRule(CRITERIA[setting.criterion], setting.threshold, setting.patience, self.model.config.min_depth)
        compares = setting.criterion in OF_TWO
        met = rule.met(torch.stack(self.scores[setting.criterion]))
        met[: max(0, rule.min_depth - rule.patience - compares) + compares] = False
        # runs of `patience` steps in a row; the last entry stands for full depth
        runs = met.unfold(0, rule.patience, 1).all(-1) if rule.patience <= len(met) else met[:0]
        first = max(0, rule.min_depth - rule.patience)
        stops = torch.cat([runs[first:], torch.ones_like(met[:1])]).int().argmax(0)
        return (stops + first + rule.patience).clamp_max(self.most_steps)

    def stopped_after(self, steps: Any) -> Any:
        """What the model returns if its rows stop after so many steps: a number, or an array (B,)."""
        rows = torch.arange(len(self.mask), device=self.mask.device)
        places = torch.as_tensor(steps, device=rows.device).expand_as(rows)
        depth = DepthOutput(**{name: values[places, rows] for name, values in self.states.items()})
        with replaced(self.model.base_model, run_depth=lambda *_: depth, **self.before):
            return self.model(**self.inputs, **self.options)

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
                # criteria other than a probe judge the same answers
                answers = once(layout.answers)
                for name, rule_exit in exits.items():
                    shared = {} if rule_exit.rule.criterion.evidence == "probe" else {"answers": answers}
                    seen = own._replace(previous=previous.get(name, own.previous))
                    with replaced(layout, **shared):
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


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which runs once: later calls have the result of the first."""
    found: list[Any] = []

    def run(*given: Any) -> Any:
        if not found:
            found.append(function(*given))
        return found[0]

    return run


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
