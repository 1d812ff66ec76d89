"""`hf-recurrent sweep`: accuracy, work and time at lower halting thresholds than that of training."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..templating import percent
from . import options
from .console import out, quiet_libraries, show_rows, wrote

if TYPE_CHECKING:
    from datasets import Dataset

    from ..files import Change
    from ..tasks.base import Split, Task
    from ..tasks.checkpoints import Checkpoint, Request

FULL = "full depth"


@options.grouped
def sweep(
    checkpoint: Annotated[
        str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a checkpoint that halts.")
    ],
    examples: options.Examples,
    split: options.Splits = None,
    thresholds: Annotated[
        str | None,
        typer.Option(help="Halting masses, as in 0.3,0.9; 0.1 to 0.999 if not given. The checkpoint's own is added."),
    ] = None,
    limit: options.Limit = 1000,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 64,
    slice_: Annotated[
        list[str] | None, typer.Option("--slice", help="Report by this column of the examples too; may be repeated.")
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Passes that are timed; the median counts.")
    ] = 3,
    generate: Annotated[
        bool, typer.Option("--generate", help="Let a sequence-to-sequence model write by itself, too.")
    ] = False,
    folder: options.Out = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the figures into assets/ there.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Draw them, and show all of it in the card there.")] = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Lower the halting threshold after training: accuracy, executed block calls and time at each."""
    from ..analysis.sweep import halting_pictures, require_halting, sweep_thresholds
    from ..analysis.tables import SWEEP_FILE, write_tables
    from ..files import changed_files
    from ..hub.results import may_quote
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint, requested_task
    from .shared_change import made_by_first

    quiet_libraries()
    target = place(checkpoint, folder, card)
    wanted = None if thresholds is None else parse_thresholds(thresholds)
    request = examples.request(split)
    with made_by_first(changed_files(target), target) as change:
        loaded = load_checkpoint(checkpoint, device, revision, dtype, (*OF_TEXTS, *OF_WORDS))
        require_halting(loaded.model, checkpoint)
        tables = {}
        for rows in encoded(loaded, request, requested_task(loaded, request), limit, seed):
            batches = rows.batches(loaded.tokenizer, batch_size)
            slices = {name: values(rows, name) for name in (*(slice_ or ()), *examples.arguments.get("slice_by", ()))}
            found = sweep_thresholds(
                loaded.model, batches, wanted, slices=slices, repeats=repeats, generate=generate, progress=True
            )
            tables[rows.name] = {**found, "batch_size": batch_size, **conditions(loaded.model), "seed": seed}
            if not request.is_own or may_quote(loaded.results):
                pictures = halting_pictures(loaded.model, loaded.tokenizer, rows.dataset.to_list())
                tables[rows.name]["pictures"] = pictures
        for name, found in tables.items():
            show(name, found)
        write_tables(change.new, SWEEP_FILE, tables)
        if plot or card:
            draw(change, tables, "sweep" if card else None)
    report(change)


def place(checkpoint: str, folder: Path | None, card: bool) -> Path:
    """The folder to write into.

    Raises:
        ValueError: it is not known, or has no card where there should be one.
    """
    from ..hub.results import RESULTS_FILE

    if folder is None and not Path(checkpoint).is_dir():
        raise ValueError(f"checkpoint {checkpoint} is no local folder: say where to write the results with --output")
    target = Path(checkpoint) if folder is None else folder
    if card and not (target / RESULTS_FILE).is_file():
        raise ValueError(
            f"--card: {target} has no {RESULTS_FILE}; a training run writes it, leave --card out otherwise"
        )
    return target


def parse_thresholds(text: str) -> tuple[float, ...]:
    """The thresholds of an option.

    Raises:
        ValueError: they are no halting masses.
    """
    from ..analysis.sweep import checked_thresholds

    try:
        found = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise ValueError(f"thresholds is {text!r}: pass numbers with commas between them, as in 0.3,0.9") from error
    return checked_thresholds(found)


def encoded(checkpoint: "Checkpoint", request: "Request", task: "Task", limit: int, seed: int) -> Iterator["Split"]:
    """Up to `limit` examples of each requested split, as token ids in order of their lengths.

    Raises:
        ValueError: there is no such split, or examples cannot be used.
    """
    from ..tasks.checkpoints import evaluation_splits

    def chosen(rows: "Dataset") -> "Dataset":
        return rows.shuffle(seed=seed).select(range(limit)) if limit < len(rows) else rows

    splits = evaluation_splits(checkpoint, request, task, chosen, by_token=True)
    return islice(splits, None if request.splits else 1)


