"""The files of a gallery that follow from its cards: what each must hold."""

from collections.abc import Sequence
from pathlib import Path

from ..lint import README_FILE
from ..metadata import eval_results_yaml
from .entries import Entry
from .index import render_index

# files of these kinds are rendered, so one that is not expected is a leftover
RENDERED = (".eval_results/*",)


def rendered_files(entry: Entry) -> dict[str, bytes]:
    """Path in the folder -> content: the card and its results."""
    files = {README_FILE: entry.readme.encode()}
    results = eval_results_yaml(entry.card)
    if results is not None:
        files[f".eval_results/{entry.benchmark}.yaml"] = results.encode()
    return files


def rendered_index(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Path in the gallery -> content."""
    return {README_FILE: render_index(entries).encode()}


def stale_files(entry: Entry, expected: Sequence[str]) -> list[Path]:
    """Files that look rendered but are not among the `expected` paths, such as results of another benchmark."""
    found = (path for pattern in RENDERED for path in entry.folder.glob(pattern) if path.is_file())
    return sorted(path for path in found if path.relative_to(entry.folder).as_posix() not in expected)
