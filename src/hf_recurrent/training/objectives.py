"""What a run trains for: to classify rows, to predict tokens, or to turn a source into a target."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..benchmarks import benchmark_info
from .metrics import compute_language_metrics, compute_metrics, next_token_ids
from .seq2seq_metrics import compute_seq2seq_metrics

# the benchmark whose rows are documents, which are read in segments, and the script for it
LONG_DOCUMENTS, DOCUMENT_SCRIPT = "long_documents", "training/run_clm_accelerate.py"


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
SEQ2SEQ = Objective("training/run_seq2seq.py", "AutoModelForSeq2SeqLM", compute_seq2seq_metrics)
# the text columns of benchmarks whose rows are to be turned into something else
PAIR_COLUMNS = ("source", "target")


def objective_of(benchmark: str) -> Objective:
    """What models are trained for on a benchmark of this package: rows without labels are predicted themselves."""
    if benchmark_info(benchmark).target_column:
        return SEQ2SEQ
    return CLASSIFICATION if benchmark_info(benchmark).label_names else LANGUAGE_MODELLING


def script_of(benchmark: str) -> str:
    """The script that trains on a benchmark of this package."""
    return DOCUMENT_SCRIPT if benchmark == LONG_DOCUMENTS else objective_of(benchmark).script


def require_objective(objective: Objective, benchmark: str) -> None:
    """Raise a ValueError that names the right script for `benchmark`, if it is not that of `objective`."""
    needed = script_of(benchmark)
    if needed != objective.script:
        rows = {CLASSIFICATION.script: "has labels", SEQ2SEQ.script: "has sources and targets"}
        what = "has documents, longer than a row" if benchmark == LONG_DOCUMENTS else rows.get(needed, "has no labels")
        raise ValueError(f"benchmark {benchmark!r} {what}: use {needed}, not {objective.script}")
