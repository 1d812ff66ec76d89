"""`hf-recurrent evaluate`: accuracy and halting statistics of a checkpoint on a benchmark."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..templating import NOTHING, percent
from . import options
from .console import err, out, quiet_libraries, table

if TYPE_CHECKING:
    from ..training.evaluate import Checkpoint, Request


@options.takes_examples
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
        typer.Option(min=1, max=options.MOST, help="Of long documents: tokens read at a time; 8 windows if not given."),
    ] = None,
    carry: Annotated[
        list[str] | None,
        typer.Option(help="Of long documents: document, segment or state; may be repeated, all if not given."),
    ] = None,
    train_file: Annotated[
        str | None, options.own_file("Of models of words or tokens: file of training, which makes one expected.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(dir_okay=False, callback=options.in_a_folder, help="Write the tables to this file too."),
    ] = None,
    card: Annotated[bool, typer.Option("--card", help="Measure the results of the checkpoint's card again.")] = False,
) -> None:
    """Evaluate a checkpoint: accuracy and depth steps by split and difficulty, or bits per byte of long documents."""
    from ..files import write_json
    from ..inference.processes import is_first
    from ..models.common.exit_calibration import calibration_problem
    from ..models.common.exit_criteria import ExitOptions, default_threshold_problem
    from ..training.evaluate import (
        OF_QUESTIONS,
        OF_SEQUENCES,
        OF_TOKENS,
        data_arguments,
        evaluate_checkpoint,
        load_checkpoint,
    )
    from ..training.objectives import LONG_DOCUMENTS
    from . import evaluate_documents as documents

    quiet_libraries()
    request = examples.request(split, limit, train_file=train_file)
    depth_options = {"max_depth": max_depth, "halting_threshold": halting_threshold}
    rule = {"exit_criterion": exit_criterion, "exit_threshold": exit_threshold}
    reading = {"segment_length": segment_length, "carry": carry}
    reads = request.own is None and data_arguments(request).benchmark == LONG_DOCUMENTS
    check_unused(
        {**depth_options, **rule} if reads else reading,
        "shorter sequences" if reads else f"long documents ({LONG_DOCUMENTS})",
    )
    kinds = (*OF_SEQUENCES, *OF_TOKENS, *OF_QUESTIONS)
    loaded = load_checkpoint(checkpoint, device, revision, options.precision(dtype), kinds)
    set_exit(loaded.model.config, exit_criterion, exit_threshold)
    note = default_threshold_problem(loaded.model.config, ExitOptions())
    if card:
        check_unused({**depth_options, **rule, **reading, "limit": limit}, "results that no card has")
        tables = measure_card(checkpoint, loaded, request, batch_size or 64)
    elif reads:
        tables = documents.evaluate(loaded, request, segment_length, batch_size or 8, carry)
    else:
        tables = evaluate_checkpoint(loaded, request, batch_size=batch_size or 64, **depth_options, progress=True)
    # a file without another name is called by its own; for programs it stays the split
    is_file = request.own is not None and request.own.files
    shown = {Path(examples.benchmark).name: tables["test"]} if split is None and is_file else tables
    warnings = {"checkpoint": calibration_problem(loaded.model), "--exit-threshold": note}
    warnings |= {name: result.get("unusual_inputs") for name, result in shown.items()}
    drawn, lines = presented(loaded, request, shown, reads)
    for each in drawn:
        out.print(each)
    for line in lines:
        out.print(line)
    for line in further(shown):
        out.print(line, markup=False)
    for name, warning in warnings.items():
        if warning is not None:
            err.print(f"warning: {name}: {warning}", markup=False)
    if json is not None and is_first():
        write_json(json, {"splits": tables})


def measure_card(
    folder: str, checkpoint: "Checkpoint", request: "Request", batch_size: int
) -> dict[str, dict[str, Any]]:
    """Measure the results of a card again, and write it with them -> its tables by split.

    Raises:
        ValueError: the folder has no card, or its results are not of examples that the request names.
    """
    from ..files import changed_files
    from ..hub.card import put_card
    from ..hub.lint import CARD_FILE
    from ..training.reevaluation import prepare_reevaluation
    from .shared_change import made_by_first

    if not (Path(folder) / CARD_FILE).is_file():
        raise ValueError(f"--card: {folder} has no {CARD_FILE}, which a training run writes: leave --card out")
    with made_by_first(changed_files(folder), folder) as change:
        again = prepare_reevaluation(folder, checkpoint, request)
        if again.kept is not None:
            raise ValueError(f"--card: the results of the card cannot be measured again: {again.kept}")
        measured = again.evaluated(checkpoint, change.new, batch_size, progress=True)
        put_card(change, measured, before=again.card)
    return {result.split: result.table for result in measured.results}


def presented(
    checkpoint: "Checkpoint", request: "Request", tables: dict[str, dict[str, Any]], reads: bool
) -> tuple[list[Any], list[str]]:
    """The tables to print, and the meanings of their headings.

    Args:
        reads: whether long documents were read.
    """
    from ..training.card import metric_of
    from ..training.evaluate import OF_QUESTIONS, OF_TOKENS, reads_texts
    from . import evaluate_documents as documents
    from . import evaluate_texts as texts

    if reads or reads_texts(checkpoint, request):
        language = documents if reads else texts
        return language.drawings(tables), language.legend(tables)
    own_metric = checkpoint.objective in (*OF_TOKENS, *OF_QUESTIONS)
    metric = checkpoint.objective.metric if own_metric else metric_of(checkpoint.model.config.problem_type)
    return drawings(tables, metric), legend(tables, metric)


def set_exit(config: Any, criterion: str | None, threshold: float | None) -> None:
    """Let another exit criterion stop a model, or its own at another threshold.

    Raises:
        ValueError: layers are not shared, or the threshold is out of range or belongs to another criterion.
    """
    from ..models.common.exit_criteria import ExitOptions, resolve_exit

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


def check_unused(options: dict[str, Any], meant_for: str) -> None:
    """Raise a ValueError for options that were given and have no meaning here."""
    given = [f"--{name.replace('_', '-')} {value}" for name, value in options.items() if value is not None]
    if given:
        raise ValueError(f"{' and '.join(given)}: this is for {meant_for}, leave it out")


def drawings(tables: dict[str, dict[str, Any]], metric: str) -> list[Any]:
    """A table of the splits, and for each split how it halts and a table for each slice column."""
    drawn, heads = [], columns(tables, metric)
    drawn.append(
        table(metric_label(metric), [("split", False), *heads], ([name, *cells(row)] for name, row in tables.items()))
    )
    for name, result in tables.items():
        drawn += [] if result["fixed_depth"] else [Text(halting(name, result))]
        for column, data in result["slices"].items():
            if len(data["rows"]) == 1:
                # the table of the splits has all of it
                continue
            rows = ([row["value"], *cells(row)] for row in data["rows"])
            drawn.append(table(f"{name} by {column}", [(column, False), *heads], rows))
        for column, data in (result.get("tokens") or {}).items():
            rows = ([row["value"], f"{row['n']:,}", *depth(row["steps"])] for row in data["rows"])
            drawn.append(table(f"{name} by {column} of the token", [(column, False), ("tokens", True), *DEPTH], rows))
    return drawn


DEPTH = [("mean steps", True), ("p95", True), ("max", True)]


def metric_label(metric: str) -> str:
    from ..hub.tasks import METRICS

    label = METRICS[metric].label
    return label if label.isupper() else label.lower()


def columns(tables: dict[str, dict[str, Any]], metric: str) -> list[tuple[str, bool]]:
    """Headings of the `cells`; those of a language model have the last read and all reads apart."""
    constant = "mean" if metric == "r_squared" else "majority"
    measured = ["last read", constant, "all reads"] if is_language_model(tables) else [metric_label(metric), constant]
    return [("n", True), *((heading, True) for heading in measured), *DEPTH]


def is_language_model(tables: dict[str, dict[str, Any]]) -> bool:
    """Whether the tables are a language model's."""
    return all("labelled_tokens" in result for result in tables.values())


