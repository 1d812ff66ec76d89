"""Sections that a card gets after its run: a sweep of the halting threshold, expert statistics, a calibrated exit."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..analysis.tables import CALIBRATION_FILE
from ..files import read_json
from .card import read_card, write_card
from .card_data import SECTION_PLOTS, Plot

Drawn = Mapping[Any, Sequence[Mapping[str, Any]]]


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


def add_calibration(folder: str | os.PathLike) -> Path:
    """Show the calibration that lies in `folder` in the card there, in the place of an earlier one -> the card's path.

    Raises:
        ValueError: the folder has no card data or no calibration, or the card could not be published; the card stays as
            it is then.
    """
    # matplotlib is slow to import, and only here a card is drawn
    from ..analysis.plots import save_calibration_figures

    path = Path(folder) / CALIBRATION_FILE
    if not path.is_file():
        raise ValueError(f"{folder} has no {CALIBRATION_FILE}: `hf-recurrent calibrate` writes it")
    found = without_curves(read_json(path))
    read_card(folder)
    return _replace_section(folder, "calibration", found, {None: save_calibration_figures(folder, found)})


def without_curves(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """A calibration as a card holds it: of the curves of its criteria only the row that was chosen, `calibrated`."""
    chosen = calibration["chosen"]
    curve = calibration["criteria"][chosen["criterion"]]["curve"] if chosen else ()
    rows = (row for row in curve if all(row[name] == chosen[name] for name in ("threshold", "patience")))
    shown = {name: value for name, value in calibration.items() if name != "criteria"}
    return {**shown, "calibrated": next(rows, None)}


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
