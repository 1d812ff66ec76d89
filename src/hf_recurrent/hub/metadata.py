"""The machine-readable half of a card: YAML front matter and evaluation results."""

import re
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml

from ..files import plain
from ..registry import ARCHITECTURES
from .card_data import CardData, SplitResult
from .findings import has_exit
from .tasks import METRICS, TASKS, Metric

EN_DASH = "\u2013"


def front_matter(data: CardData) -> str:
    """YAML between the `---` lines of README.md: licence, tags, data, results, and our `hf_recurrent` block."""
    capabilities = ARCHITECTURES[data.family].config_class().capabilities
    tags = {
        "hf_recurrent": True,
        "custom_code": True,
        "adaptive-computation": data.halting != "none" or has_exit(data.calibration),
        "recurrent-depth": capabilities.shared_block,
        "chunk-recurrence": capabilities.reads in ("chunks", "blocks"),
        data.family: True,
        data.benchmark.name: True,
    }
    metadata = ModelCardData(
        # benchmarks are generated or free; whether weights learned of one's own data are, only their owner can say
        **(
            {"license": data.license or ("unknown" if data.benchmark.is_own else "apache-2.0")}
            if data.base_model is None
            else data.base_model.metadata()
        ),
        library_name="transformers",
        pipeline_tag=data.task,
        tags=[tag for tag, applies in tags.items() if applies],
        datasets=[data.benchmark.dataset_id] if data.benchmark.dataset_id else None,
        metrics=[data.metric],
        model_name=data.model_name,
        eval_results=[_eval_result(data, result) for result in data.results],
        hf_recurrent={"family": data.family, **_summaries(data)},
    )
    return dumped(without_none(plain(metadata.to_dict()))).strip()


def _eval_result(data: CardData, result: SplitResult) -> EvalResult:
    benchmark, metric = data.benchmark, METRICS[data.metric]
    config, split = place_of(data, result)
    return EvalResult(
        task_type=data.task,
        task_name=TASKS[data.task].title,
        dataset_type=benchmark.dataset_id or benchmark.name,
        dataset_name=f"{benchmark.name} ({config})",
        dataset_config=config,
        dataset_split=split,
        dataset_revision=benchmark.dataset_revision,
        metric_type=data.metric,
        metric_name=metric.label,
        metric_value=result.table[metric.key],
    )


def _summaries(data: CardData) -> dict[str, Any]:
    halting = {"strategy": data.halting, "max_depth": data.max_depth}
    if data.of_documents:
        return {"halting": halting, "documents": {item.split: _document_summary(item.table) for item in data.results}}
    splits = {result.split: _halting_summary(result.table) for result in data.results}
    return {"halting": {**halting, "splits": splits}}


def place_of(data: CardData, result: SplitResult) -> tuple[str, str]:
    """Config and split of a result: splits of other configs than the one trained on are called 'config/split'."""
    config, _, split = result.split.rpartition("/")
    return config or data.benchmark.config, split


def _halting_summary(table: dict[str, Any]) -> dict[str, Any]:
    related = {column: item["spearman"] for column, item in table["slices"].items()}
    return {
        "examples": table["n"],
        "accuracy": table["accuracy"],
        "threshold": table["threshold"],
        "steps": table["steps"],
        "ponder_cost": table["ponder_cost"],
        "forced_halt_rate": table["forced_halt_rate"],
        "spearman": {column: value for column, value in related.items() if value is not None} or None,
    }


DOCUMENT_FACTS = ("documents", "tokens", "bits_per_token", "bits_per_byte", "word_perplexity", "mean_steps")


def _document_summary(table: dict[str, Any]) -> dict[str, Any]:
    resets = [row for row in table["carries"] if row["difference"] is not None]
    return {
        **{name: table[name] for name in DOCUMENT_FACTS},
        "segment_length": table["segment_length"],
        "more_bits_per_token_when_reset": {row["carry"]: row["difference"] for row in resets} or None,
    }


def results_path(data: CardData) -> str:
    """The path of `eval_results_yaml` in a checkpoint's folder, whatever the benchmark is named."""
    return f".eval_results/{re.sub(r'[^A-Za-z0-9_-]+', '-', data.benchmark.name)}.yaml"


def eval_results_yaml(data: CardData) -> str | None:
    """Content of the file at `results_path`, one entry per split and per difficulty bucket.

    The format has no field for a configuration, split or difficulty: all of it goes into the task id. None
    where the benchmark has no repository on the Hub to refer to.
    """
    benchmark = data.benchmark
    if benchmark.dataset_id is None:
        return None
    # all benchmarks are slow to import, and only rendering a card needs them
    from ..benchmarks.tasks import task_id

    metric, entries = METRICS[data.metric], []
    for result in data.results:
        whole = task_id(*place_of(data, result))
        parts = [(whole, result.table)]
        for column, item in result.table.get("slices", {}).items():
            parts += [(f"{whole}/{column}={row['value'].replace(EN_DASH, '-')}", row) for row in item["rows"]]
        entries += [
            EvalResultEntry(
                dataset_id=benchmark.dataset_id,
                task_id=task,
                value=float(row[metric.key]),
                dataset_revision=benchmark.dataset_revision,
                date=data.date,
                notes=_notes(metric, row),
            )
            for task, row in parts
            # a slice has no BLEU
            if metric.key in row
        ]
    return dumped(plain(eval_result_entries_to_yaml(entries)))


def _notes(metric: Metric, row: dict[str, Any]) -> str:
    name, constant = metric.label.lower(), f"{row[metric.constant_key]:.4f}"
    if metric.in_bits:
        return f"{name}, lower is better, {row['documents']} documents, best constant prediction {constant}"
    return f"{name}, n={row['n']}, majority class {constant}"


def without_none(value: Any) -> Any:
    """Nested data without the keys whose value is None."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_none(item) for item in value]
    return value


def dumped(value: Any) -> str:
    """Nested data as YAML."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