def legend(tables: dict[str, dict[str, Any]], metric: str) -> list[str]:
    """Meanings of the headings."""
    from ..models.common.exit_criteria import CRITERIA

    lines = [MEANINGS.get(metric, "majority: accuracy of the most frequent answer.")]
    if is_language_model(tables):
        lines.insert(0, "last read: share of strings whose last read is right; all reads: share of all reads.")
    rules = {result["halting"] for result in tables.values() if not result["fixed_depth"]}
    if not rules:
        return lines
    mass = "its halting mass, summed over depth, reaches the threshold"
    counted = COUNTED.get(metric, "an example")
    return [*lines, STEPS_LEGEND.format(counted, "its exit criterion holds" if rules & CRITERIA.keys() else mass)]


def further(tables: dict[str, dict[str, Any]]) -> list[str]:
    """Scores beside those of the tables, a line for each split."""
    from ..training.evaluation import named_scores

    lines = []
    for name, result in tables.items():
        scores = {key: f"{value:.3f}" for key, value in named_scores(result, " ").items()}
        if "bleu" in result:
            scores["BLEU"] = f"{result['bleu']:.1f} ({result['bleu_signature']})"
        if scores:
            lines.append(f"{name}: {', '.join(f'{key} {value}' for key, value in scores.items())}")
    return lines


