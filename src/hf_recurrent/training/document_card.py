"""The card of a finished run over long documents, from its recipe and the tables of its test splits."""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from ..hub import CardData
from ..hub.card import Benchmark, Compared, Example, Plot, SplitResult
from ..hub.tasks import METRICS, task_for
from ..registry import ARCHITECTURES
from .arguments import ReportArguments
from .card import PAPERS, RunFacts, benchmark_facts, chunks_of, training_facts
from .document_arguments import DocumentArguments
from .objectives import DOCUMENT_SCRIPT, LANGUAGE_MODELLING
from .paper import document_bits

# letters of a document that a prompt shows
PROMPT_LETTERS = 48
# tokenizers whose tokens are nobody else's, so that bits are told by byte
OWN_TOKENIZERS = (None, "bytes", "bpe")


def document_claim(title: str, split: str, table: Mapping[str, Any], metric: str) -> str:
    """How well the model predicts, in one sentence."""
    measure = METRICS[metric]
    return (
        f"{title}: {table[measure.key]:.3f} {measure.label.lower()} on {table['documents']:,} documents of the "
        f"`{split}` split ({table['tokens']:,} tokens), where the best constant prediction needs "
        f"{table[measure.constant_key]:.3f}."
    )


def document_limitations(data: DocumentArguments, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """What a reader must not expect."""
    lines = [
        f"It has read the documents of configuration `{data.benchmark_config}` alone, and continues texts of their "
        "kind: what it writes may be wrong.",
        "One run with one seed: no spread over seeds is known.",
    ]
    few = [f"`{name}` ({table['documents']})" for name, table in tables.items() if table["documents"] < 30]
    if few:
        lines.append(f"Few documents are tested on, so that others may give other numbers: {', '.join(few)}.")
    if data.max_train_samples is not None:
        lines.append(f"It was trained on {data.max_train_samples:,} of the documents only.")
    return lines


def document_benchmark(data: DocumentArguments, dataset_id: str | None) -> Benchmark:
    """The benchmark with its parameters, and as which tokens it was read."""
    facts = benchmark_facts(data, dataset_id)
    parameters = dict(facts.parameters)
    if data.data_dir is not None:
        # not under their own names: nobody else has the files
        parameters = {"documents": "files of a folder", "chosen by": data.benchmark_params or "the defaults"}
    parameters["tokenizer"] = data.tokenizer or "bytes"
    if data.tokenizer_vocab_size is not None:
        parameters["tokenizer_vocab_size"] = data.tokenizer_vocab_size
    return Benchmark(**{**vars(facts), "parameters": parameters})


def prompt_of(text: str) -> str:
    """How a document begins, up to the end of a word."""
    beginning = text.lstrip()[:PROMPT_LETTERS]
    return beginning.rpartition(" ")[0].rstrip() or beginning


def document_card(
    model: Any,
    data: DocumentArguments,
    report: ReportArguments,
    tables: Mapping[str, dict[str, Any]],
    facts: RunFacts,
    *,
    rows: int,
    prompt: str,
    plots: list[Plot],
    compared: Callable[[str], list[Compared]] = lambda _: [],
) -> CardData:
    """Everything the card of this run says.

    Args:
        tables: test split -> its `recurrence_table`.
        rows: of an optimiser step, over all processes.
        prompt: what the usage section continues.
        compared: the card's metric -> other runs on the same documents.
    """
    config = model.config
    family = ARCHITECTURES[config.model_type]
    title = report.title or f"{family.prefix} on {data.benchmark}"
    metric = "bits_per_byte" if data.tokenizer in OWN_TOKENIZERS else "bits_per_token"
    split, table = next(iter(tables.items()))
    bits = document_bits(report, data, config, facts.steps, rows, facts.changes)
    return CardData(
        model_name=title,
        repo_id=facts.hub_model_id or facts.name,
        family=config.model_type,
        claim=document_claim(title, split, table, metric),
        notice=report.notice,
        task=task_for(LANGUAGE_MODELLING.auto_class),
        metric=metric,
        max_steps=config.num_hidden_layers,
        halting=table["halting"],
        chunks=chunks_of(config),
        paper=PAPERS[family.paper],
        benchmark=document_benchmark(data, report.dataset_id),
        training=training_facts(model, report, facts, DOCUMENT_SCRIPT),
        results=[
            SplitResult(name, found, paper_bits=bits if name == "test" else None) for name, found in tables.items()
        ],
        example=Example(prompt),
        limitations=document_limitations(data, tables),
        plots=plots,
        compared=compared(metric),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    )
