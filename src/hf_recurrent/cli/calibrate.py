"""`hf-recurrent calibrate`: the exit criterion and threshold that stop a checkpoint early without costing accuracy."""

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..templating import number, percent, steps
from . import options
from .console import out, quiet_libraries, table, wrote

if TYPE_CHECKING:
    from ..analysis.calibration import Examples
    from ..benchmarks import BenchmarkInfo
    from ..files import Change
    from ..training.arguments import DataArguments
    from ..training.data import EvaluationSplit
    from ..training.evaluate import Checkpoint as LoadedCheckpoint
    from ..training.evaluate import Request

# the column of difficulty, where there are several
USUAL_DIFFICULTY = "depth"


Checkpoint = Annotated[
    str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a checkpoint that iterates one block.")
]
Split = Annotated[str, typer.Option(help="Examples to calibrate on, unseen in training.")]
TestSplits = Annotated[
    list[str] | None,
    typer.Option(help="Examples to check the choice on; may be repeated, the first test split if not given."),
]
TestFile = Annotated[
    str | None, options.own_file("File to check the choice on; the file to calibrate on is the argument.")
]
Tolerance = Annotated[float, typer.Option(help="Largest risk: share of answers that stopping early costs.")]
Confidence = Annotated[float, typer.Option(help="Probability with which the risk is no larger.")]
Budget = Annotated[
    str | None,
    typer.Option(metavar="depth=SHARE|time=SHARE", help="Choose by this share of full depth, without a promise."),
]
Criteria = Annotated[
    list[str] | None,
    typer.Option(help="An exit criterion to choose from; may be repeated, all that the model has if not given."),
]
MaxDepth = Annotated[int | None, typer.Option(min=1, help="Full depth instead of the checkpoint's.")]
WithoutLabels = Annotated[
    bool, typer.Option("--without-labels", help="Count every answer that differs from full depth as an error.")
]
Difficulty = Annotated[
    str | None, typer.Option(help="Column that steps are compared with; depth or the first one if not given.")
]
Repeats = Annotated[int, typer.Option(min=1, max=options.MOST, help="Passes that are timed; the median counts.")]
Copy = Annotated[
    Path | None,
    typer.Option(
        "--out",
        file_okay=False,
        callback=options.a_folder,
        help="New folder for a changed copy; if not given, in place.",
    ),
]

TrainFile = Annotated[
    str | None, options.own_file("With --card, of a model of words: file of training, which makes a label expected.")
]
Card = Annotated[bool, typer.Option("--card", help="Measure the card's results again, and show all of it there.")]