MEANINGS = {
    "exact_labels": "exact labels: examples all of whose labels are predicted, and no other; majority: the same of the "
    "most frequent set of labels.",
    "r_squared": "R²: share of the labels' variance that predictions explain; mean: that of the mean.",
}
# what n counts, if not examples
COUNTED = {"word_accuracy": "a word", "masked_accuracy": "a masked token"}
STEPS_LEGEND = (
    "mean steps, p95 (95th percentile): depth steps of {}; max: of the deepest unit. A unit halts when {}; "
    "a forced halt is one at the depth limit without that."
)


def cells(row: dict[str, Any]) -> list[str]:
    """n, accuracy, majority baseline and steps of a split or slice, with all reads of a language model."""
    shares = [row["accuracy"], row["majority_baseline"]]
    if "labelled_tokens" in row:
        shares.append(row["labelled_tokens"]["accuracy"])
    return [f"{row['n']:,}", *map(percent, shares), *depth(row["steps"])]


def depth(steps: dict[str, float] | None) -> list[str]:
    """Mean, 95th percentile and maximum of the steps of a split or slice."""
    return [f"{steps['mean']:.2f}", f"{steps['p95']:.2f}", f"{steps['max']:g}"] if steps else [NOTHING] * 3


def halting(name: str, result: dict[str, Any]) -> str:
    """A line on how a split halts, and one on how its steps follow difficulty."""
    from ..hub.findings import steps_name, trends
    from ..models.common.exit_criteria import CRITERIA

    related = [
        f"{item['column']} {item['spearman']:+.2f} ({item['direction']})"
        for item in trends(result)
        if item["spearman"] is not None
    ]
    reads = result.get("answer_steps")
    at_reads = "" if reads is None else f"{reads['mean']:.2f} on average at the last read, "
    rule, threshold = result["halting"], result["threshold"]
    at = "" if threshold is None else f" at {threshold:g}" if rule in CRITERIA else f" at a mass of {threshold:g}"
    by = f" by {rule}" if rule in CRITERIA else ""
    return (
        f"{name}: each {result['unit']} halts{by}{at}; "
        f"median {result['steps']['median']:g} of at most {result['max_depth']} steps, "
        f"{at_reads}ponder cost {result['ponder_cost']:.2f}, "
        f"forced halts {result['forced_halt_rate']:.1%}\n"
        f"rank correlation of {steps_name(result)} with {', '.join(related) or 'no column is defined'}\n"
    )
