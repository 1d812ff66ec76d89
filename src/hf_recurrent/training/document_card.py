"""The card of a finished run over long documents, from its recipe and the tables of its test splits."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..analysis.text_losses import BLOCKS
from ..hub import CardData
from ..hub.card import Benchmark, Example
from ..hub.tasks import METRICS
from .arguments import DocumentArguments
from .card import RunFacts, benchmark_facts, measured_on_validation, run_card, split_results, without_folders
from .objectives import DOCUMENT_SCRIPT
from .report_arguments import ReportArguments

# maximum length of a prompt, in letters
PROMPT_LETTERS = 48


def text_metric(tables: Mapping[str, dict[str, Any]]) -> str:
    """The measure of a card's tables: bytes are the same for all tokenizers, if they are known."""
    table = next(iter(tables.values()))
    return "bits_per_byte" if table["exact_bytes"] and table["bits_per_byte"] is not None else "bits_per_token"


def headline(title: str, split: str, table: Mapping[str, Any], metric: str) -> str:
    """How well the model predicts, in one sentence."""
    measure, read, depth = METRICS[metric], "documents", ""
    if table.get("texts") == BLOCKS:
        read = f"blocks of {table['segment_length']:,} tokens"
    if "texts" in table and not table["fixed_depth"]:
        depth = f", in {table['mean_steps']:.1f} of at most {table['max_depth']} depth steps a token on average"
    return (
        f"{title}: {table[measure.key]:.3f} {measure.label.lower()} on {table['documents']:,} {read} of the `{split}` "
        f"split ({table['tokens']:,} tokens), where the best constant prediction needs "
        f"{table[measure.constant_key]:.3f}{depth}."
    )


def document_limitations(data: DocumentArguments, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """Limitations that a reader must know."""
    read = f"configuration `{data.benchmark_config}`" if data.own is None else f"`{data.own.name}`"
    lines = [
        f"It has read the documents of {read} alone, and continues texts of their kind: what it writes may be wrong.",
        *([] if data.own is None else measured_on_validation(tables)),
    ]
    few = [f"`{name}` ({table['documents']})" for name, table in tables.items() if table["documents"] < 30]
    if few:
        lines.append(f"Few documents are tested on, so that others may give other numbers: {', '.join(few)}.")
    if data.max_train_samples is not None:
        lines.append(f"It was trained on {data.max_train_samples:,} of the documents only.")
    return lines


def document_benchmark(data: DocumentArguments, dataset_id: str | None, start: str | None = None) -> Benchmark:
    """The benchmark with its parameters and its tokenizer, that of the checkpoint `start` if training began there."""
    facts = benchmark_facts(data, dataset_id)
    parameters = dict(facts.parameters)
    if data.data_dir is not None:
        # not under their own names: nobody else has the files
        parameters = {"documents": "files of a folder", "chosen by": data.benchmark_params or "the defaults"}
    parameters["tokenizer"] = without_folders(data.tokenizer) or (
        "bytes" if start is None else f"that of {Path(start).name}"
    )
    if data.tokenizer_vocab_size is not None:
        parameters["tokenizer_vocab_size"] = data.tokenizer_vocab_size
    return replace(facts, parameters=parameters)


def prompt_of(text: str) -> str:
    """The beginning of a document, up to the end of a word."""
    beginning = text.lstrip()[:PROMPT_LETTERS]
    return beginning.rpartition(" ")[0].rstrip() or beginning


def document_card(
    model: Any,
    data: DocumentArguments,
    report: ReportArguments,
    tables: Mapping[str, dict[str, Any]],
    facts: RunFacts,
    *,
    batch_size: int,
    prompt: str,
    plots: Iterable[Mapping[str, Any]],
) -> CardData:
    """The card of a run over documents.

    Args:
        tables: test split -> its `recurrence_table`.
        batch_size: sequences of an optimiser step, over all processes.
        prompt: the text that the usage section continues.
    """
    metric, sizes = text_metric(tables), {"step_tokens": batch_size * data.segment_length, "changes": facts.changes}
    return run_card(
        *(model, data, report, facts, tables, plots),
        claim=partial(headline, metric=metric),
        metric=metric,
        benchmark=document_benchmark(data, report.dataset_id, facts.start),
        example=Example(prompt),
        limitations=document_limitations(data, tables),
        results=split_results(tables, report, data, model.config, facts.steps, **sizes),
        script=DOCUMENT_SCRIPT,
    )
