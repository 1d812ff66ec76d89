"""The model card of a checkpoint: README.md and its metadata, rendered from `results.json` by one template."""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jinja2
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml

from ..analysis.halting import all_stacks
from ..analysis.losses import carry_effect
from ..benchmarks.tasks import task_id
from ..registry import ARCHITECTURES
from ..utils import Json, bits, number, one_line, percent, template
from . import findings

TEMPLATE = Path(__file__).with_name("card_template.md")
# kinds of figures that show the tokens of an example
QUOTING = ("heat_map", "depth", "memory", "routing", "picture", "halting_plot")
RESETS = {"document": "nothing", "segment": "everything", "state": "the state vectors alone"}
LICENCE = ("license", "license_name", "license_link")
# what results of another form than a card's give rise to
RENDERING_ERRORS = (LookupError, TypeError, AttributeError, ArithmeticError, jinja2.TemplateError)

CLASSIFICATION, GENERATION, TRANSLATION = "text-classification", "text-generation", "translation"
TOKEN_CLASSIFICATION, FILL_MASK = "token-classification", "fill-mask"
QUESTION_ANSWERING, MULTIPLE_CHOICE = "question-answering", "multiple-choice"


@dataclass(frozen=True)
class Metric:
    """A measure of a card's tables.

    Attributes:
        label: for a heading.
        examples: what is counted, in the plural.
        meaning: a sentence, where the label needs one.
        key: of the value in a table.
    """

    label: str
    examples: str
    meaning: str = ""
    key: str = "accuracy"

    @property
    def in_bits(self) -> bool:
        """Whether it is a loss, of which less is better, rather than a share of right answers."""
        return self.key.startswith("bits")

    @property
    def baseline_key(self) -> str:
        """The key of the best constant answer's value in a table."""
        return f"constant_{self.key}" if self.in_bits else "majority_baseline"


# pipeline tag -> the Auto class of its models; the Hub has no other name for sequence-to-sequence tasks
TASKS = {
    CLASSIFICATION: "AutoModelForSequenceClassification",
    GENERATION: "AutoModelForCausalLM",
    TRANSLATION: "AutoModelForSeq2SeqLM",
    TOKEN_CLASSIFICATION: "AutoModelForTokenClassification",
    FILL_MASK: "AutoModelForMaskedLM",
    QUESTION_ANSWERING: "AutoModelForQuestionAnswering",
    MULTIPLE_CHOICE: "AutoModelForMultipleChoice",
}
METRICS = {
    "accuracy": Metric("Accuracy", "examples"),
    "exact_labels": Metric("Exact labels", "examples", "All labels of an example are predicted, and no other."),
    "r_squared": Metric("R²", "examples", "The share of the labels' variance that is explained; 0% for their mean."),
    "last_read_accuracy": Metric(
        "Last-read accuracy", "strings", "The last read of a string is answered with the last bit written."
    ),
    "word_accuracy": Metric("Accuracy", "words", "A word has its right label."),
    "masked_accuracy": Metric("Accuracy", "masked tokens", "A masked token is the likeliest one."),
    "span_exact_match": Metric(
        "Exact match", "questions", "The answer is a true one, but for case, punctuation and articles, as in SQuAD."
    ),
    "choice_accuracy": Metric("Accuracy", "questions"),
    "exact_match": Metric("Exact match", "pairs", "The whole target is generated exactly."),
    "bleu": Metric("BLEU", "pairs", "BLEU of the whole split, in points of 100.", "bleu"),
    "bits_per_byte": Metric(
        "Bits per byte",
        "documents",
        "Bits that predict a document, divided by its bytes; fewer are better.",
        "bits_per_byte",
    ),
    "bits_per_token": Metric(
        "Bits per token",
        "documents",
        "Bits that predict a document, divided by its tokens; fewer are better.",
        "bits_per_token",
    ),
}


def render_card(results: Json) -> str:
    """Text of README.md. The same results always give the same text.

    Raises:
        ValueError: they are not what this version of the package writes.
    """
    try:
        metadata = card_metadata(results).to_yaml()
        return str(ModelCard(f"---\n{metadata}\n---\n\n{card_text(results)}"))
    except RENDERING_ERRORS as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(f"results.json cannot be rendered ({reason}): write it again by the run") from error


def card_text(results: Json) -> str:
    """The card below its metadata."""
    metric, splits = METRICS[results["metric"]], results["splits"]
    halted = {} if metric.in_bits else {name: table for name, table in splits.items() if not table["fixed_depth"]}
    halted |= {f"{name}, decoder": table["decoder"] for name, table in halted.items() if table.get("decoder")}
    measured = partial(value_text, metric)
    return template(TEMPLATE, **FILTERS).render(
        results=results,
        architecture=ARCHITECTURES[results["model"]["type"]].prefix,
        auto_class=TASKS.get(results["task"], "AutoModel"),
        metric=metric,
        measured=measured,
        spread=partial(spread, metric),
        halted=halted,
        adaptivity=findings.adaptivity(results),
        findings=findings,
        limitations=[*findings.limits(results, metric.in_bits, measured), *results["limitations"]],
    )


