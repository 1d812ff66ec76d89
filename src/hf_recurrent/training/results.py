"""The results of a finished run, as `hub.results` keeps them, from its data, settings and evaluation."""

import datetime
import importlib.metadata
import json
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from .. import __version__
from ..benchmarks.registry import get_benchmark
from ..data.loading import Data
from ..hub.results import EMPTY, NO_EXAMPLE, SECTION_KINDS, stored_digest
from ..models.common.depth_objectives import depth_bounds
from ..recipes import name_of, recipe_named
from ..registry import ARCHITECTURES
from ..tasks import name_of as name_of_task
from ..tasks.base import Split, Task
from .arguments import ReportArguments
from .evaluation import Evaluation
from .paper import PaperRow, paper_with_title
from .recipes import recipe_path
from .selection import Selection, describe_selection

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "numpy")
# flags whose values are places on the machine of the run, where the result goes, and secrets
DATA = "data_dir"
LEFT_OUT = (
    *("output_dir", DATA, "cache_dir", "resume_from_checkpoint", "logging_dir", "push_to_hub", "hub_model_id"),
    *("hub_private_repo", "hub_revision", "hub_token", "token", "hub_strategy"),
)
# settings by which a user's own data are read
READING = (
    *(
        "task",
        "tokenizer",
        "vocab_size",
        "max_seq_length",
        "max_source_length",
        "max_target_length",
        "max_train_samples",
    ),
    *("max_eval_samples", "block_size", "pack", "mlm_probability", "label_delimiter"),
    *("doc_stride", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold"),
)


@dataclass(frozen=True)
class RunFacts:
    """The facts of a training run.

    Attributes:
        argv: the command line.
        name: of the output folder; `hub_model_id` of the repository.
        processes: in parallel.
        seconds: of training.
        steps: optimizer steps.
        changes: what flags changed of the recipe, from `changes_by_flags`.
        notes: further sentences on how it was made.
        base_model: the checkpoint of others that it began with, as `hub.base_model.read_base_model`.
        selection: how the checkpoint was chosen.
        averaged: optimizer steps of the checkpoints that it is the mean of.
        trained_depth: depth steps of training, if they are not those of the checkpoint.
        step_tokens: tokens of an optimizer step, if they are always as many.
    """

    argv: Sequence[str]
    name: str
    hub_model_id: str | None
    seed: int
    processes: int
    device: torch.device
    seconds: float
    steps: int
    changes: Sequence[str] = ()
    notes: Sequence[str] = ()
    base_model: Mapping[str, Any] | None = None
    selection: Selection | None = None
    averaged: Sequence[int] = ()
    trained_depth: int | None = None
    step_tokens: int | None = None


def run_results(
    folder: Path,
    model: Any,
    tokenizer: Any,
    task: Task,
    splits: Sequence[Split],
    report: ReportArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    compared: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The results of a run, whose checkpoint is in `folder`.

    Args:
        splits: that were evaluated; the first is that of the headline.
        compared: other models on the same examples.
    """
    config, data, tables = model.config, task.source, evaluation.tables
    (split, table), family = next(iter(tables.items())), ARCHITECTURES[config.model_type]
    reproduces, differences = paper_claims(report, facts.changes)
    papers = paper_values(tables, report, task.data, config, facts.steps, facts.step_tokens, facts.changes)
    language = {"language": report.language} if report.language else {}
    return {
        **EMPTY,
        "title": report.title or f"{family.prefix} on {data.name}",
        "name": facts.hub_model_id or facts.name,
        "task": task.tag,
        "metric": task.metric_of(tables),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "notice": report.notice,
        "model": {
            "type": config.model_type,
            "parameters": model.num_parameters(),
            "max_depth": config.num_hidden_layers,
            "halting": table["halting"],
            "chunks": chunk_settings(config),
            "generation": generation_settings(model.generation_config) if config.is_encoder_decoder else None,
            "base": facts.base_model,
            "license": report.license,
            "paper": paper_with_title(family.paper),
        },
        "data": {**data_facts(task, data, report.dataset_id), **language},
        "training": {
            "command": command(facts.argv, task),
            "recipe": recipe_name(facts.argv) or "flags",
            "reproduces": None if reproduces == "none" else reproduces,
            "seed": facts.seed,
            "steps": facts.steps,
            "seconds": facts.seconds,
            "hardware": hardware(facts.processes, facts.device),
            "versions": versions(),
            "depth": depth_of_training(config, facts.trained_depth),
            "differences": differences,
            "history": [
                *([] if facts.selection is None else [describe_selection(facts.selection, facts.averaged)]),
                *facts.notes,
            ],
            "weights": stored_digest(folder),
        },
        "splits": {
            name: {
                "distribution": distribution(task, name),
                **({"paper": papers[name]} if name in papers else {}),
                **own,
            }
            for name, own in tables.items()
        },
        "compared": list(compared),
        "figures": [{"split": split, **figure} for figure in evaluation.plots],
        "routing": evaluation.routing,
        "pictures": evaluation.pictures,
        "threshold_curve": {"examples": evaluation.curve_rows, "rows": evaluation.curve} if evaluation.curve else None,
        "example": {**NO_EXAMPLE, **task.card_example(splits[0], tokenizer)},
        "limitations": list(task.limitations()),
        "quotes": report.examples and data.is_own,
    }


def remeasured(
    results: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    figures: Iterable[Mapping[str, Any]],
    weights: str | None,
    **more: Any,
) -> dict[str, Any]:
    """Results with another evaluation of some splits, of the checkpoint as it stops now.

    Args:
        tables, figures: as of `run_results`; figures are those of the first split.
        weights: digest of the weights that were measured.
        more: `routing` and `pictures`.

    Raises:
        ValueError: a split is none of the results', or has other examples now.
    """
    splits = dict(results["splits"])
    for name, table in tables.items():
        if name not in splits:
            raise ValueError(f"--card: the card has no results of {name!r}: pass --split with {', '.join(splits)}")
        for key in ("n", "documents", "tokens"):
            before, now = splits[name].get(key), table.get(key)
            if key != "tokens" and before != now:
                data = results["data"]["arguments"] or results["data"]["name"]
                raise ValueError(
                    f"--card: the card has results of {before:,} examples of {name!r}, and these data have {now:,}: "
                    f"name the data of the card, {data}"
                )
        kept = {key: splits[name][key] for key in ("distribution", "paper") if key in splits[name]}
        splits[name] = {**kept, **table}
    first, table = next(iter(splits.items()))
    found = {**results, "splits": splits, "training": {**results["training"], "weights": weights}}
    if first in tables:
        model = {**results["model"], "halting": table["halting"], "max_depth": table["max_depth"]}
        kinds = [kind for several in SECTION_KINDS.values() for kind in several]
        drawn = [{"split": first, **figure} for figure in figures]
        drawn += [figure for figure in results["figures"] if figure["kind"] in kinds]
        found |= {"model": model, "figures": drawn, "threshold_curve": None, **more}
    return found


def data_facts(task: Task, data: Data, dataset_id: str | None) -> dict[str, Any]:
    """The data of a run; of a user's own their columns and sizes, and a digest instead of a version."""
    given = task.data
    facts = {"name": data.name, "config": data.config, "version": data.version, "dataset_revision": data.revision}
    facts |= {"dataset_id": dataset_id or data.dataset_id, "arguments": None, "further_parameters": {}}
    if data.info is None:
        read = {**data.facts, **{name: without_folders(getattr(given, name, None)) for name in READING}}
        parameters = {name: value for name, value in read.items() if value is not None}
        return {**facts, "description": None, "language": [], "seed": None, "parameters": parameters}
    facts |= {"description": data.info.description or None, "language": list(data.info.languages)}
    parameters = {**data.info.parameters[data.config], **given.benchmark_params}
    seed = parameters.pop("seed", 0)
    if given.data_dir is not None:
        # not under their own names: nobody else has the files
        parameters = {**given.benchmark_params, "rows": "read from the files of data_dir"}
    else:
        own = {name: value for name, value in given.benchmark_params.items() if name != DATA}
        words = [data.info.name, "--benchmark_config", data.config]
        words += ["--benchmark_params", json.dumps(own)] if own else []
        words += [] if given.max_eval_samples is None else ["--limit", str(given.max_eval_samples)]
        facts["arguments"] = shlex.join(words)
    limits = ("max_train_samples", "max_eval_samples", "tokenizer", "vocab_size")
    parameters |= {name: without_folders(getattr(given, name)) for name in limits}
    return {
        **facts,
        "seed": seed,
        "parameters": {name: value for name, value in parameters.items() if value is not None},
        "further_parameters": {
            config: {name: value for name, value in values.items() if name != DATA}
            for config, values in given.evaluate_params.items()
        },
    }


def distribution(task: Task, split: str) -> str | None:
    """How the examples of a split compare with those of training; None: it is not known."""
    given, data = task.data, task.source
    if data.info is None:
        return None if split in given.files else "as in training"
    params = {**data.info.parameters[data.config], **given.benchmark_params}
    return get_benchmark(data.info.name, data.config).shift(data.config, params, split) or "as in training"


# ---- the command


def recipe_name(argv: Sequence[str]) -> str | None:
    """The name of a recipe of this package, or the file name of another one, written so that it is no such name."""
    path = recipe_path(argv)
    if path is None:
        return None
    return name_of(path) or (path.name if recipe_named(path.name) is None else f"./{path.name}")


def command(argv: Sequence[str], task: Task) -> str:
    """The command that makes the run again, without folders of its machine; of data_dir the last part is kept."""
    recipe, rest = recipe_name(argv), list(argv)
    words = ["accelerate", "launch", "-m", "hf_recurrent.train"]
    if recipe is not None:
        words.append(recipe)
        rest.pop(0)
    keep, is_data = True, False
    for word in rest:
        if word.startswith("--"):
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            keep, is_data = name not in LEFT_OUT or name == DATA, name == DATA
            if equals:
                word = f"--{name}={Path(value).name if is_data else word_without_folders(value)}"
        elif keep:
            word = Path(word).name if is_data else word_without_folders(word)
        if keep:
            words.append(word)
    if recipe is None and task.data.is_own and task.data.task is None:
        words += ["--task", name_of_task(task)]
    return shlex.join([*words, "--output_dir", "run"])


def recipe_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The recipe of a run, without places on the machine it ran on and without where it was published."""
    return {name: without_folders(value) for name, value in settings.items() if name not in LEFT_OUT}


def without_folders(value: Any) -> Any:
    """The last part of a path that begins at the root or at a user's home, in mappings and lists, too."""
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    of_machine = isinstance(value, str) and (Path(value).is_absolute() or value.startswith("~/"))
    return Path(value).name if of_machine else value


def word_without_folders(word: str) -> str:
    """A word of a command as `without_folders`; it may be a mapping or a list."""
    try:
        found = yaml.safe_load(word) if word[:1] in ("{", "[") else word
    except yaml.YAMLError:
        found = word
    short = without_folders(found)
    return word if short == found else short if isinstance(short, str) else json.dumps(short)


# ---- the model and the machine


def hardware(processes: int, device: torch.device) -> str:
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    cores = torch.get_num_threads()
    several = f"{processes} process{'es' if processes > 1 else ''} of {cores} thread{'s' if cores > 1 else ''}"
    return f"CPU ({platform.machine()}), {several}"


def versions() -> dict[str, str]:
    """Versions of Python, of this package, which need not be installed, and of those that results depend on."""
    own = {"python": platform.python_version(), "hf-recurrent": __version__}
    return own | {package: importlib.metadata.version(package) for package in PACKAGES}


def chunk_settings(config: Any) -> dict[str, Any] | None:
    """Config fields of a model that computes chunk by chunk or window by window; None if it takes whole sequences."""
    capabilities = config.capabilities
    if capabilities.reads == "blocks":
        names = ("window_size", *(("num_state_vectors",) if capabilities.state_vectors else ()))
    elif capabilities.reads == "chunks":
        names = ("chunking", "num_chunks" if capabilities.division == "count" else "chunk_size", "num_memory_slots")
    else:
        return None
    return {name: getattr(config, name) for name in names}


def generation_settings(settings: Any) -> dict[str, Any]:
    return {
        "num_beams": settings.num_beams,
        "length_penalty": settings.length_penalty or 1.0,
        "max_new_tokens": settings.max_new_tokens,
    }


def depth_of_training(config: Any, trained_depth: int | None) -> str:
    """How many depth steps a model took in training, and what stopped it, in words."""
    halting, most = getattr(config, "halting", "none"), trained_depth or config.num_hidden_layers
    way = "without halting" if halting == "none" else f"with {halting} halting"
    if getattr(config, "depth_sampling", "fixed") == "fixed":
        return f"{way}, in {most} depth steps"
    low, high = depth_bounds(config, most)
    return f"{way}, in a number of depth steps drawn from {low}{f' to {high}' if high else ' on'} for each batch"


# ---- the paper


def reproduced_row(report: ReportArguments, changes: Sequence[str]) -> tuple[PaperRow | None, list[str]]:
    """The row that a run reproduces, given what flags changed, and the changes that no table of the paper has.

    A change with a row of its own (`paper_variants`) only counts if none before it has led to another row.
    """
    if not report.paper:
        return None, list(changes)
    named = row = PaperRow.of(report.paper)
    rest = []
    for change in changes:
        # "max_steps = 7 (12)" without the recipe's value
        name = change.rpartition(" (")[0]
        other = report.paper_variants.get(name)
        if name not in report.paper_variants or (other is not None and row != named):
            rest.append(change)
        elif other is not None:
            row = PaperRow.of({**report.paper, **other})
    return row, rest


def paper_claims(report: ReportArguments, changes: Sequence[str]) -> tuple[str, list[str]]:
    """The table row that a run reproduces and its differences from the paper, both with the changes made by flags."""
    row, rest = reproduced_row(report, changes)
    title = report.paper_table if row is None else row.title
    named = not title.startswith("none")
    if not rest or not (named or report.differences):
        return title, report.differences
    changed = f"changed by flags: {', '.join(rest)}"
    return f"{title}, but {changed}" if named else title, [*report.differences, changed]


def paper_values(
    tables: Mapping[str, Mapping[str, Any]],
    report: ReportArguments,
    data: Any,
    config: Any,
    steps: int,
    step_tokens: int | None = None,
    changes: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Split -> what the paper reports for it, if the run's data, model and training are the paper's.

    Args:
        steps: optimizer steps of the run.
        step_tokens: tokens of an optimizer step, if they are always as many.
        changes: what flags changed of the recipe.
    """
    row, rest = reproduced_row(report, changes)
    found = {}
    for cell in [] if row is None else row.cells():
        table, numbers = tables.get(cell.split), cell.numbers
        if table is None or cell.config != data.benchmark_config or (rest and not cell.needs.changes_allowed):
            continue
        if cell.needs.hold(data, config, steps, step_tokens, table.get("n")):
            # a median is shown with its mean
            values = {**numbers, "accuracy": numbers.get("median", numbers.get("mean"))}
            names = ("accuracy", *(("mean",) if "median" in numbers else ()), "std", "bleu", "bits", "slices")
            found[cell.split] = {name: values[name] for name in names if values.get(name) is not None}
    return found
