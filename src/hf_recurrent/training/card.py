"""The card of a finished run, from its recipe and its evaluation."""

import datetime
import importlib.metadata
import json
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from .. import __version__
from ..benchmarks import BenchmarkInfo
from ..hub import CardData
from ..hub.base_model import BaseModel
from ..hub.card import Benchmark, Compared, Example, Picture, Plot, Routing, SplitResult, Training
from ..hub.card_data import NO_EXAMPLE
from ..hub.findings import above_majority, collapsed_halting
from ..hub.tasks import task_for
from ..recipes import name_of, recipe_named
from ..registry import ARCHITECTURES
from ..templating import percent
from ..text_data.labels import MULTI, REGRESSION
from ..text_data.source import TextSource
from .arguments import BenchmarkArguments, DataArguments
from .evaluation import MAX_EXAMPLE_TOKENS, Evaluation
from .objectives import CLASSIFICATION, LANGUAGE_MODELLING, Objective, objective_on
from .paper import PaperRow, paper_with_title
from .recipes import read_mapping, recipe_path
from .report_arguments import ReportArguments, RunArguments
from .selection import Selection, describe_selection
from .text_arguments import SCRIPTS

# what trains for any objective
MODULE = "hf_recurrent.train"
PACKAGES = ("torch", "transformers", "accelerate", "datasets", "numpy")
# of a long text, characters that are enough to see what to pass
EXAMPLE_CHARACTERS = 160
# flags whose values are places on the machine of the run; of data_dir the card keeps the last part
DATA = "data_dir"
PLACES = ("output_dir", DATA, "cache_dir", "resume_from_checkpoint", "logging_dir")
# flags of where the result goes, and of secrets
PUBLISHING = ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_token", "token", "hub_strategy")
LEFT_OUT = PLACES + PUBLISHING


@dataclass(frozen=True)
class RunFacts:
    """The facts of the training for a card: `wall_time` in seconds, `steps` optimiser steps, `processes` in parallel.

    `changes` are what flags changed of the recipe, from `changes_by_flags`; `selection` is how the checkpoint was
    chosen; `trained_depth` the depth steps of training, if they are not those of the checkpoint; `averaged` the
    optimiser steps of the checkpoints that it is the mean of; `notes` are further sentences on how it was made; `start`
    is the checkpoint that training over documents began with; `base_model` that of others that a run began with.
    """

    argv: Sequence[str]
    name: str
    hub_model_id: str | None
    seed: int
    wall_time: float
    steps: int
    processes: int
    device: torch.device
    changes: Sequence[str] = ()
    selection: Selection | None = None
    trained_depth: int | None = None
    averaged: Sequence[int] = ()
    notes: Sequence[str] = ()
    start: str | None = None
    base_model: BaseModel | None = None


def recipe_name(argv: Sequence[str]) -> str | None:
    """The name of a recipe of this package, or the file name of another one, written so that it is no such name."""
    path = recipe_path(argv)
    if path is None:
        return None
    other = path.name if recipe_named(path.name) is None else f"./{path.name}"
    return name_of(path) or other


def command(argv: Sequence[str], script: str = CLASSIFICATION.script, is_own: bool = False) -> str:
    """The command that makes the run again, without folders of its machine; of data_dir the last part is kept.

    A recipe of this package, and a task of own data, are run by the package, wherever that is installed; others by
    `script`.
    """
    recipe, rest = recipe_name(argv), list(argv)
    tasks = {other: task for task, other in SCRIPTS.items()}
    packaged = recipe is not None and recipe_named(recipe) is not None
    by_task = is_own and script in tasks
    if by_task and script != CLASSIFICATION.script and not names_task(argv):
        rest += ["--task", tasks[script]]
    parts = ["accelerate", "launch", *(["-m", MODULE] if packaged or by_task else [script])]
    if recipe is not None:
        parts.append(recipe)
        rest.pop(0)
    keep, is_data = True, False
    for part in rest:
        if part.startswith("--"):
            flag, equals, value = part.lstrip("-").partition("=")
            flag = flag.replace("-", "_")
            keep, is_data = flag not in LEFT_OUT or flag == DATA, flag == DATA
            if is_data and equals:
                part = f"--{DATA}={Path(value).name}"
            elif equals:
                part = f"--{flag}={word_without_folders(value)}"
        if keep:
            is_folder = is_data and not part.startswith("--")
            parts.append(Path(part).name if is_folder else word_without_folders(part))
    return shlex.join([*parts, "--output_dir", "run"])


