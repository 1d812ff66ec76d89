"""The index of a gallery: `README.md` beside the checkpoint folders, a function of their cards."""

from collections.abc import Mapping, Sequence
from typing import Any

from .entries import Entry
from .rendering import render

TEMPLATE = "index_template.md"


def render_index(entries: Sequence[Entry]) -> str:
    """Text of the gallery's README.md. The same cards always give the same text."""
    rows = [(entry, result, main_column(result.table)) for entry in entries for result in entry.card.results]
    return render(TEMPLATE, entries=entries, rows=rows)


def main_column(table: Mapping[str, Any]) -> str | None:
    """The numeric difficulty column that its benchmark lists first, None where there is none."""
    return next((column for column, data in table["slices"].items() if data["numeric"]), None)