@options.takes_examples
def calibrate(
    checkpoint: Checkpoint,
    examples: options.Examples,
    split: Split = "validation",
    test_split: TestSplits = None,
    test_file: TestFile = None,
    tolerance: Tolerance = 0.01,
    confidence: Confidence = 0.95,
    budget: Budget = None,
    criterion: Criteria = None,
    max_depth: MaxDepth = None,
    without_labels: WithoutLabels = False,
    difficulty: Difficulty = None,
    limit: options.Limit = 2000,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 64,
    repeats: Repeats = 3,
    folder: Copy = None,
    card: Card = False,
    train_file: TrainFile = None,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Choose when a checkpoint stops early: the fastest threshold that keeps its accuracy, with a guarantee."""
    from ..analysis.calibration import Goal
    from ..analysis.calibration import calibrate as calibrated
    from ..analysis.exit_settings import check_criteria
    from ..hub.card import put_card
    from ..hub.card_data import without_quotes
    from ..hub.converted_card import is_converted, put_calibrated
    from ..hub.sections import with_calibration
    from ..hub.staging import quotes_examples
    from ..training.evaluate import OF_SEQUENCES, OF_TOKENS, load_checkpoint, requested_data
    from ..training.objectives import MULTIPLE_CHOICE
    from ..training.reevaluation import prepare_reevaluation
    from .sweep import conditions

    quiet_libraries()
    check_card(checkpoint, folder, card)
    goal = Goal(tolerance, confidence, parse_budget(budget), not without_labels)
    goal.check()
    with destination(checkpoint, folder, revision) as change:
        kinds = (*OF_SEQUENCES, *OF_TOKENS, MULTIPLE_CHOICE)
        loaded = load_checkpoint(checkpoint, device, revision, "auto", kinds)
        goal.check_number(limit, len(check_criteria(loaded.model, criterion)))
        request = request_of(examples, (split, *(test_split or ())), test_file, train_file, not without_labels)
        warn_of_training_files(loaded, request)
        again = prepare_reevaluation(checkpoint, loaded, request) if card and not is_converted(checkpoint) else None
        arguments = requested_data(loaded, request)
        column = difficulty_column(difficulty, arguments)
        own, *tests = (
            with_texts(rows, loaded.tokenizer, batch_size, arguments.info, column)
            for rows in calibration_splits(loaded, request, limit, seed)
        )
        ways = {"criteria": criterion, "max_depth": max_depth, "answer_name": answer_name(loaded), "repeats": repeats}
        found = calibrated(loaded.model, own[1], dict(tests), goal, **ways, progress=True)
        source = {"benchmark": arguments.benchmark, "benchmark_config": arguments.benchmark_config, "split": split}
        found = {**source, **found, **conditions(loaded.model, batch_size), "seed": seed, "difficulty": column}
        if request.own is not None and not quotes_examples(Path(checkpoint)):
            found = without_quotes(found)
        show(found)
        if found["chosen"] is None:
            out.print("Nothing is stored: the checkpoint stays as it is.")
            raise typer.Exit(1)
        fields = store(loaded, found, source, change, in_place=folder is None)
        if again is not None:
            measured = again.card
            if again.kept is None:
                # as its users load it
                stopping = load_checkpoint(checkpoint, device, None, "auto", kinds)
                stopping.model.config.update(fields)
                measured = again.evaluated(stopping, change.new, batch_size, progress=True)
            put_card(change, with_calibration(measured, found, change.new), before=again.card)
        elif card:
            put_calibrated(change, checkpoint, found)
    for path in change.written if folder is None else [folder]:
        wrote(path)
    tell_of_card(None if again is None else again.kept, not card and folder is None and has_card(checkpoint))


def tell_of_card(kept: str | None, outdated: bool) -> None:
    """Print why a card keeps earlier results, or that it is out of date."""
    if kept is not None:
        out.print(f"The card keeps its results of before the calibration: {kept}.", markup=False)
    if outdated:
        out.print("The card does not tell of this exit yet: give --card, too, before it is published.")


def request_of(
    examples: options.Examples, splits: Sequence[str], test_file: str | None, train_file: str | None, labelled: bool
) -> "Request":
    """The data to calibrate and test on, of which a user's own need labels if they are to be `labelled`."""
    files = {} if test_file is None else {"test": test_file}
    request = examples.request(splits, files=files, train_file=train_file)
    return request if request.own is None else replace(request, own=replace(request.own, labelled=labelled))


def warn_of_training_files(checkpoint: "LoadedCheckpoint", request: "Request") -> None:
    """Warn if a file to calibrate or test on has the name of the file of training."""
    from ..hub.inputs import training_file

    trained = training_file(checkpoint.inputs)
    for place in () if request.own is None else request.own.files.values():
        if Path(place).name == trained:
            warnings.warn(
                f"the checkpoint was trained on a file {trained!r}: a guarantee asks for examples "
                f"that training had not, so give others if {place} is that file",
                stacklevel=2,
            )


def calibration_splits(
    checkpoint: "LoadedCheckpoint", request: "Request", limit: int, seed: int
) -> Iterator["EvaluationSplit"]:
    """The requested splits, of which the first is for calibration; without a second one the first test split, too."""
    from .sweep import encoded

    yield from encoded(checkpoint, request, limit, seed)
    own = request.own
    if len(request.splits) > 1 or (own is not None and own.files):
        return
    for rows in encoded(checkpoint, replace(request, splits=()), limit, seed):
        # a data set without tests gives its validation examples, and a benchmark what was asked for already
        if rows.name not in request.splits:
            yield rows


def store(
    checkpoint: "LoadedCheckpoint", found: dict[str, Any], source: dict[str, str], change: "Change", in_place: bool
) -> dict[str, Any]:
    """Store a choice in the checkpoint's folder or, if not `in_place`, a calibrated copy -> the new config fields."""
    from ..analysis.calibration import calibrated_fields
    from ..analysis.tables import CALIBRATION_FILE
    from ..files import write_json
    from ..hub.checkpoint import put_config, save_checkpoint

    fields = calibrated_fields(checkpoint.model, found, **source)
    if in_place:
        put_config(change, fields)
    else:
        checkpoint.model.config.update(fields)
        save_checkpoint(checkpoint.model, change.new, checkpoint.tokenizer)
    write_json(change.new / CALIBRATION_FILE, found)
    return fields


def destination(checkpoint: str, folder: Path | None, revision: str | None = None) -> AbstractContextManager["Change"]:
    """A change of the checkpoint's folder, or one that makes the new `folder` of a copy.

    Raises:
        ValueError: there is no place for the files.
    """
    from ..files import changed_files
    from .shared_change import made_by_first

    if folder is not None:
        return made_by_first(copied(checkpoint, folder, revision), folder)
    if not Path(checkpoint).is_dir():
        raise ValueError(f"checkpoint {checkpoint} is no local folder: name a new one for a changed copy with --out")
    return made_by_first(changed_files(checkpoint), checkpoint)


@contextmanager
def copied(checkpoint: str, folder: Path, revision: str | None) -> Iterator["Change"]:
    """A change that makes a new folder with a copy of a checkpoint."""
    from ..files import Change, new_folder
    from ..hub.base_model import write_lineage
    from ..hub.inputs import write_inputs
    from ..training.model import revision_options
    from ..training.recipes import RECIPE_FILE

    recipe = Path(checkpoint) / RECIPE_FILE
    with new_folder(folder, lambda _: refuse(folder)) as built:
        yield Change(folder, built)
        write_lineage(built, checkpoint, revision)
        # the copy reads texts as the checkpoint does
        write_inputs(built, checkpoint, **revision_options(checkpoint, revision))
        if recipe.is_file():
            shutil.copyfile(recipe, built / RECIPE_FILE)


def refuse(folder: Path) -> None:
    raise ValueError(f"--out: {folder} is not empty; name a new folder, or leave it out to change the checkpoint")


def has_card(checkpoint: str) -> bool:
    """Whether a folder has the data of a card."""
    from ..hub.base_model import CARD_FILE, CONVERTED_FILE

    return any((Path(checkpoint) / name).is_file() for name in (CARD_FILE, CONVERTED_FILE))


def check_card(checkpoint: str, folder: Path | None, card: bool) -> None:
    """Raise a ValueError if there is no card where there should be one."""
    from ..hub.base_model import CARD_FILE, CONVERTED_FILE

    if card and (folder is not None or not has_card(checkpoint)):
        raise ValueError(
            f"--card: {folder or checkpoint} has no {CARD_FILE}; a training run writes it, and `convert` its "
            f"{CONVERTED_FILE}: leave --card out"
        )


def parse_budget(text: str | None) -> tuple[str, float] | None:
    """The measure and share of a budget.

    Raises:
        ValueError: it is neither of depth nor of time, or its share is no number.
    """
    from ..analysis.calibration import MEAN_DEPTH, RELATIVE_TIME

    if text is None:
        return None
    measures = {"depth": MEAN_DEPTH, "time": RELATIVE_TIME}
    name, _, share = text.partition("=")
    try:
        return measures[name], float(share)
    except (KeyError, ValueError) as error:
        raise ValueError(f"budget is {text!r}: pass a share of full depth, as in depth=0.5 or time=0.5") from error


def difficulty_column(name: str | None, arguments: "DataArguments") -> str | None:
    """The slice column that steps are compared with; blocks with parts of several documents have none.

    Warns if examples are such blocks.

    Raises:
        ValueError: the examples have no such column.
    """
    columns = arguments.info.slice_columns
    if getattr(arguments, "pack", False):
        columns = ()
        warnings.warn(
            "blocks of one document depend on each other, and the guarantee asks for independent draws: give "
            "--line-by-line for a block of each document",
            stacklevel=2,
        )
    if name is None:
        return USUAL_DIFFICULTY if USUAL_DIFFICULTY in columns else next(iter(columns), None)
    if name not in columns:
        remedy = "name one of them" if columns else "leave it out, give --line-by-line if they are packed texts"
        raise ValueError(
            f"difficulty is {name!r}: the examples have {', '.join(columns) or 'no columns of difficulty'}; {remedy}, "
            "or name one of your file with --slice-by, too"
        )
    return name


def with_texts(
    rows: "EvaluationSplit", tokenizer: Any, batch_size: int, info: "BenchmarkInfo", column: str | None
) -> tuple[str, "Examples"]:
    """The name of a split, and its examples with the texts that the model reads and their difficulty."""
    from ..analysis.calibration import Examples

    names = [name for name in info.text_columns if name != info.target_column]
    read = [rows.dataset[name][:] for name in names if name in rows.dataset.column_names]
    if not read:
        # blocks, with masks
        read = [tokenizer.batch_decode(rows.dataset["input_ids"][:])]
    # a text may be a list of words
    whole = [[text if isinstance(text, str) else " ".join(text) for text in column] for column in read]
    texts = [" | ".join(parts) for parts in zip(*whole, strict=True)]
    difficulty = None if column is None else rows.dataset[column][:]
    return rows.name, Examples(rows.batches(tokenizer, batch_size), texts, difficulty)


def answer_name(checkpoint: "LoadedCheckpoint") -> Callable[[Any], str]:
    """Function of a class id, joined labels, token id, tuple of token ids, or array of those of tokens to its text."""
    from ..text_data.labels import MULTI
    from ..training.objectives import CLASSIFICATION, MASKED_MODELLING, MULTIPLE_CHOICE, TOKEN_CLASSIFICATION

    config = checkpoint.model.config
    if checkpoint.objective is TOKEN_CLASSIFICATION:
        return lambda answer: " ".join(str(config.id2label[int(label)]) for label in answer)
    if checkpoint.objective is MASKED_MODELLING:
        return lambda answer: " ".join(checkpoint.tokenizer.decode([token]) for token in answer)
    if checkpoint.objective is MULTIPLE_CHOICE:
        return lambda answer: str(int(answer))
    if checkpoint.objective is CLASSIFICATION:
        # several labels are joined names already
        joined = config.problem_type == MULTI
        return str if joined else lambda answer: str(config.id2label[int(answer)])
    return lambda answer: checkpoint.tokenizer.decode(answer, skip_special_tokens=True)


HEADS = (("threshold", True), ("accuracy", True), ("steps", True), ("time", True), ("errors", True), ("safe", False))


def show(found: dict[str, Any]) -> None:
    """Print what was chosen, and how it does on further splits."""
    title = f"{found['split']}: {found['n']:,} examples, at most {found['max_depth']} steps"
    out.print(table(title, [("criterion", False), *HEADS], curve_lines(found)))
    for line in (*verdict(found), *little_learned(found)):
        out.print(line, markup=False)
    for name, test in found["tests"].items():
        heads = [(found["difficulty"] or "", False), ("n", True), ("accuracy", True), ("full depth", True)]
        every = {"value": "all", **test}
        lines = ([row["value"], *test_cells(row)] for row in (*test["by_difficulty"], every))
        out.print(table(name, [*heads, ("steps", True)], lines))
        trend = (
            "" if test["spearman"] is None else f", rank correlation of steps and difficulty {test['spearman']:+.2f}"
        )
        out.print(f"{name}: risk {percent(test['risk'])}, time {percent(test['relative_time'])}{trend}", markup=False)


def curve_lines(found: dict[str, Any]) -> list[list[str]]:
    """Full depth; and the whole curve of a single criterion, or of several the threshold chosen of each."""
    full = found["full_depth"]
    lines = [["full depth", "", *run_cells(full), "", ""]]
    for name, own in found["criteria"].items():
        rows = own["curve"]
        if len(found["criteria"]) > 1:
            rows = [row for row in rows if setting_value(row) == own["chosen"]]
        cells = (
            [name, f"{setting_value(row):g}", *run_cells(row), percent(row["risk"]), "yes" if row["safe"] else "no"]
            for row in rows
        )
        lines += list(cells) or [[name, "none", "", "", "", "", ""]]
    return lines


def setting_value(row: dict[str, Any]) -> float:
    """The threshold of a row, or the patience of a criterion without."""
    return row["patience"] if row["threshold"] is None else row["threshold"]


def run_cells(row: dict[str, Any]) -> list[str]:
    return [percent(row["accuracy"]), steps(row["mean_depth"]), percent(row["relative_time"])]


def test_cells(row: dict[str, Any]) -> list[str]:
    return [f"{row['n']:,}", percent(row["accuracy"]), percent(row["full_accuracy"]), steps(row["mean_depth"])]


def little_learned(found: dict[str, Any]) -> list[str]:
    """A warning if full depth is hardly better than the most frequent answer."""
    from ..metrics.functional import hardly_better

    accuracy, constant = found["full_depth"]["accuracy"], found["full_depth"]["majority_baseline"]
    if accuracy is None or not hardly_better(accuracy, constant, found["n"]):
        return []
    return [
        f"Warning: full depth answers {percent(accuracy)} right, and the most frequent answer alone "
        f"{percent(constant)}. Where little was learned, stopping early costs little: train the model first."
    ]


def verdict(found: dict[str, Any]) -> list[str]:
    """The choice, and what is promised of it."""
    error = {
        "lost": "full depth is right and the early exit wrong",
        "differs": "the early exit answers otherwise than full depth",
    }[found["risk"]]
    lines = [
        f"errors: {error}; time: of a forward pass over that at full depth, of each batch the median of "
        f"{found['repeats']} alternating passes over {found['timed_examples']:,} examples ({found['device']}, batches "
        f"of {found['batch_size']})."
    ]
    chosen, budget = found["chosen"], found["budget"]
    if chosen is None:
        most = f"at most {number(found['tolerance'] * 100)}% errors with a confidence of {percent(found['confidence'])}"
        reason = f"spares steps with {most}" if budget is None else "is within the budget"
        return [*lines, f"No threshold {reason}."]
    setting = f"{chosen['criterion']} at {setting_value(chosen):g}"
    covered = "answers to examples like these"
    if "unit" in found:
        covered = "labelled tokens of a sequence, on average over sequences like these,"
    if budget is None:
        promise = (
            f". With a confidence of {percent(found['confidence'])} at most {number(found['tolerance'] * 100)}% of the "
            f"{covered} are errors, with these weights."
        )
    else:
        promise = ", the best one within the budget; nothing is promised of its errors."
    lines.append(f"Chosen: {setting}{promise}")
    rows = found["criteria"][chosen["criterion"]]["curve"]
    own = next(row for row in rows if setting_value(row) == setting_value(chosen))
    if own["relative_time"] >= 1:
        lines.append(f"It spares steps, but no time here ({percent(own['relative_time'])} of full depth).")
    return [*lines, *rival_lines(own, found["fixed_depths"])]


def rival_lines(exit_row: dict[str, Any], fixed_depths: list[dict[str, Any]]) -> list[str]:
    """The fastest fixed depth that is as accurate as an exit; nothing without labels."""
    from ..hub.findings import fixed_rival

    if exit_row["accuracy"] is None or not fixed_depths:
        return []
    rival = fixed_rival({"calibrated": exit_row, "fixed_depths": fixed_depths})
    if rival is None:
        return ["No fixed depth that was tried is as accurate."]
    depth = f"max_depth={rival['max_depth']} in place of the exit"
    if rival["relative_time"] <= exit_row["relative_time"]:
        return [f"A fixed depth is as accurate in no more time: {depth} takes {percent(rival['relative_time'])}."]
    return [f"The fastest fixed depth as accurate, {depth}, takes {percent(rival['relative_time'])} of the time."]
