"""Exit criteria with thresholds from the safest to the fastest, and a model's answers, steps and times at each."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..inference.modes import inference_mode
from ..models.common.exit_criteria import CRITERIA, LEARNED, ExitRule
from .inference import (
    Batch,
    interleaved_seconds,
    progress_bar,
    require_right_answers,
)
from .model_facts import require_early_answers, stack_depths
from .sweep import evaluate, example_depths, threshold_fields, timed_settings
from .token_answers import judged
from .token_halting import answer_steps

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
# shares of full depth that early exits are compared with
FIXED_DEPTHS = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)
# timing takes several passes at every setting: over so many batches at most, of all lengths
TIMED_BATCHES = 8


class Setting(NamedTuple):
    """An exit criterion with its threshold and patience; None where it has none."""

    criterion: str
    threshold: float | None
    patience: int | None

    @property
    def value(self) -> float | int | None:
        """What tells settings of one criterion apart."""
        return self.patience if self.threshold is None else self.threshold

    @property
    def fields(self) -> dict[str, Any]:
        """Config fields of a model that stops so."""
        if self.criterion == LEARNED:
            return threshold_fields(self.threshold)
        return {
            "exit_criterion": self.criterion,
            "exit_threshold": self.threshold,
            "exit_patience": self.patience,
        }


def settings_of(criterion: str) -> list[Setting]:
    """The settings of a criterion, from the safest to the fastest."""
    if criterion == LEARNED:
        return [Setting(criterion, threshold, None) for threshold in GRIDS[criterion]]
    rule = CRITERIA[criterion]
    if rule.default_threshold is None:
        return [Setting(criterion, None, patience) for patience in PATIENCES]
    return [Setting(criterion, threshold, rule.default_patience) for threshold in GRIDS[criterion]]


def usable_criteria(config: Any) -> tuple[str, ...]:
    """The exit criteria that a task model of a config can use."""
    learned = (LEARNED,) if config.capabilities.halting != "none" else ()
    others = (name for name, rule in CRITERIA.items() if rule.evidence != "probe" or config.exit_probe_size > 0)
    return (*learned, *others)


def check_criteria(model: Any, criteria: Sequence[str] | None) -> tuple[str, ...]:
    """The criteria asked for, each once, or all that a model can use.

    Raises:
        ValueError: the model has no block to iterate or no head, or cannot use one of them.
    """
    require_early_answers(model)
    require_right_answers(model)
    head = model.answer_head()
    unread = {
        name: model.base_model.unread_answers(ExitRule(rule, None, 1, 1), head)
        for name, rule in CRITERIA.items()
        if rule.evidence != "states"
    }
    usable = [name for name in usable_criteria(model.config) if unread.get(name) is None]
    reasons = {
        LEARNED: "the model has no learned halting (halting='none')",
        "probe": "the model has no fitted probe (exit_probe_size is 0); run `hf-recurrent fit-probe` first",
        **{name: reason for name, reason in unread.items() if reason is not None},
    }
    for name in criteria or ():
        if name not in usable:
            raise ValueError(f"criterion is {name!r}: {reasons.get(name, 'there is none')}; choose {', '.join(usable)}")
    return tuple(dict.fromkeys(criteria or usable))


def depth_fields(model: Any, batch: Batch, max_depth: int | None) -> dict[str, int]:
    """Config fields of a model that takes `max_depth` at full depth, instead of its own number.

    Raises:
        ValueError: the model cannot take so many, or has two stacks.
    """
    if max_depth is None:
        return {}
    if model.config.capabilities.two_stacks:
        raise ValueError(f"max_depth is {max_depth}: it is for models with one stack, leave it out")
    # the model itself knows how deep it may go
    with inference_mode(model):
        model(**{name: value[:1] for name, value in batch.inputs.items()}, max_depth=max_depth)
    return {"num_hidden_layers": max_depth}


def fixed_depths(most_steps: int) -> list[int]:
    """Numbers of steps below full depth that early exits are compared with."""
    return sorted({max(1, round(share * most_steps)) for share in FIXED_DEPTHS} - {most_steps})


class Measured(NamedTuple):
    """Results at several settings, by their keys.

    Attributes:
        examples: frames with the columns of `judged`, `answer` and `confidence` alone where there are no labels; and
            `steps`, those of each example, the mean over its units or, where each token is answered for, over those of
            its labelled tokens.
        seconds: of a pass over `timed` examples.
    """

    examples: dict[Hashable, pd.DataFrame]
    seconds: dict[Hashable, float]
    timed: int


def measure(
    model: Any,
    batches: Sequence[Batch],
    labelled: bool,
    fields: Mapping[Hashable, Mapping[str, Any]],
    repeats: int,
    progress: bool = False,
) -> Measured:
    """Answers, steps and times of a model with each of several values of config fields.

    The settings take turns at every batch, `repeats` times, and the median counts.

    Args:
        batches: on the model's device.
        labelled: whether their labels are true, or only mark what is compared.
    """
    stacks = list(stack_depths(model.config))
    timed = batches[:: math.ceil(len(batches) / TIMED_BATCHES)]

    def columns(output: Any, batch: Batch) -> dict[str, np.ndarray]:
        found = judged(output, batch, model.config)
        kept = found if labelled else {name: found[name] for name in ("answer", "confidence")}
        return {**kept, "steps": answer_steps(model, output, batch)} if batch.by_token else kept

    passes = timed_settings(model, fields)
    with inference_mode(model):
        examples = {
            key: evaluate(model, batches, fields[key], columns)
            for key in progress_bar(list(fields), progress, "evaluating", "setting")
        }
        seconds = interleaved_seconds(passes, timed, repeats, next(model.parameters()).device, progress)
    return Measured(
        {key: frame.assign(steps=frame.get("steps", example_depths(frame, stacks))) for key, frame in examples.items()},
        {key: sum(seconds[key, stack] for stack in stacks) for key in fields},
        number_of_examples(timed),
    )


def number_of_examples(batches: Iterable[Batch]) -> int:
    return sum(len(batch.labels) for batch in batches)
