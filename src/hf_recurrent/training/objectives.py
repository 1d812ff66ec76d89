"""What a run trains for: to classify rows, or to predict tokens."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..benchmarks import benchmark_info
from .metrics import compute_language_metrics, compute_metrics, next_token_ids


@dataclass(frozen=True)
class Objective:
    """The script that trains for it, the Auto class of its models, and how `Trainer` evaluates them."""

    script: str
    auto_class: str
    compute_metrics: Callable[[Any], dict[str, float]]
    preprocess_logits: Callable | None = None


CLASSIFICATION = Objective("training/run_glue_style.py", "AutoModelForSequenceClassification", compute_metrics)
LANGUAGE_MODELLING = Objective(
    "training/run_clm.py", "AutoModelForCausalLM", compute_language_metrics, preprocess_logits=next_token_ids
)


def objective_of(benchmark: str) -> Objective:
    """What models are trained for on a benchmark of this package: rows without labels are predicted themselves."""
    return CLASSIFICATION if benchmark_info(benchmark).label_names else LANGUAGE_MODELLING


def require_objective(objective: Objective, benchmark: str) -> None:
    """Raise a ValueError that names the right script for `benchmark`, if it is not that of `objective`."""
    needed = objective_of(benchmark)
    if needed is not objective:
        labels = "has labels" if needed is CLASSIFICATION else "has no labels"
        raise ValueError(f"benchmark {benchmark!r} {labels}: use {needed.script}, not {objective.script}")