def names_task(argv: Sequence[str]) -> bool:
    """Whether a flag or the recipe says what own data are for."""
    path = recipe_path(argv)
    return any(part.startswith("--task") for part in argv) or (path is not None and "task" in read_mapping(path))


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
    found = read_flow(word) if word[:1] in ("{", "[") else word
    short = without_folders(found)
    return word if short == found else short if isinstance(short, str) else json.dumps(short)


def read_flow(word: str) -> Any:
    try:
        return yaml.safe_load(word)
    except yaml.YAMLError:
        return word


def hardware(processes: int, device: torch.device) -> str:
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    cores = torch.get_num_threads()
    return f"CPU ({platform.machine()}), {processes} process{'es' if processes > 1 else ''} of {cores} thread" + (
        "s" if cores > 1 else ""
    )


def headline(
    title: str,
    split: str,
    table: dict[str, Any],
    objective: Objective = CLASSIFICATION,
    metric: str = "accuracy",
) -> str:
    """How well the model answers, in one sentence."""
    right, n = percent(table["accuracy"]), f"{table['n']:,}"
    examples = f"{n} example{'' if table['n'] == 1 else 's'}"
    done = f"{right} of {examples} of the `{split}` split right"
    if metric == "r_squared":
        return f"{title}: {right} of the variance of {n} labels of the `{split}` split explained{in_steps(table)}"
    if metric == "exact_labels":
        done = f"all labels of {right} of {examples} of the `{split}` split right"
    if objective is LANGUAGE_MODELLING:
        done = f"the last read of {right} of {n} strings of the `{split}` split right"
    text = f"{title}: {done}, where the most frequent answer gives {percent(table['majority_baseline'])}"
    return text + in_steps(table)


def in_steps(table: Mapping[str, Any]) -> str:
    """The end of a sentence: the depth steps that the answers took."""
    if table["fixed_depth"]:
        return f", in a fixed {table['max_depth']} depth steps."
    return f", in {table['steps']['mean']:.1f} of at most {table['max_depth']} depth steps on average."


def metric_on(data: DataArguments, objective: Objective) -> str:
    """The measure of a card's tables."""
    if objective is not CLASSIFICATION:
        return objective.metric
    return "accuracy" if data.own is None or data.own.labels is None else metric_of(data.own.labels.problem_type)


def metric_of(problem_type: str | None) -> str:
    """The measure of a classifier, by the `problem_type` of its config."""
    return {MULTI: "exact_labels", REGRESSION: "r_squared"}.get(problem_type, "accuracy")


def limitations(
    data: DataArguments, tables: Mapping[str, dict[str, Any]], objective: Objective = CLASSIFICATION
) -> list[str]:
    """Limitations that a reader must know, from the tables by split, the first of which is that of the headline."""
    info = data.info
    (_, table), *others = tables.items()
    kind = "synthetic benchmark" if info.synthetic else "benchmark"
    reads = "the vocabulary" if info.modality == "words" else info.modality
    lines = [f"It reads {reads} of the {kind} `{data.benchmark}` and nothing else."]
    if data.own is not None:
        lines = own_limitations(data.own, tables)
    if objective is LANGUAGE_MODELLING:
        lines.append("It was trained on the answers to reads alone: what it generates elsewhere means nothing.")
    lost = [f"`{name}`" for name, found in tables.items() if not above_majority(found)]
    if lost and metric_on(data, objective) == "r_squared":
        lines.append(f"It is no better than the mean of the labels on {', '.join(lost)}.")
    elif lost:
        where = ", ".join(lost)
        lines.append(f"Within two standard errors, it is no better than the most frequent answer on {where}.")
    worst = min(others, key=lambda item: item[1]["accuracy"], default=None)
    if worst is not None and worst[1]["accuracy"] < table["accuracy"]:
        lines.append(
            f"Away from its training distribution it is weaker: {percent(worst[1]['accuracy'])} on `{worst[0]}`."
        )
    return lines


