"""The card of a finished run over long documents, from its recipe and the tables of its test splits."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from safetensors import safe_open

from ..analysis.tables import RECURRENCE_FILE
from ..hub import CardData
from ..hub.card import Benchmark, Compared, Example, Plot
from ..hub.tasks import METRICS, task_for
from .arguments import DocumentArguments, ReportArguments
from .card import (
    RunFacts,
    benchmark_facts,
    chunk_settings,
    common_fields,
    history,
    measured_on_validation,
    split_results,
    without_folders,
)
from .objectives import DOCUMENT_SCRIPT, LANGUAGE_MODELLING
from .run_folder import digest, read_run

# maximum length of a prompt, in letters
PROMPT_LETTERS = 48
# tokenizers whose tokens are nobody else's, so that bits are reported per byte
OWN_TOKENIZERS = (None, "bytes", "bpe")
# settings that decide the documents and the tokenizer of an evaluation
SAME_DOCUMENTS = (
    *("benchmark_config", "benchmark_params", "tokenizer", "tokenizer_vocab_size", "vocab_size", "segment_length"),
    *("train_file", "validation_file", "test_file", "dataset_name", "dataset_config_name", "validation_split"),
    *("test_split", "text_column", "validation_split_percentage", "keep_linebreaks", "max_eval_samples"),
)
# counts of a table, by which files that changed between two runs are noticed
COUNTS = ("documents", "tokens", "bytes")


def headline(title: str, split: str, table: Mapping[str, Any], metric: str) -> str:
    """How well the model predicts, in one sentence."""
    measure = METRICS[metric]
    return (
        f"{title}: {table[measure.key]:.3f} {measure.label.lower()} on {table['documents']:,} documents of the "
        f"`{split}` split ({table['tokens']:,} tokens), where the best constant prediction needs "
        f"{table[measure.constant_key]:.3f}."
    )


def document_limitations(data: DocumentArguments, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """Limitations that a reader must know."""
    read = f"configuration `{data.benchmark_config}`" if data.own is None else f"`{data.own.name}`"
    lines = [
        f"It has read the documents of {read} alone, and continues texts of their kind: what it writes may be wrong.",
        *([] if data.own is None else measured_on_validation(tables)),
        "One run with one seed: no spread over seeds is known.",
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
    return Benchmark(**{**vars(facts), "parameters": parameters})


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
    plots: list[Plot],
    compared: Callable[[str], list[Compared]] = lambda _: [],
) -> CardData:
    """The card of a run over documents.

    Args:
        tables: test split -> its `recurrence_table`.
        batch_size: sequences of an optimiser step, over all processes.
        prompt: the text that the usage section continues.
        compared: the card's metric -> other runs on the same documents.
    """
    config = model.config
    metric = "bits_per_byte" if data.tokenizer in OWN_TOKENIZERS else "bits_per_token"
    split, table = next(iter(tables.items()))
    fields = common_fields(model, data, report, facts, table, DOCUMENT_SCRIPT)
    step_tokens = batch_size * data.segment_length
    return CardData(
        **{**fields, "benchmark": document_benchmark(data, report.dataset_id, facts.start)},
        claim=headline(fields["model_name"], split, table, metric),
        task=task_for(LANGUAGE_MODELLING.auto_class),
        metric=metric,
        chunks=chunk_settings(config),
        results=split_results(
            tables, report, data, config, facts.steps, step_tokens=step_tokens, changes=facts.changes
        ),
        example=Example(prompt),
        limitations=[*document_limitations(data, tables), *history(facts, config)],
        plots=plots,
        compared=compared(metric),
    )


def compared_runs(
    folders: Sequence[str], settings: dict[str, Any], tables: Mapping[str, dict[str, Any]], metric: str
) -> list[Compared]:
    """Results of finished runs on their test splits; runs of one title are runs of one model.

    Args:
        folders: of runs of `run_clm_accelerate.py`.
        settings: of the run they are compared with.
        tables: test split -> its `recurrence_table`, of that run.
        metric: key of the value in a `recurrence_table`.

    Raises:
        ValueError: a folder holds no finished run, this very one again, or one that read other documents.
    """
    models: dict[str, Compared] = {}
    for folder in map(Path, folders):
        run = read_run(folder)
        statistics = folder / RECURRENCE_FILE
        if run is None or not run["finished"] or not statistics.is_file():
            raise ValueError(
                f"compare_with: {folder} holds no finished run over documents: let it finish, then give the same "
                "command again"
            )
        for name in SAME_DOCUMENTS:
            theirs, ours = run["settings"].get(name), settings.get(name)
            if theirs != ours:
                raise ValueError(f"compare_with: {folder} has {name} {theirs!r}, this run {ours!r}: compare equals")
        if run["digest"] == digest(settings):
            raise ValueError(f"compare_with: {folder} holds this very run, with the same seed: leave it out")
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        title = recipe.get("title") or folder.name
        model = models.setdefault(
            title, Compared(title, num_parameters(folder), {}, same_model=title == settings.get("title"))
        )
        for split, table in json.loads(statistics.read_text(encoding="utf-8"))["splits"].items():
            counts = [{name: one.get(name) for name in COUNTS} for one in (table, tables.get(split, {}))]
            if counts[0] != counts[1]:
                raise ValueError(f"compare_with: {folder} read {counts[0]} as {split}, this run {counts[1]}")
            model.values.setdefault(split, []).append(table[metric])
    return list(models.values())


def num_parameters(folder: Path) -> int:
    """Parameters of a checkpoint; tied ones are stored once."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as weights:
            names = weights.keys()
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    return total


def check_compared_runs(folders: Sequence[str]) -> None:
    """Raise a ValueError for a folder where no run has begun."""
    for folder in map(Path, folders):
        if read_run(folder) is None:
            raise ValueError(f"compare_with: {folder} holds no run: give the output_dir of one")
