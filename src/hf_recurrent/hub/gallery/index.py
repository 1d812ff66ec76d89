"""The index of a gallery: `README.md` beside the checkpoint folders, a function of their cards."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..trend import NO_DIFFICULTY, above_majority, trends
from .entries import Entry
from .rendering import render

TEMPLATE = "index_template.md"


def render_index(entries: Sequence[Entry]) -> str:
    """Text of the gallery's README.md. The same cards always give the same text."""
    # losses of documents stand in a table of their own
    ranked = [entry for entry in entries if not entry.card.of_documents]
    rows = [
        (entry, result, main_column(result.table), steps_trend(result.table))
        for entry in ranked
        for result in entry.card.results
    ]
    documents = [(entry, result) for entry in entries if entry.card.of_documents for result in entry.card.results]
    return render(
        TEMPLATE,
        entries=entries,
        ranked=ranked,
        documents=documents,
        rows=rows,
        above_majority=above_majority,
        meanings=meanings(ranked),
    )


def meanings(entries: Sequence[Entry]) -> dict[str, str]:
    """Task -> what its accuracy is, for tasks whose accuracy needs a sentence."""
    return {entry.task: entry.metric.meaning for entry in entries if entry.metric.meaning}


def main_column(table: Mapping[str, Any]) -> str | None:
    """The numeric difficulty column that its benchmark lists first, None where there is none.

    One by which rows differ, if there is any: all strings of a split may have the same length.
    """
    slices = table["slices"]
    numeric = [column for column, data in slices.items() if data["numeric"] and column not in NO_DIFFICULTY]
    return next((column for column in numeric if len(slices[column]["rows"]) > 1), next(iter(numeric), None))


def steps_trend(table: Mapping[str, Any]) -> str:
    """How steps follow the main difficulty, with the rank correlation, such as "shrink with length (-0.31)"."""
    if table["fixed_depth"]:
        return "fixed depth"
    column = main_column(table)
    if column is None:
        return "not measured"
    (found,) = (item for item in trends(table) if item["column"] == column)
    where = "" if found["steps"] == "steps" else f", {found['steps']}"
    words = f"{found['direction']} with {column}{where}"
    return words if found["spearman"] is None else f"{words} ({found['spearman']:+.2f})"
