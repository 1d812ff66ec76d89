"""`hf-recurrent calibrate`: the early exit or fixed depth that makes a checkpoint fast without costing accuracy."""

import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..utils import number, percent, steps
from . import options
from .console import out, quiet_libraries, show_rows, wrote

if TYPE_CHECKING:
    from ..analysis.calibration import Examples
    from ..tasks.base import Split, Task
    from ..tasks.checkpoints import Checkpoint as LoadedCheckpoint
    from ..utils import Change

# the column of difficulty, where there are several
USUAL_DIFFICULTY = "depth"
# examples in a batch of what is not timed
BATCH_SIZE = 64
ERRORS = {
    "lost": "full depth is right and the setting wrong",
    "differs": "the setting answers otherwise than full depth",
}

Checkpoint = Annotated[
    str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a checkpoint that iterates one block.")
]
MaxDepth = Annotated[
    int | None, typer.Option("--max_depth", min=1, help="Full depth instead of the checkpoint's.", hidden=True)
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        file_okay=False,
        callback=options.a_folder,
        help="New folder for a changed copy; next to the checkpoint if not given.",
    ),
]
InPlace = Annotated[bool, typer.Option("--in_place", help="Change the checkpoint itself instead of a copy.")]


@options.grouped
def calibrate(
    checkpoint: Checkpoint,
    context: typer.Context,
    examples: options.Examples,
    split: Annotated[str, typer.Option(help="Examples to calibrate on, unseen in training.")] = "validation",
    test_split: Annotated[
        list[str] | None,
        typer.Option("--test_split", help="Examples to check the choice on, repeatable; the first test split."),
    ] = None,
    test_file: Annotated[
        str | None, options.own_file("File to check the choice on; the file to calibrate on is the argument.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest risk: share of answers that stopping early costs.")] = 0.01,
    confidence: Annotated[float, typer.Option(help="Probability with which the risk is no larger.")] = 0.95,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="depth=SHARE|time=SHARE",
            help="Choose by this share of full depth, without a guarantee.",
            hidden=True,
        ),
    ] = None,
    criterion: Annotated[
        list[str] | None, typer.Option(help="An exit criterion to choose from, repeatable; all that the model has.")
    ] = None,
    only_exits: Annotated[
        bool, typer.Option("--only_exits", help="Choose an early exit even where a fixed depth is faster.")
    ] = False,
    max_depth: MaxDepth = None,
    without_labels: Annotated[
        bool,
        typer.Option(
            "--without_labels", help="Count every answer that differs from full depth as an error.", hidden=True
        ),
    ] = False,
    difficulty: Annotated[
        str | None,
        typer.Option(help="Column that steps are compared with; depth or the first one if not given.", hidden=True),
    ] = None,
    limit: options.Limit = 2000,
    seed: options.Seed = 0,
    batch_size: Annotated[
        str, typer.Option("--batch_size", help="Batches to be fast with: one size, or several with commas between.")
    ] = "1,32",
    repeats: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Passes that are timed; the median counts.", hidden=True)
    ] = 3,
    output: Output = None,
    in_place: InPlace = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
) -> None:
    """Choose the fastest early exit, or fixed depth, that keeps a checkpoint's accuracy, with a guarantee."""
    from ..analysis.calibration import Goal
    from ..analysis.calibration import calibrate as calibrated
    from ..analysis.exit_settings import check_criteria
    from ..hub.results import may_quote, without_quotes
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint, requested_task
    from .shared import conditions, destination, encoded

    quiet_libraries()
    goal = Goal(tolerance, confidence, parse_budget(budget), not without_labels, parse_sizes(batch_size), repeats)
    goal.check()
    folder, change_of = destination(checkpoint, output, in_place, "calibrated", revision)
    with change_of as change:
        loaded = load_checkpoint(checkpoint, device, revision, "auto", (*OF_TEXTS, *OF_WORDS, "multiple-choice"))
        goal.check_number(limit, check_criteria(loaded.model, criterion))
        files = {} if test_file is None else {"test": test_file}
        request = examples.request((split, *(test_split or ())), files=files, labelled=not without_labels)
        warn_of_training_files(loaded, request.files.values())
        task = requested_task(loaded, request)
        splits = list(encoded(loaded, request, limit, seed, task))
        if len(splits) == 1 and not request.files:
            # a data set without tests gives its validation examples, and a benchmark what was asked for already
            others = encoded(loaded, replace(request, splits=()), limit, seed, task)
            splits += [rows for rows in others if rows.name not in request.splits]
        column = difficulty_column(difficulty, task, splits[0].slice_columns)
        own, *tests = (with_texts(rows, loaded.tokenizer, column) for rows in splits)
        ways = {"criteria": criterion, "only_exits": only_exits, "max_depth": max_depth}
        found = calibrated(
            loaded.model, own[1], dict(tests), goal, **ways, answer_name=answer_name(loaded), progress=True
        )
        place = Path(request.benchmark or examples.dataset).name if request.is_own else task.source.name
        source = {"benchmark": place, "benchmark_config": task.source.config, "split": split}
        found = {**source, **found, **conditions(loaded.model), "seed": seed, "difficulty": column}
        if request.is_own and not may_quote(loaded.results):
            found = without_quotes(found)
        show(found)
        if found["chosen"] is None:
            out.print("Nothing is stored: the checkpoint stays as it is.")
            raise typer.Exit(1)
        found["arguments"] = None if request.is_own else words_after(checkpoint, context.obj, found)
        store(change, loaded, found, source, in_place)
    for path in change.written if in_place else [folder]:
        wrote(path)
    if loaded.results and loaded.results["splits"]:
        out.print("The card shows the calibration. `hf-recurrent evaluate` with --card measures its splits again.")


