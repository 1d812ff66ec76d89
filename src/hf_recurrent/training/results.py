"""The evaluation that ends a run, and its results as `hub.results` keeps them."""

import datetime
import importlib.metadata
import json
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import torch

from .. import __version__
from ..benchmarks.registry import get_benchmark
from ..deploy.processes import is_first, shared_by
from ..hub.results import EMPTY, NO_EXAMPLE, SECTION_KINDS, stored_digest
from ..models.depth.objectives import depth_bounds
from ..recipes import name_of, recipe_named, recipe_path
from ..registry import ARCHITECTURES
from ..tasks import name_of as name_of_task
from ..tasks.base import MAX_EXAMPLE_TOKENS, Split, Task, short_example
from ..tasks.summary import sentences, titled_tables
from ..utils import write_bytes
from .arguments import ReportArguments
from .recipes import is_packaged, paper_claims, paper_values, paper_with_title

if TYPE_CHECKING:
    from .stages import Run

# tokens of a map of memory that stay readable
MAX_MEMORY_TOKENS = 512
PACKAGES = ("torch", "transformers", "accelerate", "datasets", "numpy")
# flags whose values are places on the machine of the run, where the result goes, and secrets
DATA = "data_dir"
LEFT_OUT = (
    *("output_dir", DATA, "cache_dir", "resume_from_checkpoint", "logging_dir", "push_to_hub", "hub_model_id"),
    *("hub_private_repo", "hub_revision", "hub_token", "token", "hub_strategy"),
)
# settings by which a user's own data are read
READING = (
    *("task", "tokenizer", "vocab_size", "max_seq_length", "max_source_length", "max_target_length"),
    *("max_train_samples", "max_eval_samples", "block_size", "pack", "mlm_probability", "label_delimiter"),
    *("doc_stride", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold"),
)


# ---- the evaluation


Tables = dict[str, dict[str, Any]]


def evaluate_run(
    model: Any,
    tokenizer: Any,
    splits: Sequence[Split],
    folder: Path,
    report: ReportArguments,
    batch_size: int,
    progress: bool = True,
) -> tuple[Tables, dict[str, Any]]:
    """Evaluate `model` on every split; write figures and, if asked for, predictions to `folder`.

    Of several processes that share the splits, the first one alone writes.

    Returns:
        The tables of the splits (see `halting_table`); and `figures`, `routing` and `pictures` of the
        first split, as `hub.results` has them.
    """
    tables: Tables = {}
    for split in splits:
        examples, tables[split.name] = split.measure(model, tokenizer, batch_size, progress=progress)
        if report.write_predictions and is_first():
            lines = [json.dumps(row) for row in split.task.predictions(split, examples, model, tokenizer)]
            path = folder / "predictions" / f"{split.name.replace('/', '-')}.jsonl"
            write_bytes(path, ("\n".join(lines) + "\n").encode())
    first, shown = splits[0], {"figures": [], "routing": [], "pictures": []}
    table = tables[first.name]
    if is_first() and first.task.explains:
        with shared_by(0, 1):
            explain(shown, table, model, tokenizer, first, folder, report)
    elif is_first():
        shown["figures"] = first.task.figures(first, folder, table, model, tokenizer)
    shown["figures"] = [{"split": first.name, **figure} for figure in shown["figures"]]
    return tables, shown


def explain(
    shown: dict[str, Any],
    table: Mapping[str, Any],
    model: Any,
    tokenizer: Any,
    split: Split,
    folder: Path,
    report: ReportArguments,
) -> None:
    """Draw the figures of a split into `folder`, and add them to what is `shown`.

    Of a user's own examples none are shown, unless `report` asks for it.
    """
    # matplotlib is loaded where figures are drawn alone
    from ..analysis.explain.card import draw_example, examples_to_draw, has_memory, memory_map, token_heat_map
    from ..analysis.explain.explanation import pixel_values, reads_pixels
    from ..analysis.plots import save_figures

    name, maps = split.name, {}
    quotes, example = report.examples or not split.task.data.is_own, short_example(split)
    # one halting unit would be one line, which the figure of the halting mass shows already
    if quotes and table["unit"] in ("token", "chunk", "sentence") and not pixel_values(tokenizer):
        maps["heat_map"] = token_heat_map(model, tokenizer, example)
    # maps of many chunks are unreadable and take much memory
    if quotes and len(example["input_ids"]) <= MAX_MEMORY_TOKENS and has_memory(model.config):
        maps["memory"] = memory_map(model, tokenizer, example)
    shown["figures"] = save_figures(folder, table, prefix=name, **maps)
    examples, labels = {name: example} if quotes else {}, split.dataset["labels"][:]
    if quotes and reads_pixels(model, tokenizer) and np.ndim(labels[0]) == 0:
        places = examples_to_draw([len(ids) for ids in split.dataset["input_ids"][:]], labels)
        examples = {f"{name}_{place}": split.dataset[place] for place in places}
    for prefix, each in examples.items():
        drawn = draw_example(folder, model, tokenizer, each, prefix=prefix, max_prompt=MAX_EXAMPLE_TOKENS)
        if drawn is not None:
            kind = drawn.pop("kind")
            shown["pictures" if kind == "picture" else "routing"].append(drawn)
            shown["figures"].append({"kind": kind, "path": drawn["path"], "column": None})


def summary(tables: Mapping[str, Mapping[str, Any]], metric: str, compared: Sequence[Mapping[str, Any]] = ()) -> str:
    """The results as plain text, compared with other models."""
    sections = [
        f"{title}\n{pandas.DataFrame(rows).to_string(index=False)}" for title, rows in titled_tables(tables, metric)
    ]
    if compared:
        rows = [
            {
                "split": name,
                "this model": f"{table['accuracy']:.4f}",
                "mean" if metric == "r_squared" else "majority": f"{table['majority_baseline']:.4f}",
                **{other["name"]: f"{other['values'][name][0]:.4f}" for other in compared},
            }
            for name, table in tables.items()
        ]
        sections.append(pandas.DataFrame(rows).to_string(index=False))
    return "\n\n".join([*sections, "\n".join(sentences(tables, metric))])


# ---- the results


def run_results(run: "Run") -> dict[str, Any]:
    """The results of a run that was evaluated, whose checkpoint is in its folder.

    The first of the splits that were evaluated is that of the headline.
    """
    model, task, report, tables = run.model, run.task, run.report, run.tables
    config, data, first = model.config, task.source, run.evaluated_splits()[0]
    family = ARCHITECTURES[config.model_type]
    reproduces, differences = paper_claims(report, run.changes)
    papers, recipe = {}, recipe_path(run.argv)
    if report.paper and recipe is not None and is_packaged(recipe):
        papers = paper_values(tables, report, task.data, config, run.facts["steps"], run.changes)
    language = {"language": report.language} if report.language else {}
    return {
        **EMPTY,
        "title": report.title or f"{family.prefix} on {data.name}",
        "name": run.args.hub_model_id or run.folder.name,
        "task": task.tag,
        "metric": task.metric_of(tables),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "notice": report.notice,
        "model": {
            "type": config.model_type,
            "parameters": model.num_parameters(),
            "max_depth": config.num_hidden_layers,
            "halting": tables[first.name]["halting"],
            "chunks": chunk_settings(config),
            "generation": generation_settings(model.generation_config) if config.is_encoder_decoder else None,
            "base": run.base_model,
            "license": report.license,
            "paper": paper_with_title(family.paper),
        },
        "data": {**data_facts(task, report.dataset_id), **language},
        "training": {
            "command": command(run.argv, run.flags, task),
            "recipe": recipe_name(run.argv) or "flags",
            "reproduces": None if reproduces == "none" else reproduces,
            "seed": run.args.seed,
            "steps": run.facts["steps"],
            "seconds": run.facts["seconds"],
            "hardware": hardware(run.num_processes, run.device),
            "versions": versions(),
            "depth": depth_of_training(config, run.facts["trained_depth"]),
            "differences": differences,
            "history": run.history,
            "weights": stored_digest(run.folder),
        },
        "splits": {
            name: {
                "distribution": distribution(task, name),
                **({"paper": papers[name]} if name in papers else {}),
                **own,
            }
            for name, own in tables.items()
        },
        "compared": task.compared(run.splits),
        **run.shown,
        "example": {**NO_EXAMPLE, **task.card_example(first, run.tokenizer)},
        "limitations": list(task.limitations()),
        "quotes": report.examples and data.is_own,
    }


def remeasured(
    results: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]], shown: Mapping[str, Any], weights: str | None
) -> dict[str, Any]:
    """Results with another evaluation of some splits, of the checkpoint as it stops now.

    Args:
        tables, shown: as of `evaluate_run`.
        weights: digest of the weights that were measured.

    Raises:
        ValueError: a split is none of the results', or has other examples now.
    """
    splits = dict(results["splits"])
    for name, table in tables.items():
        if name not in splits:
            raise ValueError(f"--card: the card has no results of {name!r}: pass --split with {', '.join(splits)}")
        before, now = (each.get("n", each.get("documents")) for each in (splits[name], table))
        if before != now:
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
        kinds = [kind for several in SECTION_KINDS.values() for kind in several]
        kept = [figure for figure in results["figures"] if figure["kind"] in kinds]
        model = {**results["model"], "halting": table["halting"], "max_depth": table["max_depth"]}
        found |= {**shown, "figures": [{**each, "split": first} for each in shown["figures"]] + kept, "model": model}
    return found


