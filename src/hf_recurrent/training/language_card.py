"""The card of a finished run on a user's own documents."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..hub import CardData
from ..hub.card import Example
from .arguments import LanguageDataArguments
from .card import RunFacts, own_facts, own_limitations, run_card
from .document_card import headline, text_metric
from .evaluation import Evaluation
from .report_arguments import ReportArguments


def language_limitations(data: LanguageDataArguments, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """Limitations that a reader must know."""
    size = data.block_size
    lines = [
        *own_limitations(data.own, tables),
        "What it writes goes on like these texts, and may be wrong.",
        f"It was trained and measured on at most {size:,} tokens at a time: how well it goes on after longer ones is "
        "not known.",
    ]
    if data.max_eval_samples is not None and not data.own.streaming:
        unit = "blocks" if data.pack else "documents"
        lines.append(f"The measured {unit} are the first ones of the split: others may be easier or harder to predict.")
    if data.own.streaming:
        lines.append(
            "Its documents were streamed: the measured blocks are the first ones of the split, and no digest of the "
            "data is known."
        )
        if data.on_error == "skip":
            lines.append("Broken rows were left out of its documents, and not counted.")
    if not data.own.holds_out or data.own.cuts is None:
        return lines
    texts = "the end of the one text" if len(data.own.cuts) == 1 else "the ends of the texts"
    return [*lines, f"It is measured on {texts} that it was trained on the rest of."]


def language_card(
    model: Any,
    tokenizer: Any,
    data: LanguageDataArguments,
    report: ReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    *,
    prompt: str,
) -> CardData:
    """The card of a run on documents, from its recipe and its evaluation; the usage section continues the prompt."""
    tables, read = evaluation.tables, own_facts(data, report.dataset_id)
    metric = text_metric(tables)
    return run_card(
        *(model, data, report, facts, tables, evaluation.plots),
        claim=partial(headline, metric=metric),
        metric=metric,
        benchmark=replace(read, parameters={**read.parameters, "tokens of the tokenizer": len(tokenizer)}),
        example=Example(prompt),
        limitations=language_limitations(data, tables),
    )
