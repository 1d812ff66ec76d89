"""Objectives of training: classifying examples or words, predicting tokens, or turning a source into a target."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..benchmarks import benchmark_info
from .metrics import (
    compute_language_metrics,
    compute_metrics,
    compute_seq2seq_metrics,
    compute_span_metrics,
    compute_text_metrics,
    compute_token_metrics,
    masked_statistics,
    next_token_ids,
    span_ends,
    token_classes,
    token_statistics,
)

# the benchmark whose examples are documents, which are read in segments, and the script for it
LONG_DOCUMENTS, DOCUMENT_SCRIPT = "long_documents", "training/run_clm_accelerate.py"


@dataclass(frozen=True)
class Objective:
    """An objective, with the script that trains for it, the Auto class of its models, and its metrics in `Trainer`.

    `model_kind` names such a model, `data_kind` the property of benchmarks that calls for it, `metric` is the measure
    of its cards, and `scores` are those of `compute_metrics`, without ponder statistics.
    """

    script: str
    auto_class: str
    model_kind: str
    data_kind: str
    compute_metrics: Callable[[Any], dict[str, float]]
    preprocess_logits: Callable | None = None
    metric: str = "accuracy"
    scores: tuple[str, ...] = ("accuracy",)


CLASSIFICATION = Objective(
    "training/run_glue_style.py",
    "AutoModelForSequenceClassification",
    "a sequence classifier",
    "has labels",
    compute_metrics,
)
LANGUAGE_MODELLING = Objective(
    "training/run_clm.py",
    "AutoModelForCausalLM",
    "a causal language model",
    "has no labels",
    compute_language_metrics,
    preprocess_logits=next_token_ids,
    metric="last_read_accuracy",
    scores=("accuracy", "token_accuracy"),
)
# of a user's own documents, all of whose tokens are predicted
TEXT_MODELLING = replace(
    LANGUAGE_MODELLING,
    data_kind="has documents",
    compute_metrics=compute_text_metrics,
    preprocess_logits=token_statistics,
    scores=("nll", "perplexity", "token_accuracy"),
)
SEQ2SEQ = Objective(
    "training/run_seq2seq.py",
    "AutoModelForSeq2SeqLM",
    "an encoder-decoder model",
    "has sources and targets",
    compute_seq2seq_metrics,
    metric="exact_match",
    scores=("nll", "accuracy", "token_accuracy"),
)
# of a user's own words, and of tokens of own documents that are masked
TOKEN_CLASSIFICATION = Objective(
    "training/run_token_classification.py",
    "AutoModelForTokenClassification",
    "a token classifier",
    "has a label for each word",
    compute_token_metrics,
    preprocess_logits=token_classes,
    metric="word_accuracy",
)
MASKED_MODELLING = Objective(
    "training/run_mlm.py",
    "AutoModelForMaskedLM",
    "a masked language model",
    "has documents",
    compute_text_metrics,
    preprocess_logits=masked_statistics,
    metric="masked_accuracy",
    scores=("nll", "perplexity", "token_accuracy"),
)
# of a user's own questions: with a text that has the answer, or with several answers
QUESTION_ANSWERING = Objective(
    "training/run_qa.py",
    "AutoModelForQuestionAnswering",
    "a model that answers questions by spans",
    "has questions and contexts",
    compute_span_metrics,
    preprocess_logits=span_ends,
    metric="span_exact_match",
    scores=("span_accuracy",),
)
MULTIPLE_CHOICE = Objective(
    "training/run_multiple_choice.py",
    "AutoModelForMultipleChoice",
    "a multiple-choice model",
    "has answers to choose from",
    compute_metrics,
    metric="choice_accuracy",
)
# scripts that train on a user's own data alone
OWN_DATA_SCRIPTS = tuple(
    item.script for item in (TOKEN_CLASSIFICATION, MASKED_MODELLING, QUESTION_ANSWERING, MULTIPLE_CHOICE)
)
# the text columns of benchmarks of sources and targets
PAIR_COLUMNS = ("source", "target")


def objective_of(benchmark: str) -> Objective:
    """The objective of models on a benchmark of this package: texts without labels are predicted themselves."""
    if benchmark_info(benchmark).target_column:
        return SEQ2SEQ
    return CLASSIFICATION if benchmark_info(benchmark).label_names else LANGUAGE_MODELLING


def objective_on(data: Any) -> Objective:
    """The objective of models on the data of a recipe."""
    return objective_of(data.benchmark) if data.own is None else data.own_objective


def script_of(benchmark: str) -> str:
    """The script that trains on a benchmark of this package."""
    return DOCUMENT_SCRIPT if benchmark == LONG_DOCUMENTS else objective_of(benchmark).script
