"""The model card of a checkpoint: README.md and its metadata, rendered from `results.json` by one template."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml

from .. import templating
from ..analysis.recurrence import carry_effect
from ..analysis.sweep import all_stacks
from ..benchmarks.tasks import task_id
from ..registry import ARCHITECTURES
from .findings import (
    adaptivity,
    best_fixed_depth,
    certifies_depths,
    forgetting,
    has_exit,
    is_adaptive,
    limits,
    lowest_harmless,
    measured_before,
)
from .tasks import FEATURES, METRICS, OTHER_ANSWERS, TASKS, Metric

TEMPLATE = Path(__file__).with_name("card_template.md")
# kind of a figure -> what it shows, and the section that shows it
CAPTIONS = {
    "calibrated_steps": ("Mean depth of the calibrated exit by {column}, and its accuracy", "depth"),
    "difficulty": ("Depth and accuracy by {column}", "depth"),
    "stacks": ("Depth of encoder and decoder by {column}", "depth"),
    "steps": ("How many depth steps were executed", "halting"),
    "mass": ("Mean halting mass of each depth: the weights with which the output mixes the states", "halting"),
    "token_steps": ("Depth by {column} of the token", "halting"),
    "depth": ("Depth of each token of one string; answers are predicted from the marked ones", "halting"),
    "memory": ("Memory slots that each chunk of one string reads, and changes", "halting"),
    "heat_map": ("One example: where the halting mass of each unit is, and when it stopped", "halting"),
    "threshold": ("Cost and saving of a lower halting threshold", "halting"),
    "loss_position": ("Loss by how many tokens of the document come before", "documents"),
    "gate_openness": ("Share of each state unit that an update forgets", "documents"),
    "trade_off": ("Accuracy at each halting threshold against executed steps and time", "sweep"),
    "halting_plot": ("Remaining halting mass before each step, and where each unit stops", "sweep"),
    "expert_usage": ("How often each expert serves a token, step by step", "experts"),
    "routing": ("Attention between all tokens of one test example at each step", "examples"),
    "picture": ("One test example: its steps, and what the readout attends to", "examples"),
}
# kinds of figures that show the tokens of an example
QUOTING = ("heat_map", "depth", "memory", "routing", "picture", "halting_plot")
RESETS = {"document": "nothing", "segment": "everything", "state": "the state vectors alone"}
PERPLEXITIES = ("word_perplexity", "perplexity")
# what results of another form than a card's give rise to
RENDERING_ERRORS = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, jinja2.TemplateError)


def render_card(results: Mapping[str, Any]) -> str:
    """Text of README.md. The same results always give the same text.

    Raises:
        ValueError: they are not what this version of the package writes.
    """
    try:
        metadata = card_metadata(results).to_yaml()
        return str(ModelCard(f"---\n{metadata}\n---\n\n{card_text(results)}"))
    except RENDERING_ERRORS as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"results.json cannot be rendered ({type(error).__name__}: {reason}): write it again by the run"
        ) from error


def card_text(results: Mapping[str, Any]) -> str:
    """The card below its metadata."""
    metric, calibration, model = METRICS[results["metric"]], results["calibration"], results["model"]
    task, splits, example = TASKS.get(results["task"], FEATURES), results["splits"], results["example"]
    adaptive, measured = is_adaptive(results), partial(value_text, metric)
    figures: dict[str, list[dict[str, Any]]] = {section: [] for _, section in CAPTIONS.values()}
    for figure in results["figures"]:
        text, section = CAPTIONS[figure["kind"]]
        caption = ", ".join(
            filter(None, (text.format(**figure), "{" not in text and figure["column"], figure["split"]))
        )
        figures[section].append({**figure, "caption": caption})
    answer = adaptivity(results)
    # one is shown, and the others are folded
    columns = [row["column"] for row in answer["rows"]]
    figures["depth"].sort(key=lambda figure: (figure["kind"] != "calibrated_steps", figure["column"] not in columns))
    shown = figures["depth"][: 1 if adaptive else 0]
    figures["halting"] = [*figures["depth"][len(shown) :], *figures["halting"]]
    halted = {} if metric.in_bits else {name: table for name, table in splits.items() if not table["fixed_depth"]}
    halted |= {f"{name}, decoder": table["decoder"] for name, table in halted.items() if table.get("decoder")}
    return templating.template(TEMPLATE, **FILTERS).render(
        results=results,
        **{name: results[name] for name in ("model", "data", "training", "splits", "calibration", "example")},
        architecture=ARCHITECTURES[model["type"]].prefix,
        auto_class=task.auto_class,
        answer=OTHER_ANSWERS.get(results["metric"], task.answer),
        has_pipeline=task.has_pipeline,
        texts=[templating.literal(text) for text in (example["text"], example["text_pair"]) if text is not None],
        generation=generation_options(results),
        adaptive=adaptive,
        metric=metric,
        measured=measured,
        spread=partial(spread, metric),
        figures=figures,
        shown=shown,
        halted=halted,
        notes={split: list(further_scores(table, metric)) for split, table in splits.items()},
        adaptivity=answer,
        fixed=best_fixed_depth(calibration) if has_exit(calibration) else None,
        certified=has_exit(calibration) and certifies_depths(calibration),
        limitations=[*limits(results, metric.in_bits, measured), *results["limitations"]],
        outdated=[split for split, table in splits.items() if measured_before(table, calibration)],
        training_facts=training_facts(results),
    )


def generation_options(results: Mapping[str, Any]) -> str:
    """The arguments of `generate` with which a model writes."""
    given, chunks = results["model"]["generation"], results["model"]["chunks"]
    if given is None:
        most = 64 if METRICS[results["metric"]].in_bits else 1
        caches = chunks is None or chunks.get("chunking", "fixed") == "fixed"
        return f"max_new_tokens={most}, do_sample=False{'' if caches else ', use_cache=False'}"
    names = ("max_new_tokens", *(("num_beams", "length_penalty") if given["num_beams"] > 1 else ()))
    return ", ".join(f"{name}={given[name]}" for name in names)


def further_scores(table: Mapping[str, Any], metric: Metric) -> Iterator[str]:
    """What else was measured on a split, and what the paper reports, in words."""
    for name, value in table.get("scores", {}).items():
        of_class = f" of {table['positive_label']}" if name == "f1" and "positive_label" in table else ""
        yield f"{name.replace('_', ' ')}{of_class} {templating.number(value, 3)}"
    if metric.in_bits:
        size = f"{table['segment_length']:,} tokens"
        blocks = {"blocks": f"blocks of {size}, each without what is before it", "documents": f"{size} of a document"}
        yield f"{table['tokens']:,} tokens, read in {blocks.get(table.get('texts'), f'segments of {size}')}"
        yield f"{table['bits_per_token']:.3f} bits per token"
        yield from (f"{name.replace('_', ' ')} {table[name]:,.2f}" for name in PERPLEXITIES if table.get(name))
        yield from (forgetting(gates) for gates in (table.get("gates"),) if gates)
    if metric.key == "bleu":
        yield f"exact match {templating.percent(table['accuracy'])}"
    if table.get("labelled_tokens"):
        yield f"accuracy of all labelled tokens {templating.percent(table['labelled_tokens']['accuracy'])}"
    paper = table.get("paper", {})
    for name in ("accuracy", "mean", "std"):
        if name in paper:
            yield f"the paper's {'median' if name == 'accuracy' and 'mean' in paper else name} {paper[name]:.1%}"
    yield from (f"the paper's {name} {templating.number(paper[name])}" for name in ("bleu", "bits") if name in paper)


def training_facts(results: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of the table on training."""
    training, base = results["training"], results["model"]["base"]
    if training is None:
        return {}
    return {
        "Recipe": training["recipe"],
        "Fine-tuned from": base and f"{base['name']}, licence {base['license_name'] or base['license'] or 'not named'}",
        "Reproduces": training["reproduces"],
        "Depth": training["depth"],
        "Seed": str(training["seed"]),
        "Optimizer steps": templating.number(training["steps"]),
        "Wall time": templating.duration(training["seconds"]),
        "Hardware": training["hardware"],
        "Versions": ", ".join(f"{package} {version}" for package, version in training["versions"].items()),
    }