def card_metadata(results: Json) -> ModelCardData:
    """The metadata of a card: licence, tags, data, evaluation results."""
    model, data, base = results["model"], results["data"] or {}, results["model"]["base"]
    capabilities = ARCHITECTURES[model["type"]].config_class().capabilities
    tags = {
        "hf_recurrent": True,
        "custom_code": True,
        "adaptive-computation": findings.is_adaptive(results),
        "recurrent-depth": capabilities.shared_block,
        "chunk-recurrence": capabilities.reads in ("chunks", "blocks"),
        model["type"]: True,
        data.get("name"): bool(data),
    }
    licence: dict = {"license": "unknown"}
    if base is not None:
        licence |= {name: base[name] for name in LICENCE if base[name]}
    elif model["license"] or data.get("seed", 0) is not None:
        licence = {"license": model["license"] or "apache-2.0"}
    metric = METRICS[results["metric"]]
    scores = [
        EvalResult(
            task_type=results["task"],
            dataset_type=data["dataset_id"] or data["name"],
            dataset_name=f"{data['name']} ({config})",
            dataset_config=config,
            dataset_split=split,
            dataset_revision=data["dataset_revision"],
            metric_type=results["metric"],
            metric_name=metric.label,
            metric_value=table[metric.key],
        )
        for config, split, table in places(results)
    ]
    measured = {"metrics": [results["metric"]], "model_name": results["title"], "eval_results": scores}
    return ModelCardData(
        language=data.get("language") or None,
        **licence,
        library_name="transformers",
        pipeline_tag=results["task"],
        tags=[tag for tag, applies in tags.items() if applies],
        datasets=[data["dataset_id"]] if data.get("dataset_id") else None,
        base_model=base["name"] if base is not None and "/" in base["name"] else None,
        **(measured if scores else {}),
    )


def places(results: Json) -> Iterator[tuple[str, str, Json]]:
    """Config, split and table of all results: splits of other configs than the one trained on are 'config/split'."""
    for name, table in results["splits"].items():
        config, _, split = name.rpartition("/")
        yield config or results["data"]["config"], split, table


def eval_results_file(results: Json) -> dict[str, str]:
    """Path and content of the evaluation results for the Hub's data set, one entry per split.

    The format has no field for a configuration or split: both go into the task id. Empty where the data have no
    repository on the Hub.
    """
    data, metric = results["data"], METRICS[results["metric"]]
    if data is None or data["dataset_id"] is None:
        return {}
    entries = [
        EvalResultEntry(
            dataset_id=data["dataset_id"],
            task_id=task_id(config, split),
            value=float(table[metric.key]),
            dataset_revision=data["dataset_revision"],
            date=results["date"],
            notes=f"{metric.label}, best constant answer {table[metric.baseline_key]:.4f}",
        )
        for config, split, table in places(results)
    ]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", data["name"])
    content = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
    return {f".eval_results/{name}.yaml": content}


def value_text(metric: Metric, value: float) -> str:
    """A value of a metric."""
    if metric.in_bits:
        return bits(value)
    return number(value, 1) if metric.key == "bleu" else percent(value)


def spread(metric: Metric, values: list[float]) -> str:
    """The standard deviation of several runs."""
    deviation = statistics.stdev(values)
    return f"{deviation:.3f}" if metric.in_bits else f"{deviation * (1 if metric.key == 'bleu' else 100):.1f}"


FILTERS = {
    "effect": carry_effect,
    "lowest_harmless": findings.lowest_harmless,
    "reset": RESETS.__getitem__,
    "together": all_stacks,
}


def auto_class_of(config: Json) -> str | None:
    """The Auto class of the architecture that one of our `config.json` files names; None where it names none.

    Raises:
        ValueError: `model_type` is not of this package.
    """
    model_type = config.get("model_type")
    if model_type not in ARCHITECTURES:
        raise ValueError(f"model_type is {model_type!r}: expected one of {', '.join(ARCHITECTURES)}")
    family, named = ARCHITECTURES[model_type], config.get("architectures") or []
    return next((auto for auto, suffix in family.heads.items() if named == [family.prefix + suffix]), None)


def task_for(auto_class: str | None) -> str | None:
    """The task of the models that an Auto class makes; None where it has none."""
    return next((task for task, name in TASKS.items() if name == auto_class), None)
