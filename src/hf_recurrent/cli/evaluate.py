"""`hf-recurrent evaluate`: accuracy and halting statistics of a checkpoint on a benchmark or your own examples."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import err, out, quiet_libraries, show_rows

if TYPE_CHECKING:
    from ..tasks.checkpoints import Checkpoint, Request


@options.grouped
def evaluate(
    checkpoint: options.Checkpoint,
    examples: options.Examples,
    split: Annotated[list[str] | None, typer.Option(help="May be repeated; all test splits if not given.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate this many random examples of each split.")] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="Examples in a batch: 64 if not given, of long documents 8."),
    ] = None,
    max_depth: options.MaxDepth = None,
    halting_threshold: options.HaltingThreshold = None,
    exit_criterion: options.ExitCriterion = None,
    exit_threshold: options.ExitThreshold = None,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    segment_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=options.MOST,
            hidden=True,
            help="Of long documents: tokens read at a time; 8 windows if not given.",
        ),
    ] = None,
    train_file: Annotated[
        str | None, options.own_file("Of models of words or masked tokens: the file of training, for a baseline.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(dir_okay=False, callback=options.in_a_folder, help="Write the tables to this JSON file too."),
    ] = None,
    card: Annotated[bool, typer.Option("--card", help="Measure the results of the checkpoint's card again.")] = False,
) -> None:
    """Evaluate a checkpoint: accuracy and depth steps by split and difficulty, or bits per byte of long documents."""
    from ..deploy.processes import is_first
    from ..models.base.exit_calibration import calibration_problem
    from ..models.depth.exit_criteria import ExitOptions, default_threshold_problem
    from ..tasks.checkpoints import evaluate_checkpoint, load_checkpoint, metric_of
    from ..tasks.summary import sentences, titled_tables
    from ..utils import write_json

    quiet_libraries()
    request = examples.request(split, limit, train_file=train_file)
    depth_options = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    rule = {"exit_criterion": exit_criterion, "exit_threshold": exit_threshold}
    reading = {"segment_length": segment_length}
    reads = request.benchmark == "long_documents"
    options.refuse("long documents" if reads else "short texts", {**depth_options, **rule} if reads else reading)
    loaded = load_checkpoint(checkpoint, device, revision, dtype)
    set_exit(loaded.model.config, exit_criterion, exit_threshold)
    note = default_threshold_problem(loaded.model.config, ExitOptions())
    if card:
        options.refuse("results of a card", {**depth_options, **rule, **reading, "limit": limit})
        tables = measure_card(checkpoint, loaded, request, batch_size or 64)
    elif reads:
        tables = evaluate_documents(loaded, request, segment_length, batch_size or 8)
    else:
        tables = evaluate_checkpoint(loaded, request, batch_size=batch_size or 64, **depth_options, progress=True)
    # a file without another name is called by its own; for programs it stays the split
    shown = {Path(examples.benchmark).name: tables["test"]} if split is None and request.files else tables
    metric = metric_of(loaded)
    for title, rows in titled_tables(shown, metric):
        show_rows(title, rows)
    for line in sentences(shown, metric):
        out.print(line, markup=False)
    notes = {"checkpoint": calibration_problem(loaded.model), "--exit_threshold": note}
    notes |= {name: result.get("unusual_inputs") for name, result in shown.items()}
    for name, text in notes.items():
        if text is not None:
            err.print(f"warning: {name}: {text}", markup=False)
    if output is not None and is_first():
        write_json(output, {"splits": tables})


def measure_card(
    folder: str, checkpoint: "Checkpoint", request: "Request", batch_size: int
) -> dict[str, dict[str, Any]]:
    """Measure splits of a card's results again, and write it with them -> their tables.

    Raises:
        ValueError: the folder has no card, or its results are not of these examples.
    """
    from ..hub.results import RESULTS_FILE, put_results, read_results, stored_digest
    from ..tasks.checkpoints import evaluation_splits, recipe_of_training, requested_task
    from ..training.arguments import ReportArguments
    from ..training.results import evaluate_run, remeasured
    from ..utils import changed_files
    from .shared import made_by_first

    before = read_results(folder) if Path(folder).is_dir() else None
    if before is None or before["data"] is None:
        raise ValueError(f"--card: {folder} has no {RESULTS_FILE} of a training run: leave --card out")
    if request.is_own and (sliced := recipe_of_training(folder).get("slice_by")):
        request = replace(request, arguments={"slice_by": sliced, **request.arguments})
    with made_by_first(changed_files(folder), folder) as change:
        task = requested_task(checkpoint, request)
        splits = list(evaluation_splits(checkpoint, request, task))
        # splits of another config than that of training have its name
        config = task.data.benchmark_config
        other = not request.is_own and config != before["data"]["config"]
        names = {split.name: f"{config}/{split.name}" if other else split.name for split in splits}
        place = (checkpoint.model, checkpoint.tokenizer, splits, change.new)
        found, shown = evaluate_run(*place, ReportArguments(), batch_size, progress=True)
        tables = {names[name]: table for name, table in found.items()}
        put_results(change, remeasured(before, tables, shown, stored_digest(folder)), before=before)
    return tables


def evaluate_documents(
    checkpoint: "Checkpoint", request: "Request", segment_length: int | None, batch_size: int
) -> dict[str, dict[str, Any]]:
    """Split name -> table of losses of long documents (see `recurrence_table`).

    Raises:
        ValueError: a checkpoint that cannot read documents, or a segment that does not fit it.
    """
    from ..analysis.losses import default_segment_length
    from ..tasks import get_task
    from ..tasks.base import Split, some_examples
    from ..tasks.checkpoints import wanted_splits
    from ..training.documents import check_segment_length

    kind, model = get_task("long-documents"), checkpoint.model
    if checkpoint.task.auto_class != kind.auto_class:
        raise ValueError(
            f"{checkpoint.name} is {checkpoint.task.model_kind}, but {request.benchmark} has no labels: evaluate an "
            f"{kind.auto_class} on it"
        )
    length = default_segment_length(model.config) if segment_length is None else segment_length
    check_segment_length(model.config, length)
    params = {"benchmark_params": dict(request.params), "data_dir": request.data_dir, "eval_segment_length": length}
    task = kind(kind.arguments(benchmark_config=request.config, **params))
    splits, tables = task.source.splits, {}
    for name in wanted_splits(request, task, list(splits)):
        split = Split(task, name, some_examples(splits[name], request.limit))
        _, tables[name] = split.measure(model, checkpoint.tokenizer, batch_size, progress=True)
    return tables


def set_exit(config: Any, criterion: str | None, threshold: float | None) -> None:
    """Let another exit criterion stop a model, or its own at another threshold.

    Raises:
        ValueError: layers are not shared, or the threshold is out of range or belongs to another criterion.
    """
    from ..models.depth.exit_criteria import ExitOptions, resolve_exit

    if criterion is None and threshold is None:
        return
    if config.capabilities.exit_criterion is None:
        raise ValueError(
            f"exit_criterion is {criterion!r} and exit_threshold {threshold!r}, but layers of {config.model_type!r} "
            "are not shared: its depth is fixed, leave them out"
        )
    name = config.exit_criterion if criterion is None else criterion
    resolve_exit(config, ExitOptions(name, threshold))
    config.exit_criterion, config.exit_calibration = name, None
    if threshold is not None:
        config.exit_threshold = threshold
