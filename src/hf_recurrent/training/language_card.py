"""The card of a finished run on a user's own documents."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..analysis.text_losses import BLOCKS
from ..hub import CardData
from ..hub.card import Example, Plot
from ..hub.tasks import METRICS, task_for
from .arguments import LanguageDataArguments
from .card import RunFacts, chunk_settings, common_fields, history, own_facts, own_limitations, split_results
from .document_card import prompt_of
from .evaluation import Evaluation
from .objectives import TEXT_MODELLING
from .report_arguments import ReportArguments


def headline(title: str, split: str, table: Mapping[str, Any], metric: str) -> str:
    """How well the model predicts, in one sentence."""
    measure = METRICS[metric]
    blocks = table["texts"] == BLOCKS
    read = f"blocks of {table['segment_length']:,} tokens" if blocks else "documents"
    depth = (
        ""
        if table["fixed_depth"]
        else (f", in {table['mean_steps']:.1f} of at most {table['max_steps']} depth steps a token on average")
    )
    return (
        f"{title}: {table[measure.key]:.3f} {measure.label.lower()} on {table['documents']:,} {read} of the `{split}` "
        f"split ({table['tokens']:,} tokens), where the best constant prediction needs "
        f"{table[measure.constant_key]:.3f}{depth}."
    )


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
) -> CardData:
    """The card of a run on documents, from its recipe and its evaluation."""
    config, tables = model.config, evaluation.tables
    split, table = next(iter(tables.items()))
    # bytes are the same for all tokenizers, if they are known
    metric = "bits_per_byte" if table["exact_bytes"] and table["bits_per_byte"] is not None else "bits_per_token"
    fields = common_fields(model, data, report, facts, table, TEXT_MODELLING.script)
    read = own_facts(data, report.dataset_id)
    read = replace(read, parameters={**read.parameters, "tokens of the tokenizer": len(tokenizer)})
    return CardData(
        **{**fields, "benchmark": read},
        claim=headline(fields["model_name"], split, table, metric),
        task=task_for(TEXT_MODELLING.auto_class),
        metric=metric,
        chunks=chunk_settings(config),
        results=split_results(tables, report, data, config, facts.steps, changes=facts.changes),
        example=Example(prompt_of(evaluation.example["text"])),
        limitations=[*language_limitations(data, tables), *history(facts, config)],
        plots=[Plot(**plot, split=split) for plot in evaluation.plots],
    )