def values(rows: "Split", column: str) -> Sequence[Any]:
    """The values of a slice column.

    Raises:
        ValueError: the examples have no such column.
    """
    if column not in rows.slice_columns:
        raise ValueError(f"slice is {column!r}: the examples have {', '.join(rows.slice_columns)}")
    return rows.dataset[column][:]


def conditions(model: Any) -> dict[str, Any]:
    """Conditions that times depend on."""
    import torch

    device = model.device
    threads = torch.get_num_threads()
    name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return {"device": name, "dtype": str(model.dtype).removeprefix("torch.")}


def show(name: str, found: dict[str, Any]) -> None:
    """Print the tables of a split."""
    rows = {label(row["threshold"], found): row for row in (found["full_depth"], *found["thresholds"])}
    title = f"{name}: {found['n']:,} examples, {found['halting']} halting"

    def show_cells(title: str, cells: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        show_rows(title, ({"threshold": mark, **cells(row)} for mark, row in rows.items()))

    def measures(row: dict[str, Any]) -> dict[str, str]:
        shown = ((text, key) for text, key in MEASURES.items() if key in row)
        found_at = {text: f"{row[key]:.4f}" if key == "loss" else percent(row[key]) for text, key in shown}
        return {found["measured"]: percent(row["accuracy"]), **found_at}

    if "loss" in found["full_depth"]:
        show_cells(title, measures)
        show_cells(f"{name}: work", work_cells)
    else:
        # narrow enough for one table
        show_cells(title, lambda row: measures(row) | work_cells(row))
    if len(found["most_steps"]) > 1:
        for stack in found["most_steps"]:
            show_cells(f"{name}: {stack}", lambda row, stack=stack: stack_cells(row["stacks"][stack]))
    for column in found["full_depth"]["slices"]:
        for measured, key in ((found["measured"], "accuracy"), ("block calls", "share")):
            show_cells(
                f"{name}: {measured} by {column}",
                lambda row, column=column, key=key: {
                    bucket["value"]: percent(bucket[key]) for bucket in row["slices"][column]
                },
            )
    for line in legend(found):
        out.print(line)


# measures of tokens, by their headings
MEASURES = {"tokens": "token_accuracy", "loss": "loss", "written": "written_accuracy"}


def work_cells(row: dict[str, Any]) -> dict[str, str]:
    from ..analysis.sweep import all_stacks

    whole = all_stacks(row["stacks"])
    return {
        "block calls": f"{whole['calls']:,}",
        "share": percent(whole["share"]),
        "depth": f"{whole['mean_depth']:.2f}",
        "seconds": f"{row['seconds']:.2f}",
        "time": percent(row["relative_time"]),
    }


def stack_cells(stack: dict[str, float]) -> dict[str, str]:
    """Work of one of two stacks."""
    return {
        "share": percent(stack["share"]),
        "depth": f"{stack['mean_depth']:.2f}",
        "time": percent(stack["relative_time"]),
    }


def label(threshold: float | None, found: dict[str, Any]) -> str:
    """A threshold, with a star if it is the checkpoint's."""
    return FULL if threshold is None else f"{threshold:g}{'*' if threshold == found['own_threshold'] else ''}"


def legend(found: dict[str, Any]) -> list[str]:
    """Meanings of the headings."""
    stacks = ", ".join(f"{name} {most}" for name, most in found["most_steps"].items())
    lines = [
        "*: the checkpoint's own threshold; full depth: threshold 1, every unit takes every step (hard_stop=False).",
        f"block calls: units through the block; share: of the maximum, units x steps ({stacks}).",
        "depth: mean steps of an example.",
        f"time: of a forward pass over that at full depth, of each batch the median of {found['repeats']} alternating "
        f"passes ({found['device']}, {found['dtype']}, batches of {found['batch_size']}).",
    ]
    if "decoder" in found["most_steps"]:
        lines.append(f"{found['measured']}, tokens and loss: with teacher forcing (the true target up to each token).")
    return lines


def draw(change: "Change", tables: dict[str, Any], section: str | None = None) -> None:
    """Draw the figures of each split, and show them with the tables in a section of the card, if it is named."""
    from ..analysis.plots import save_figures
    from ..hub.results import put_results, read_results, with_section, without_quotes

    drawn = {name: save_figures(change.new, found, prefix=name) for name, found in tables.items()}
    results = None if section is None else read_results(change.folder)
    if results is not None:
        # pictures are drawn, and their data stay in the file of the sweep
        found = without_quotes({"splits": tables})["splits"]
        put_results(change, with_section(results, section, found, drawn), before=results)


def report(change: "Change") -> None:
    """Name the files that a change has written."""
    for path in change.written:
        wrote(path)