def own_limitations(own: TextSource, tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """Limitations of a model that was trained on a user's own data alone."""
    known = f"It was trained on `{own.name}` alone: how well it does on texts of another kind was not measured."
    return [known, *measured_on_validation(tables)]


def measured_on_validation(tables: Mapping[str, dict[str, Any]]) -> list[str]:
    """The limitation of results on validation examples; none where there are others."""
    if not all(name.startswith("validation") for name in tables):
        return []
    return [
        "It is measured on validation examples, by which a checkpoint or settings may have been chosen: there were "
        "none to test on."
    ]


def history(facts: RunFacts, config: Any) -> list[str]:
    """How the checkpoint was chosen and at what depth it was trained, in sentences."""
    lines = [] if facts.selection is None else [describe_selection(facts.selection, facts.averaged)]
    if facts.trained_depth is not None:
        lines.append(
            f"It was trained with {facts.trained_depth} depth steps and evaluated with {config.num_hidden_layers}, "
            "which it takes unless `max_depth` says otherwise."
        )
    return [*lines, *facts.notes]


# settings by which a user's own data are read
READING = (
    *("max_seq_length", "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples"),
    *("block_size", "pack", "mlm_probability", "label_delimiter"),
    *("doc_stride", "max_answer_length", "version_2_with_negative", "null_score_diff_threshold"),
)


def own_facts(data: DataArguments, dataset_id: str | None) -> Benchmark:
    """A user's own data, for a card: their columns and sizes, and a digest instead of a version."""
    own = data.own
    settings = {name: without_folders(getattr(data, name, None)) for name in ("tokenizer", *READING)}
    facts = {**own.facts, **settings}
    return Benchmark(
        name=own.name,
        config=own.config,
        version=own.version,
        seed=None,
        parameters={name: value for name, value in facts.items() if value is not None},
        dataset_id=dataset_id or own.dataset_id,
        dataset_revision=own.revision,
    )


def benchmark_facts(data: DataArguments, dataset_id: str | None) -> Benchmark:
    if data.own is not None:
        return own_facts(data, dataset_id)
    info = data.info
    parameters = {**info.parameters[data.benchmark_config], **data.benchmark_params}
    limits = {"max_train_samples": data.max_train_samples, "max_eval_samples": data.max_eval_samples}
    parameters |= {name: value for name, value in limits.items() if value is not None}
    if data.data_dir is not None:
        parameters = {**data.benchmark_params, "rows": "read from the files of data_dir"}
    return Benchmark(
        name=info.name,
        config=data.benchmark_config,
        version=info.version,
        seed=parameters.get("seed", 0),
        parameters={name: value for name, value in parameters.items() if name != "seed" and value is not None},
        dataset_id=dataset_id,
        description=info.description,
        further_parameters=further_parameters(data),
    )


def further_parameters(data: DataArguments) -> dict[str, dict[str, Any]]:
    """What is not the default of further configurations that a run evaluates on, but for where files lie."""
    given = getattr(data, "evaluate_params", None) or {}
    return {config: {name: own[name] for name in own if name != "data_dir"} for config, own in given.items()}


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


def split_results(
    tables: Mapping[str, dict[str, Any]],
    report: ReportArguments,
    data: BenchmarkArguments,
    config: Any,
    steps: int,
    *,
    step_tokens: int | None = None,
    changes: Sequence[str] = (),
) -> list[SplitResult]:
    """Each split's table beside what the paper reports for it, if the run's data, model and training are the paper's.

    Args:
        tables: split name -> its table, of which `n` counts the examples.
        steps: optimiser steps of the run.
        step_tokens: tokens of an optimiser step, if they are always as many.
        changes: what flags changed of the recipe, from `changes_by_flags`.
    """
    row, rest = reproduced_row(report, changes)
    found: dict[str, dict[str, Any]] = {}
    for cell in [] if row is None else row.cells():
        table = tables.get(cell.split)
        if table is None or cell.config != data.benchmark_config or (rest and not cell.needs.changes_allowed):
            continue
        if cell.needs.hold(data, config, steps, step_tokens, table.get("n")):
            numbers = cell.numbers
            found[cell.split] = {
                # a median stands beside its mean
                "paper_accuracy": numbers.get("median", numbers.get("mean")),
                "paper_mean": numbers.get("mean") if "median" in numbers else None,
                "paper_std": numbers.get("std"),
                "paper_bleu": numbers.get("bleu"),
                "paper_bits": numbers.get("bits"),
                "paper_slices": numbers.get("slices", {}),
            }
    return [SplitResult(name, table, **found.get(name, {})) for name, table in tables.items()]


def versions() -> dict[str, str]:
    """Versions of Python, of this package, which need not be installed, and of those that results depend on."""
    own = {"python": platform.python_version(), "hf-recurrent": __version__}
    return own | {package: importlib.metadata.version(package) for package in PACKAGES}


def example_of(encoded: Mapping[str, Any], info: BenchmarkInfo, objective: Objective) -> Example:
    """The example of the usage section: the texts of `encoded`, or a string up to a read with the bit that answers it.

    Texts that are read byte by byte, or that people wrote, are cut after their beginning.

    Args:
        encoded: an example of the benchmark. That of a language model has `labels` (S,), one for each word of its
            text, -100 where there is nothing to predict.
    """
    texts = [encoded[column] for column in info.text_columns]
    # what people wrote is long
    if info.modality == "bytes" or (info.modality == "words" and not info.synthetic):
        return Example(*(beginning(text) or NO_EXAMPLE for text in texts))
    if objective is CLASSIFICATION:
        return Example(*texts)
    words = texts[0].split()
    answered = [place for place, label in enumerate(encoded["labels"]) if label >= 0]
    # the longest prompt that is still readable, or the shortest there is
    place = max((place for place in answered if place <= MAX_EXAMPLE_TOKENS), default=answered[0])
    return Example(" ".join(words[:place]), answer=words[place])


def beginning(text: str) -> str:
    """The first words of a text, without those that look like file names."""
    start = text[: 2 * EXAMPLE_CHARACTERS]
    # a cut goes through a word
    words = start.split() if start == text else start.split()[:-1]
    words = [word for word in words if not any(sign in word for sign in "/\\~")]
    kept = " ".join(words)
    return kept if len(kept) <= EXAMPLE_CHARACTERS else kept[:EXAMPLE_CHARACTERS].rpartition(" ")[0]


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


def run_card(
    model: Any,
    data: DataArguments,
    report: ReportArguments,
    facts: RunFacts,
    tables: Mapping[str, dict[str, Any]],
    plots: Iterable[Mapping[str, Any]],
    *,
    claim: Callable[[str, str, dict[str, Any]], str],
    limitations: Sequence[str],
    script: str | None = None,
    **more: Any,
) -> CardData:
    """The card of a run.

    Args:
        tables: of its splits, by their names.
        plots: of the first split, unless they name theirs.
        claim: title, name and table of the first split -> how well the model does, in one sentence.
        limitations: those of the data and the results.
        script: that trains so; None for that of the objective.
        more: further fields of `CardData`, and those that are not as in other cards.
    """
    config, objective = model.config, objective_on(data)
    family, (split, table) = ARCHITECTURES[config.model_type], next(iter(tables.items()))
    paper_table, differences = paper_claims(report, facts.changes)
    title = report.title or f"{family.prefix} on {data.info.name}"
    fields = {
        "model_name": title,
        "repo_id": facts.hub_model_id or facts.name,
        "family": config.model_type,
        "claim": claim(title, split, table),
        "task": task_for(objective.auto_class),
        "metric": objective.metric,
        "notice": report.notice,
        "max_depth": config.num_hidden_layers,
        "halting": table["halting"],
        "chunks": chunk_settings(config),
        "paper": paper_with_title(family.paper),
        "benchmark": benchmark_facts(data, report.dataset_id),
        "training": Training(
            command=command(facts.argv, script or objective.script, data.own is not None),
            recipe=recipe_name(facts.argv) or "flags",
            paper_table=paper_table,
            seed=facts.seed,
            wall_time=facts.wall_time,
            hardware=hardware(facts.processes, facts.device),
            num_parameters=model.num_parameters(),
            versions=versions(),
            steps=facts.steps,
            differences_from_paper=differences,
        ),
        "results": split_results(tables, report, data, config, facts.steps, changes=facts.changes),
        "limitations": [*limitations, *collapsed_halting(tables), *history(facts, config)],
        "plots": [Plot(**{"split": split, **plot}) for plot in plots],
        "base_model": facts.base_model,
        "license": report.license,
        "examples": report.examples and data.own is not None,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    return CardData(**{**fields, **more})


def card_data(
    model: Any,
    data: DataArguments,
    run: RunArguments,
    evaluation: Evaluation,
    facts: RunFacts,
    compared: Sequence[Compared] = (),
) -> CardData:
    """The card of a run that classifies examples or predicts tokens, beside models `compared` on the same examples."""
    objective, tables = objective_on(data), evaluation.tables
    metric = metric_on(data, objective)
    return run_card(
        *(model, data, run, facts, tables, evaluation.plots),
        claim=partial(headline, objective=objective, metric=metric),
        metric=metric,
        example=example_of(evaluation.example, data.info, objective),
        limitations=limitations(data, tables, objective),
        routing=[Routing(**example) for example in evaluation.routing],
        pictures=[Picture(**example) for example in evaluation.pictures],
        compared=list(compared),
        threshold_curve=evaluation.curve,
        threshold_rows=evaluation.curve_rows,
    )