def card_metadata(results: Mapping[str, Any]) -> ModelCardData:
    """The metadata of a card: licence, tags, data, evaluation results."""
    model, data, base = results["model"], results["data"], results["model"]["base"]
    capabilities = ARCHITECTURES[model["type"]].config_class().capabilities
    own = data is not None and data["seed"] is None
    tags = {
        "hf_recurrent": True,
        "custom_code": True,
        "adaptive-computation": is_adaptive(results),
        "recurrent-depth": capabilities.shared_block,
        "chunk-recurrence": capabilities.reads in ("chunks", "blocks"),
        model["type"]: True,
        **({} if data is None else {data["name"]: True}),
    }
    licence: dict[str, Any] = {"license": model["license"] or ("unknown" if own else "apache-2.0")}
    if base is not None:
        licence = {name: base[name] for name in ("license", "license_name", "license_link") if base[name]}
        licence.setdefault("license", "unknown")
    measured = {}
    if results["splits"]:
        found = [eval_result(results, split) for split in results["splits"]]
        measured = {"metrics": [results["metric"]], "model_name": results["title"], "eval_results": found}
    return ModelCardData(
        language=(data or {}).get("language") or None,
        **licence,
        library_name="transformers",
        pipeline_tag=results["task"],
        tags=[tag for tag, applies in tags.items() if applies],
        datasets=[data["dataset_id"]] if data and data["dataset_id"] else None,
        base_model=base["name"] if base is not None and "/" in base["name"] else None,
        **measured,
    )


