"""Sections that a card gets after its run: a sweep of the halting threshold, expert statistics, a calibrated exit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from .card_data import SECTION_PLOTS, CardData, Plot

# of a run, or of another kind that has plots and sections
Card = TypeVar("Card")
Drawn = Mapping[Any, Sequence[Mapping[str, Any]]]


def with_sweep(card: CardData, tables: Mapping[str, Any], drawn: Drawn) -> CardData:
    """The card with a sweep, in the place of an earlier one.

    Args:
        tables: split -> sweep.
        drawn: split -> `kind`, `path` and `column` of each figure, as `plots.save_sweep_figures` returns them.
    """
    # pictures are drawn, and their data stay in the file of the sweep
    shown = {
        split: {key: value for key, value in table.items() if key != "pictures"} for split, table in tables.items()
    }
    return _with_section(card, "sweep", shown, drawn)


def with_experts(card: CardData, tables: Mapping[str, Any], drawn: Drawn) -> CardData:
    """The card with expert statistics, in the place of earlier ones.

    Args:
        tables: split -> `expert_table`.
        drawn: split -> figures of `plots.save_expert_figures`, as in `with_sweep`.
    """
    return _with_section(card, "experts", dict(tables), drawn)


def with_calibration(card: Card, calibration: Mapping[str, Any], folder: Path) -> Card:
    """The card with a calibration, in the place of an earlier one, whose figure is drawn into `folder`.

    Args:
        calibration: what `hf-recurrent calibrate` stores.

    Raises:
        LookupError, TypeError, AttributeError: the calibration is none.
    """
    # matplotlib is slow to import, and only here a card is drawn
    from ..analysis.plots import save_calibration_figures

    found = without_curves(calibration)
    return _with_section(card, "calibration", found, {None: save_calibration_figures(folder, found)})


def without_curves(calibration: Mapping[str, Any]) -> dict[str, Any]:
    """A calibration as a card holds it: of its criteria the names, `tried`, and the chosen row of their curves."""
    shown = {name: value for name, value in calibration.items() if name != "criteria"}
    shown |= {"tried": list(calibration["criteria"])}
    if "calibrated" in shown:
        return shown
    # of an earlier version
    chosen = calibration["chosen"]
    curve = calibration["criteria"][chosen["criterion"]]["curve"] if chosen else ()
    rows = (row for row in curve if all(row[name] == chosen[name] for name in ("threshold", "patience")))
    return {**shown, "calibrated": next(rows, None)}


def _with_section(card: Card, section: str, content: dict[str, Any], drawn: Drawn) -> Card:
    """The card with another `section` and its plots."""
    plots = [plot for plot in card.plots if plot.kind not in SECTION_PLOTS[section]]
    plots += [Plot(**item, split=split) for split, items in drawn.items() for item in items]
    return replace(card, plots=plots, **{section: content})
