"""`hf-recurrent sweep`: accuracy, work and time at lower halting thresholds than that of training."""

from typing import Annotated, Any

import typer

from ..utils import percent
from . import options
from .console import out, quiet_libraries, show_rows


@options.grouped
def sweep(
    checkpoint: Annotated[
        str, typer.Argument(callback=options.a_place, help="Folder or Hub id of a checkpoint that halts.")
    ],
    unsliced_examples: options.Examples,
    split: options.Splits = None,
    thresholds: Annotated[
        str | None,
        typer.Option(help="Halting masses, as in 0.3,0.9; 0.1 to 0.999 if not given. The checkpoint's own is added."),
    ] = None,
    limit: options.Limit = 1000,
    seed: options.Seed = 0,
    batch_size: options.BatchSize = 64,
    repeats: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="Passes that are timed; the median counts.")
    ] = 3,
    folder: options.Out = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the trade-off into assets/ there.")] = False,
    card: Annotated[bool, typer.Option("--card", help="Draw it, and show all of it in the card there.")] = False,
    revision: options.CheckpointRevision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
) -> None:
    """Lower the halting threshold after training: accuracy, executed block calls and time at each."""
    from ..analysis.sweep import THRESHOLDS, require_halting, sweep_thresholds
    from ..hub.results import SWEEP_FILE
    from ..tasks import OF_TEXTS, OF_WORDS
    from ..tasks.checkpoints import load_checkpoint
    from ..utils import changed_files
    from .shared import conditions, encoded, made_by_first, place, report, write_tables

    quiet_libraries()
    target = place(checkpoint, folder, card)
    wanted = THRESHOLDS if thresholds is None else parse_thresholds(thresholds)
    request = unsliced_examples.request(split)
    with made_by_first(changed_files(target), target) as change:
        loaded = load_checkpoint(checkpoint, device, revision, dtype, (*OF_TEXTS, *OF_WORDS))
        require_halting(loaded.model, checkpoint)
        tables = {}
        for rows in encoded(loaded, request, limit, seed):
            batches = rows.batches(loaded.tokenizer, batch_size)
            found = sweep_thresholds(loaded.model, batches, wanted, repeats=repeats, progress=True)
            tables[rows.name] = {**found, "batch_size": batch_size, **conditions(loaded.model), "seed": seed}
        for name, found in tables.items():
            show(name, found)
        write_tables(change, SWEEP_FILE, tables, plot or card, "sweep" if card else None)
    report(change)


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


def show(name: str, found: dict[str, Any]) -> None:
    """Print the table of a split."""
    from ..analysis.halting import all_stacks

    def cells(row: dict[str, Any]) -> dict[str, str]:
        work, of_tokens = all_stacks(row["stacks"]), {}
        if "token_accuracy" in row:
            of_tokens["tokens"] = percent(row["token_accuracy"])
        if "loss" in row:
            of_tokens["loss"] = f"{row['loss']:.4f}"
        return {
            "threshold": label(row["threshold"], found),
            "accuracy": percent(row["accuracy"]),
            **of_tokens,
            "calls": percent(work["share"]),
            "depth": f"{work['mean_depth']:.2f}",
            "seconds": f"{row['seconds']:.2f}",
            "time": percent(row["relative_time"]),
        }

    title = f"{name}: {found['n']:,} examples, {found['halting']} halting"
    show_rows(title, map(cells, (found["full_depth"], *found["thresholds"])))
    for line in legend(found):
        out.print(line)


def label(threshold: float | None, found: dict[str, Any]) -> str:
    """A threshold, with a star if it is the checkpoint's."""
    return "full depth" if threshold is None else f"{threshold:g}{'*' * (threshold == found['own_threshold'])}"


def legend(found: dict[str, Any]) -> list[str]:
    """Meanings of the headings."""
    stacks = ", ".join(f"{name} {most}" for name, most in found["most_steps"].items())
    lines = [
        "*: the checkpoint's own threshold; full depth: threshold 1, every unit takes every step (hard_stop=False).",
        f"accuracy: {found['measured']}; depth: mean steps of an example.",
        f"calls: units through the block, as a share of the maximum, units x steps ({stacks}).",
        f"time: of a forward pass over that at full depth, of each batch the median of {found['repeats']} alternating "
        f"passes ({found['device']}, {found['dtype']}, batches of {found['batch_size']}).",
    ]
    if "decoder" in found["most_steps"]:
        lines.append("Accuracy, tokens and loss: with teacher forcing (the true target up to each token).")
    return lines