def parse_budget(text: str | None) -> tuple[str, float] | None:
    """The measure and share of a budget.

    Raises:
        ValueError: it is neither of depth nor of time, or its share is no number.
    """
    from ..analysis.calibration import MEAN_DEPTH, RELATIVE_TIME

    if text is None:
        return None
    name, _, share = text.partition("=")
    try:
        return {"depth": MEAN_DEPTH, "time": RELATIVE_TIME}[name], float(share)
    except (KeyError, ValueError) as error:
        raise ValueError(f"budget is {text!r}: pass a share of full depth, as in depth=0.5 or time=0.5") from error


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes of batches of an option, each once.

    Raises:
        ValueError: they are no whole numbers above 0.
    """
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and 0 < int(word) <= options.MOST for word in words):
        raise ValueError(f"--batch_size is {text!r}: pass numbers of examples with commas between, as in 1,32")
    return tuple(dict.fromkeys(map(int, words)))


def warn_of_training_files(checkpoint: "LoadedCheckpoint", files: Iterable[str]) -> None:
    """Warn if a file to calibrate or test on has the name of the file of training."""
    for place in files:
        if Path(place).name == checkpoint.trained_file:
            warnings.warn(
                f"the checkpoint was trained on a file {checkpoint.trained_file!r}: a guarantee asks for examples "
                f"that training had not, so give others if {place} is that file",
                stacklevel=2,
            )


def difficulty_column(name: str | None, task: "Task", columns: Sequence[str]) -> str | None:
    """The slice column that steps are compared with; blocks with parts of several documents have none.

    Warns if examples are such blocks.

    Raises:
        ValueError: the examples have no such column.
    """
    if getattr(task.data, "pack", False):
        columns = ()
        warnings.warn(
            "blocks of one document depend on each other, and the guarantee asks for independent draws: give "
            "--line_by_line for a block of each document",
            stacklevel=2,
        )
    if name is None:
        return USUAL_DIFFICULTY if USUAL_DIFFICULTY in columns else next(iter(columns), None)
    if name not in columns:
        remedy = "name one of them" if columns else "leave it out, give --line_by_line if they are packed texts"
        raise ValueError(
            f"difficulty is {name!r}: the examples have {', '.join(columns) or 'no columns of difficulty'}; {remedy}, "
            "or name one of your file with --slice_by, too"
        )
    return name


def with_texts(split: "Split", tokenizer: Any, column: str | None) -> tuple[str, "Examples"]:
    """The name of a split, and its examples with the texts that the model reads and their difficulty."""
    from ..analysis.calibration import Examples
    from ..tasks.base import TEXTS

    info, rows = split.task.source.info, split.dataset
    known, target = (TEXTS, "target") if info is None else (info.text_columns, info.target_column)
    names = [name for name in known if name in rows.column_names and name != target]
    # blocks, with masks, have no texts
    read = [rows[name][:] for name in names] or [tokenizer.batch_decode(rows["input_ids"][:])]
    texts = [
        # a text may be a list of words
        " | ".join(text if isinstance(text, str) else " ".join(text) for text in parts)
        for parts in zip(*read, strict=True)
    ]
    difficulty = None if column is None else rows[column][:]
    return split.name, Examples(split.batches(tokenizer, BATCH_SIZE), texts, difficulty)


def answer_name(checkpoint: "LoadedCheckpoint") -> Callable[[Any], str]:
    """Function of a class id, joined labels, token id, tuple of token ids, or array of those of tokens to its text."""
    import numpy as np

    config, tokenizer, tag = checkpoint.model.config, checkpoint.tokenizer, checkpoint.task.tag

    def name(answer: Any) -> str:
        # several labels are joined names already
        if isinstance(answer, str) or tag == "multiple-choice":
            return str(answer)
        ids = np.ravel(answer)
        if tag in ("text-classification", "token-classification"):
            return " ".join(str(config.id2label[label]) for label in ids.tolist())
        parts = ids[:, None] if tag == "fill-mask" else ids[None]
        return " ".join(tokenizer.batch_decode(parts, skip_special_tokens=True))

    return name


def words_after(checkpoint: str, words: Sequence[str], found: dict[str, Any]) -> str:
    """The words of a command after the checkpoint, with which a calibrated copy is calibrated again."""
    kept, after = [], iter(words[words.index(checkpoint) + 1 :])
    for word in after:
        if word == "--output":
            # its value
            next(after)
        elif word.partition("=")[0].replace("-", "_") not in ("__output", "__in_place"):
            kept.append(word)
    if found["chosen"]["criterion"] == "fixed_depth" and "--max_depth" not in kept:
        # the checkpoint takes fewer steps now
        kept += ["--max_depth", str(found["max_depth"])]
    return shlex.join(kept)


def store(
    change: "Change", checkpoint: "LoadedCheckpoint", found: dict[str, Any], source: dict[str, str], in_place: bool
) -> None:
    """Let a checkpoint stop as was chosen, in its own folder or in a copy, and show it on the card, if there is one."""
    from ..analysis.calibration import apply_calibration
    from ..hub.checkpoint import put_config, save_checkpoint
    from ..hub.results import CALIBRATION_FILE, put_results, read_results, stored_digest, with_calibration
    from ..utils import write_json

    model = checkpoint.model
    weights = len(model.state_dict())
    fields = apply_calibration(model, found, **source)
    # classifiers of steps that are no longer taken may be gone
    changed = len(model.state_dict()) != weights
    if in_place and not changed:
        put_config(change, fields)
    else:
        save_checkpoint(model, change.new, None if in_place else checkpoint.tokenizer)
    write_json(change.new / CALIBRATION_FILE, found)
    before = read_results(change.folder if in_place else change.new)
    if before is not None:
        results = with_calibration(before, found, change.new)
        if changed and results["training"]:
            results["training"] = {**results["training"], "weights": stored_digest(change.new)}
        put_results(change, results, before=before)


def show(found: dict[str, Any]) -> None:
    """Print what was chosen, and how it does on further splits."""
    show_rows(f"{found['split']}: {found['n']:,} examples, at most {found['max_depth']} steps", setting_rows(found))
    out.print(*verdict(found), *little_learned(found), sep="\n", markup=False)
    for name, test in found["tests"].items():
        column, rows = found["difficulty"] or "", (*test["by_difficulty"], {"value": "all", **test})
        show_rows(name, ({column: row["value"], **test_cells(row)} for row in rows))
        line, related = f"{name}: risk {percent(test['risk'])}, time {percent(test['relative_time'])}", test["spearman"]
        if related is not None:
            line += f", rank correlation of steps and difficulty {related:+.2f}"
        if found["budget"] is None and test["risk"] > found["tolerance"]:
            line += (
                f". This risk is above the tolerance of {number(found['tolerance'] * 100)}%: the guarantee holds for "
                "data like the calibration's only."
            )
        out.print(line, markup=False)


def setting_rows(found: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Full depth, and of fixed depths and of each criterion the certified setting with the fewest steps."""
    yield setting_cells("full depth", found["full_depth"])
    leaders = {"fixed depth": fastest(found["fixed_depths"])}
    for name, own in found["criteria"].items():
        leaders[name] = next((row for row in own["curve"] if value_of(row) == own["chosen"]), None)
    for name, row in leaders.items():
        yield setting_cells(f"{name}: none" if row is None else f"{name} {value_of(row):g}", row or {})