def data_facts(task: Task, dataset_id: str | None) -> dict[str, Any]:
    """The data of a run; of a user's own their columns and sizes, and a digest instead of a version."""
    given, data, info = task.data, task.source, task.source.info
    own = {name: value for name, value in given.benchmark_params.items() if name != DATA}
    known = {} if info is None else {**info.parameters[data.config], **own}
    words = None if info is None or given.data_dir is not None else [info.name, "--benchmark_config", data.config]
    if words is not None:
        words += ["--benchmark_params", json.dumps(own)] if own else []
        words += [] if given.max_eval_samples is None else ["--limit", str(given.max_eval_samples)]
    if given.data_dir is not None:
        # not under their own names: nobody else has the files
        parameters = {**own, "rows": "read from the files of data_dir"}
    else:
        parameters = {**(data.facts if info is None else known)}
    limits = READING if info is None else ("max_train_samples", "max_eval_samples", "tokenizer", "vocab_size")
    parameters |= {name: without_folders(getattr(given, name, None)) for name in limits}
    return {
        "name": data.name,
        "config": data.config,
        "version": data.version,
        "dataset_revision": data.revision,
        "dataset_id": dataset_id or data.dataset_id,
        "arguments": None if words is None else shlex.join(words),
        "description": None if info is None else info.description or None,
        "language": [] if info is None else list(info.languages),
        "seed": None if info is None else known.get("seed", 0),
        "parameters": {n: value for n, value in parameters.items() if value is not None and n != "seed"},
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


def command(argv: Sequence[str], flags: Mapping[str, Any], task: Task) -> str:
    """The command that makes the run again, without folders of its machine; of data_dir the last part is kept."""
    recipe, words = recipe_name(argv), ["accelerate", "launch", "-m", "hf_recurrent.train"]
    words += [] if recipe is None else [recipe]
    shown = recipe_of(flags) | {name: Path(flags[name]).name for name in (DATA,) if name in flags}
    for name, value in shown.items():
        several = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(each if isinstance(each, str) else json.dumps(each) for each in several)]
    if recipe is None and task.data.is_own and task.data.task is None:
        words += ["--task", name_of_task(task)]
    return shlex.join([*words, "--output_dir", "run"])


def recipe_of(settings: Mapping[str, Any]) -> dict[str, Any]:
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
    size = "num_chunks" if capabilities.division == "count" else "chunk_size"
    windows = ("window_size", *(("num_state_vectors",) if capabilities.state_vectors else ()))
    names = {"blocks": windows, "chunks": ("chunking", size, "num_memory_slots")}.get(capabilities.reads)
    return None if names is None else {name: getattr(config, name) for name in names}


def generation_settings(settings: Any) -> dict[str, Any]:
    return {
        "num_beams": settings.num_beams,
        "length_penalty": settings.length_penalty or 1.0,
        "max_new_tokens": settings.max_new_tokens,
    }


def depth_of_training(config: Any, most: int) -> str:
    """How many depth steps a model took in training, at most, and what stopped it, in words."""
    halting = getattr(config, "halting", "none")
    way = "without halting" if halting == "none" else f"with {halting} halting"
    if getattr(config, "depth_sampling", "fixed") == "fixed":
        return f"{way}, in {most} depth steps"
    low, high = depth_bounds(config, most)
    return f"{way}, in a number of depth steps drawn from {low}{f' to {high}' if high else ' on'} for each batch"
