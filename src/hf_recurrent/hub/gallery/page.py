"""A gallery as one static HTML page that loads nothing: styles, script and figures are inside it."""

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...metrics.serialize import write_bytes
from ..trend import above_majority
from .card_text import document_sentences, figures, halting_sentences, snippet
from .entries import Entry, read_gallery
from .images import read_image
from .index import meanings
from .rendering import HERE, render

TEMPLATE = "page_template.html"
STYLES = ("base.css", "table.css", "panel.css", "page.css")
SCRIPT = "page.js"
# key, title, kind and width of each column of the table; `data-sort` of a cell holds what it is sorted by, and a page
# as narrow as a phone or an upright tablet leaves out the columns that are "wide"
COLUMNS = (
    ("name", "Checkpoint", "text", "any"),
    ("architecture", "Architecture", "text", "wide"),
    ("halting", "Halting", "text", "wide"),
    ("task", "Task", "text", "wide"),
    ("accuracy", "Accuracy", "number", "any"),
    ("baseline", "Majority class", "number", "wide"),
    ("steps", "Mean steps", "number", "any"),
    ("parameters", "Parameters", "number", "wide"),
)


def build_page(root: str | os.PathLike, target: str | os.PathLike) -> Path:
    """Write the page of the gallery `root` to the file `target`, in one step. The same gallery gives the same bytes.

    Raises:
        ValueError: `target` is a folder, or `root` is no gallery, or a card or figure cannot be used.
    """
    target = Path(target)
    if target.is_dir():
        raise ValueError(f"target={str(target)!r} is a folder: pass a file, such as {str(target / 'index.html')!r}")
    return write_bytes(target, render_page(read_gallery(root)).encode())


def render_page(entries: Sequence[Entry]) -> str:
    """The page's text; figures are read from the entries' folders."""
    static = HERE / "static"
    style = "".join((static / name).read_text(encoding="utf-8") for name in STYLES)
    script = (static / SCRIPT).read_text(encoding="utf-8")
    return render(
        TEMPLATE,
        entries=[_view(entry) for entry in entries],
        columns=COLUMNS,
        above_majority=above_majority,
        meanings=meanings(entries),
        style=Markup(style),
        script=Markup(script),
        policy=content_policy(style, script),
    )


def content_policy(style: str, script: str) -> str:
    """A Content-Security-Policy that allows this style and this script by their hashes, and images as data alone."""
    return (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _view(entry: Entry) -> dict[str, Any]:
    """What the template shows of one checkpoint."""
    return {
        "entry": entry,
        "card": entry.card,
        "sort": {
            "name": entry.name,
            "architecture": entry.architecture,
            "halting": entry.halting,
            "task": entry.task,
            "accuracy": _ranked(entry, entry.metric.key),
            "baseline": _ranked(entry, entry.metric.constant_key),
            "steps": entry.mean_steps,
            "parameters": entry.parameters,
        },
        "figures": [(figure, read_image(entry.folder, figure.path)) for figure in figures(entry.readme)],
        "sentences": {result.split: halting_sentences(entry.readme, result.split) for result in entry.card.results},
        "document_sentences": {
            result.split: document_sentences(entry.readme, result.split)
            for result in entry.card.results
            if entry.card.of_documents
        },
        "snippet": snippet(entry.readme),
        "paper_link": entry.card.paper.url if entry.card.paper.url.startswith(("https://", "http://")) else None,
    }


def _ranked(entry: Entry, key: str) -> float:
    """A value of the first split by which checkpoints are sorted: fewer bits are better, and no share of answers."""
    value = entry.main_table[key]
    return -value if entry.metric.in_bits else value