def setting_cells(name: str, row: dict[str, Any]) -> dict[str, str]:
    time, own = row.get("relative_time"), "safe" in row
    return {
        "setting": name,
        "accuracy": percent(row["accuracy"]) if row else "",
        "steps": steps(row["mean_depth"]) if row else "",
        "time": "" if time is None else percent(time),
        "errors": percent(row["risk"]) if own else "",
        "certified": ("yes" if row["safe"] else "no") if own else "",
    }


def test_cells(row: dict[str, Any]) -> dict[str, str]:
    return {
        "n": f"{row['n']:,}",
        "accuracy": percent(row["accuracy"]),
        "full depth": percent(row["full_accuracy"]),
        "steps": steps(row["mean_depth"]),
    }


def fastest(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """The fastest of those rows that were timed."""
    timed = (row for row in rows if row["relative_time"] is not None)
    return min(timed, key=lambda row: row["relative_time"], default=None)


def value_of(row: dict[str, Any]) -> float:
    """The threshold or depth of a row, or the patience of a criterion without a threshold."""
    return next(row[name] for name in ("threshold", "max_depth", "patience") if row.get(name) is not None)


def setting_name(row: dict[str, Any]) -> str:
    """A setting for readers."""
    if row.get("max_depth") is not None:
        return f"a fixed depth of {row['max_depth']}"
    return f"{row['criterion']} at {value_of(row):g}"


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
    """The choice, and what is guaranteed."""
    chosen, budget = found["chosen"], found["budget"]
    sizes = " and ".join(map(str, found["batch_sizes"]))
    meaning = (
        f"errors: {ERRORS[found['risk']]}; time: of a forward pass compared with full depth, in batches of {sizes} "
        f"({found['device']}, of each batch the median of {found['repeats']} alternating passes). Only the settings "
        "ahead are timed."
    )
    exits = [{"criterion": name, **row} for name, own in found["criteria"].items() for row in own["curve"]]
    fixed, early = fastest(found["fixed_depths"]), fastest(exits)
    most, sure = f"at most {number(found['tolerance'] * 100)}%", f"with a confidence of {percent(found['confidence'])}"
    if chosen is None:
        reason = f"spares steps with {most} errors {sure}" if budget is None else "is within the budget"
        if early is not None or (fixed is not None and not found["only_exits"]):
            return [meaning, "No certified setting is faster than full depth."]
        return [meaning, f"No setting {reason}."]
    covered = "answers to examples like these"
    if "unit" in found:
        covered = "labelled tokens of a sequence, on average over sequences like these,"
    guarantee = f". {sure.capitalize()} {most} of the {covered} are errors, with these weights."
    if budget is not None:
        guarantee = ", the best one within the budget; nothing is guaranteed of its errors."
    lines = [meaning, f"Chosen: {setting_name(chosen)}{guarantee}"]
    other, kind = (early, "exit") if chosen["criterion"] == "fixed_depth" else (fixed, "fixed depth")
    if other is not None:
        lines.append(
            f"It takes {percent(found['calibrated']['relative_time'])} of the time of full depth; the best {kind}, "
            f"{setting_name(other)}, takes {percent(other['relative_time'])}."
        )
    return lines
