"""Sections that a card gets after its run: a sweep of the halting threshold, and expert statistics."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .card import read_card, write_card
from .card_data import SECTION_PLOTS, Plot

Drawn = Mapping[str, Sequence[Mapping[str, Any]]]


def add_sweep(folder: str | os.PathLike, tables: Mapping[str, Any], drawn: Drawn) -> Path:
    """Show a sweep in the card of `folder`, in the place of an earlier one -> the card's path.

    Args:
        tables: split -> sweep.
        drawn: split -> `kind`, `path` and `column` of each figure in `folder`, as `threshold_sweep.plots.draw_all`
            returns them.

    Raises:
        ValueError: the folder has no card data, or the card could not be published; nothing is written then.
    """
    return _replace_section(folder, "sweep", without_pictures(tables), drawn)


def add_experts(folder: str | os.PathLike, tables: Mapping[str, Any], drawn: Drawn) -> Path:
    """Show expert statistics in the card of `folder`, in the place of earlier ones -> the card's path.

    Args:
        tables: split -> `expert_table`.
        drawn: split -> figures of `expert_stats.plots.draw_all`, as in `add_sweep`.

    Raises:
        ValueError: as `add_sweep`.
    """
    return _replace_section(folder, "experts", dict(tables), drawn)


def without_pictures(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The sweeps of `tables` as a card holds them: pictures are drawn, and their data stay in the file of the sweep."""
    return {split: {key: value for key, value in table.items() if key != "pictures"} for split, table in tables.items()}


def _replace_section(folder: str | os.PathLike, section: str, content: dict[str, Any], drawn: Drawn) -> Path:
    """Write the card with another `section` and its plots, and remove plots that it no longer shows."""
    folder = Path(folder)
    card = read_card(folder)
    plots = [plot for plot in card.plots if plot.kind not in SECTION_PLOTS[section]]
    plots += [Plot(**item, split=split) for split, items in drawn.items() for item in items]
    path = write_card(folder, replace(card, plots=plots, **{section: content}))
    for stale in {plot.path for plot in card.plots} - {plot.path for plot in plots}:
        (folder / stale).unlink(missing_ok=True)
    return path
