"""The renderings of a gallery: its index, README.md, and one static HTML page that loads nothing else."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...files import write_bytes
from ...templating import template
from .. import findings
from ..inside import compact, read_inside
from ..results import README_FILE
from .entries import Entry, read_gallery
from .markdown import card_html, inline_html

HERE = Path(__file__).parent
INDEX, PAGE = "index_template.md", "page_template.html"
STYLES = ("base.css", "table.css", "panel.css", "inside.css", "page.css")
SCRIPTS = ("page.js", "inside.js")
# key, title, kind and width of each column of the table; `data-sort` of a cell holds what it is sorted by. A page less
# wide than on a desktop leaves out the columns that are "wide", one as narrow as a phone those that are "middle", too
COLUMNS = (
    ("name", "Checkpoint", "text", "any"),
    ("architecture", "Architecture", "text", "wide"),
    ("halting", "Halting", "text", "wide"),
    ("task", "Task", "text", "wide"),
    ("accuracy", "Accuracy", "number", "any"),
    ("baseline", "Majority class", "number", "wide"),
    ("steps", "Mean steps", "number", "any"),
    ("trend", "Steps vs difficulty", "number", "middle"),
    ("saved", "Time saved", "number", "middle"),
    ("fixed", "Time vs fixed depth", "number", "wide"),
    ("parameters", "Parameters", "number", "wide"),
)
# figures that the index opens with
LEADING = 2


def points(change: float) -> str:
    """A difference of two fractions in points of 100, without a negative zero."""
    return f"{round(100 * change, 1) + 0.0:+.1f} points"


def trend_cell(item: dict[str, Any] | None) -> str:
    """The trend of steps with a difficulty, for a cell of a table."""
    if item is None:
        return "fixed depth"
    if item["direction"] == "unmeasured":
        return "not measured"
    if item["direction"] == "same":
        return f"same steps at every {item['column']}: {item['mean']:.2f}"
    ends = f"{item['low_mean']:.2f} → {item['high_mean']:.2f}"
    return f"{item['direction']} with {item['column']}: \u03c1 = {item['spearman']:+.2f}, {ends}"


def render(name: str, **values: Any) -> str:
    """Text of a template. In HTML every value is text until it is marked up."""
    filters = {"inline": inline_html, "points": points, "trend_cell": trend_cell}
    return template(HERE / name, autoescape=name.endswith(".html"), **filters).render(findings=findings, **values)


def render_index(entries: Sequence[Entry]) -> str:
    """Text of the gallery's README.md. The same cards always give the same text."""
    entries = sorted(entries, key=lambda entry: entry.rank)
    # losses of documents stand in a table of their own
    ranked, documents = ([entry for entry in entries if entry.of_documents == kind] for kind in (False, True))
    return render(
        INDEX,
        entries=entries,
        leading=leading_figures(entries),
        ranked=ranked,
        documents=documents,
        meanings=meanings(ranked),
    )


def leading_figures(entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """Steps by difficulty of the first checkpoints that think visibly longer on harder input, one an architecture."""
    leading: dict[str, tuple[Entry, str]] = {}
    for entry in entries:
        if not entry.rank[0] and entry.trend["spearman"] >= findings.MODERATE:
            drawn = [figure for figure in entry.results["figures"] if figure["column"] == entry.trend["column"]]
            paths = {figure["kind"]: figure["path"] for figure in reversed(drawn)}
            if path := paths.get("calibrated_steps", paths.get("difficulty")):
                leading.setdefault(entry.architecture, (entry, path))
    return list(leading.values())[:LEADING]


def meanings(entries: Sequence[Entry]) -> dict[str, str]:
    """Task -> meaning of its accuracy, for tasks whose accuracy needs a sentence."""
    return {entry.task: entry.metric.meaning for entry in entries if entry.metric.meaning}


def build_page(root: str | os.PathLike, target: str | os.PathLike) -> Path:
    """Write the page of the gallery `root` to the file `target`, in one step. The same gallery gives the same bytes.

    Raises:
        ValueError: `root` is no gallery, or a card or figure cannot be used.
    """
    entries = sorted(read_gallery(root), key=lambda entry: entry.rank)
    for entry in entries:
        opening, heading, sections = card_html(entry.folder, entry.files[README_FILE]).partition("<h3>")
        inside = read_inside(entry.folder)
        vars(entry).update(opening=opening, sections=heading + sections, inside=compact(inside) if inside else None)
    style, script = Markup(joined(STYLES)), Markup(joined(SCRIPTS))
    text = render(PAGE, entries=entries, columns=COLUMNS, meanings=meanings(entries), style=style, script=script)
    return write_bytes(target, text.encode())


def joined(names: Sequence[str]) -> str:
    """The text of files of `static`, one after another."""
    return "".join((HERE / "static" / name).read_text(encoding="utf-8") for name in names)
