"""The renderings of a gallery: its index, README.md, and one static HTML page that loads nothing else."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...utils import template, write_bytes
from .. import findings
from ..inside import compact, read_inside
from ..results import README_FILE
from .entries import Entry, read_gallery
from .markdown import card_html, inline_html

HERE = Path(__file__).parent
STYLES = ("base.css", "table.css", "panel.css", "inside.css", "page.css")
SCRIPTS = ("page.js", "inside.js")


def points(change: float) -> str:
    """A difference of two fractions in points of 100, without a negative zero."""
    return f"{round(100 * change, 1) + 0.0:+.1f} points"


def trend_cell(item: dict | None) -> str:
    """The trend of steps with a difficulty, for a cell of a table."""
    if item is None:
        return "fixed depth"
    if item["direction"] == "same":
        return f"same steps at every {item['column']}: {item['mean']:.2f}"
    if item["spearman"] is None:
        return "not measured"
    ends = f"{item['low_mean']:.2f} → {item['high_mean']:.2f}"
    return f"{item['direction']} with {item['column']}: \u03c1 = {item['spearman']:+.2f}, {ends}"


def render(name: str, **values: Any) -> str:
    """Text of a template. In HTML every value is text until it is marked up."""
    filters = {"inline": inline_html, "points": points, "trend_cell": trend_cell}
    return template(HERE / name, autoescape=name.endswith(".html"), **filters).render(findings=findings, **values)


def render_index(entries: Sequence[Entry]) -> str:
    """Text of the gallery's README.md. The same cards always give the same text."""
    return render("index_template.md", entries=sorted(entries, key=lambda entry: entry.rank))


def build_page(root: str | os.PathLike, target: str | os.PathLike) -> Path:
    """Write the page of the gallery `root` to the file `target`, in one step. The same gallery gives the same bytes.

    Raises:
        ValueError: `root` is no gallery, or a card cannot be used.
        OSError: a figure is missing.
    """
    entries = sorted(read_gallery(root), key=lambda entry: entry.rank)
    for entry in entries:
        entry.opening, heading, sections = card_html(entry.folder, entry.files[README_FILE]).partition("<h3>")
        entry.sections = heading + sections
        examples = read_inside(entry.folder)
        entry.inside = compact(examples) if examples else None
    text = render("page_template.html", entries=entries, style=Markup(joined(STYLES)), script=Markup(joined(SCRIPTS)))
    return write_bytes(target, text.encode())


def joined(names: Sequence[str]) -> str:
    """The text of files of `static`, one after another."""
    return "".join((HERE / "static" / name).read_text(encoding="utf-8") for name in names)
