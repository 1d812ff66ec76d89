"""Sections that a card gets after its run, such as those on sweeps and experts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .card import read_card, write_card
from .card_data import Plot


def replace_section(
    folder: str | os.PathLike,
    kinds: Sequence[str],
    drawn: Mapping[str, Sequence[Mapping[str, Any]]],
    **fields: Any,
) -> Path:
    """Give the card of `folder` other `fields` and other plots of these `kinds`, and remove plots it no longer shows.

    Args:
        drawn: split -> `kind`, `path` and `column` of each figure in `folder`.

    Raises:
        ValueError: the folder has no card data, or the card could not be published; nothing is written then.
    """
    folder = Path(folder)
    card = read_card(folder)
    plots = [plot for plot in card.plots if plot.kind not in kinds]
    plots += [Plot(**item, split=split) for split, items in drawn.items() for item in items]
    path = write_card(folder, replace(card, plots=plots, **fields))
    for stale in {plot.path for plot in card.plots} - {plot.path for plot in plots}:
        (folder / stale).unlink(missing_ok=True)
    return path