def eval_result(results: Mapping[str, Any], name: str) -> EvalResult:
    data, metric = results["data"], METRICS[results["metric"]]
    config, split = place_of(data, name)
    return EvalResult(
        task_type=results["task"],
        dataset_type=data["dataset_id"] or data["name"],
        dataset_name=f"{data['name']} ({config})",
        dataset_config=config,
        dataset_split=split,
        dataset_revision=data["dataset_revision"],
        metric_type=results["metric"],
        metric_name=metric.label,
        metric_value=results["splits"][name][metric.key],
    )


def place_of(data: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Config and split of results: splits of other configs than the one trained on are called 'config/split'."""
    config, _, split = name.rpartition("/")
    return config or data["config"], split


def eval_results_file(results: Mapping[str, Any]) -> tuple[str, str] | None:
    """Path and content of the evaluation results for the Hub's data set, one entry per split.

    The format has no field for a configuration or split: both go into the task id. None where the data have no
    repository on the Hub.
    """
    data, metric = results["data"], METRICS[results["metric"]]
    if data is None or data["dataset_id"] is None:
        return None
    entries = [
        EvalResultEntry(
            dataset_id=data["dataset_id"],
            task_id=task_id(*place_of(data, name)),
            value=float(table[metric.key]),
            dataset_revision=data["dataset_revision"],
            date=results["date"],
            notes=f"{metric.label}, best constant answer {table[metric.baseline_key]:.4f}",
        )
        for name, table in results["splits"].items()
    ]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", data["name"])
    content = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
    return f".eval_results/{name}.yaml", content


def spread(metric: Metric, values: Sequence[float]) -> str:
    """The standard deviation of several runs."""
    deviation = statistics.stdev(values)
    return f"{deviation:.3f}" if metric.in_bits else f"{deviation * (1 if metric.key == 'bleu' else 100):.1f}"


def value_text(metric: Metric, value: float) -> str:
    """A value of a metric."""
    if metric.in_bits:
        return templating.bits(value)
    return templating.number(value, 1) if metric.key == "bleu" else templating.percent(value)


def beginning(text: str, most: int = 60) -> str:
    """As much of a text as a narrow column of a table shows."""
    return text if len(text) <= most else text[: most - 1] + "…"


FILTERS = {
    "beginning": beginning,
    "effect": carry_effect,
    "lowest_harmless": lowest_harmless,
    "reset": RESETS.__getitem__,
    "together": all_stacks,
}
