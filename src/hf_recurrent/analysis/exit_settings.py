"""The settings that a calibration chooses from: exit criteria with thresholds, and fixed depths, from safe to fast."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..models.config.exit_criteria import CRITERIA, FIXED, LEARNED
from ..models.depth.exit_criteria import ExitRule
from ..models.ops.modes import inference_mode
from .answers import Batch, require_early_answers, require_right_answers

# in the place of a threshold: every unit takes every step
FULL_DEPTH = None
# the order must not depend on the examples, see `risk_control.fixed_sequence`
GRIDS = {
    LEARNED: (0.9999, 0.999, 0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "convergence": (0.001, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0),
    "agreement": (1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0),
    "confidence": (0.9999, 0.9995, 0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5),
    "entropy": (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0),
    "probe": (0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5),
}
# of a criterion without a threshold
PATIENCES = (8, 6, 5, 4, 3, 2, 1)


def threshold_fields(threshold: float | None) -> dict[str, Any]:
    """Config fields of a run with learned halting at a threshold, or at full depth."""
    learned = {"exit_criterion": LEARNED, "exit_threshold": None, "exit_patience": None}
    if threshold is FULL_DEPTH:
        return {**learned, "halting_threshold": 1.0, "hard_stop": False}
    return {**learned, "halting_threshold": threshold}


class Setting(NamedTuple):
    """An exit criterion with its threshold and patience, None where it has none; or a fixed `max_depth`."""

    criterion: str
    threshold: float | None = None
    patience: int | None = None
    max_depth: int | None = None

    @property
    def value(self) -> float | int | None:
        """The value that differs between the settings of one criterion."""
        return next((value for value in (self.threshold, self.max_depth, self.patience) if value is not None), None)

    @property
    def fields(self) -> dict[str, Any]:
        """Config fields of a model that stops so."""
        if self.criterion == FIXED:
            return {**threshold_fields(FULL_DEPTH), "num_hidden_layers": self.max_depth}
        if self.criterion == LEARNED:
            return threshold_fields(self.threshold)
        return {"exit_criterion": self.criterion, "exit_threshold": self.threshold, "exit_patience": self.patience}

    def as_data(self) -> dict[str, Any]:
        """The setting as a calibration stores it; an exit has no depth of its own."""
        return {name: value for name, value in self._asdict().items() if name != "max_depth" or value is not None}


def settings_of(criterion: str) -> list[Setting]:
    """The settings of a criterion, from the safest to the fastest."""
    if criterion not in GRIDS:
        return [Setting(criterion, patience=patience) for patience in PATIENCES]
    patience = None if criterion == LEARNED else CRITERIA[criterion].default_patience
    return [Setting(criterion, threshold, patience) for threshold in GRIDS[criterion]]


def fixed_depths(model: Any, most_steps: int) -> list[Setting]:
    """The fixed depths below full depth, from deep to shallow.

    A model with two stacks has none, nor has one that divides its depth among several groups of layers.
    """
    if model.config.capabilities.two_stacks or getattr(model.config, "num_hidden_groups", 1) > 1:
        return []
    return [Setting(FIXED, max_depth=steps) for steps in range(most_steps - 1, 0, -1)]


def check_criteria(model: Any, criteria: Sequence[str] | None) -> tuple[str, ...]:
    """The requested criteria, each once, or all that a model can use.

    Raises:
        ValueError: the model has no block to iterate or no head, or cannot use one of them.
    """
    require_early_answers(model)
    require_right_answers(model)
    halts, head = model.config.capabilities.halting != "none", model.answer_head()
    reasons = {LEARNED: None if halts else "the model has no learned halting (halting='none')"}
    for name, rule in CRITERIA.items():
        looks = rule.evidence != "states"
        reasons[name] = model.base_model.unread_answers(ExitRule(rule, None, 1, 1), head) if looks else None
    usable = [name for name, reason in reasons.items() if reason is None]
    for name in criteria or ():
        if name not in usable:
            raise ValueError(f"criterion is {name!r}: {reasons.get(name, 'there is none')}; choose {', '.join(usable)}")
    return tuple(dict.fromkeys(criteria or usable))


def full_depth(model: Any, batch: Batch, max_depth: int | None) -> int:
    """The steps of full depth: `max_depth`, or those of the config.

    Raises:
        ValueError: the model cannot take so many, or has two stacks.
    """
    if max_depth is None:
        return model.config.num_hidden_layers
    if model.config.capabilities.two_stacks:
        raise ValueError(f"max_depth is {max_depth}: it is for models with one stack, leave it out")
    # the model itself knows how deep it may go
    with inference_mode(model):
        model(**{name: value[:1] for name, value in batch.inputs.items()}, max_depth=max_depth)
    return max_depth
