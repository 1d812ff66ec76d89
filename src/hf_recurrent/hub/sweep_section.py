"""The card's section on what stopping earlier costs: a halting threshold that is lowered after training."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..analysis.sweep import all_stacks
from .words import percent

# kinds of plots, as `analysis.plots.save_sweep_figures` names them
SWEEP = ("trade_off", "halting_plot")
# of a sweep, what the card draws but does not tell
PICTURES = "pictures"


def add_sweep(
    folder: str | os.PathLike, tables: Mapping[str, Any], drawn: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Path:
    """Show a sweep in the card of `folder`, in the place of an earlier one -> the card's path.

    Args:
        tables: split -> sweep.
        drawn: split -> what `draw_all` drew of it in `folder`.

    Raises:
        ValueError: the folder has no card data, or the card could not be published; nothing is written then.
    """
    from .sections import replace_section

    return replace_section(folder, SWEEP, drawn, sweep=told(tables))


def told(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What a card tells of the sweeps of `tables`."""
    return {split: {key: value for key, value in table.items() if key != PICTURES} for split, table in tables.items()}


def own_row(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the checkpoint's own threshold."""
    return next(row for row in table["thresholds"] if row["threshold"] == table["own_threshold"])


def loses(row: Mapping[str, Any]) -> bool:
    """Whether a threshold gets measurably fewer rows right than the checkpoint's own.

    The same rows are judged at both, so that only those whose answer changed tell: they are lost by over two standard
    errors, which is two roots of their number (McNemar 1947).
    """
    return row["lost"] - row["gained"] > 2 * math.sqrt(row["lost"] + row["gained"])


def lowest_harmless(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The lowest threshold down to which none loses measurably."""
    found = own_row(table)
    for row in reversed(table["thresholds"]):
        if row["threshold"] < table["own_threshold"]:
            if loses(row):
                break
            found = row
    return found


def saving_words(table: Mapping[str, Any]) -> str:
    """What can be saved without measurable loss, as the end of a sentence."""
    own, low = own_row(table), lowest_harmless(table)
    now = f"{percent(all_stacks(own['stacks'])['share'])} of the block calls of full depth"
    if low is own:
        return (
            f"no threshold below the checkpoint's own ({own['threshold']:g}) keeps its {table['measured']} of "
            f"{percent(own['accuracy'])}, which takes {now} and {percent(own['relative_time'])} of its time."
        )
    return (
        f"no {table['measured']} is measurably lost down to a threshold of {low['threshold']:g} "
        f"({percent(low['accuracy'])}, and {percent(own['accuracy'])} at the checkpoint's own {own['threshold']:g}): "
        f"it takes {percent(all_stacks(low['stacks'])['share'])} instead of {now}, and "
        f"{percent(low['relative_time'])} instead of {percent(own['relative_time'])} of its time."
    )


def trade_off_words(table: Mapping[str, Any]) -> str:
    """What is to be seen in the figure, in numbers."""
    rows = table["thresholds"]
    return (
        f"{table['measured'].capitalize()} from {percent(rows[0]['accuracy'])} at threshold {rows[0]['threshold']:g} "
        f"with {percent(all_stacks(rows[0]['stacks'])['share'])} of the block calls to {percent(rows[-1]['accuracy'])} "
        f"at {rows[-1]['threshold']:g} with {percent(all_stacks(rows[-1]['stacks'])['share'])}"
    )


FILTERS = {
    "lowest_harmless": lowest_harmless,
    "own_row": own_row,
    "saving_words": saving_words,
    "together": all_stacks,
    "trade_off_words": trade_off_words,
}
