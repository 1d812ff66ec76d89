"""The files of a gallery that follow from its cards and this package: what each must hold."""

import json
from collections.abc import Sequence
from pathlib import Path

from ...registry import ARCHITECTURES
from ..checkpoint import code_files
from ..lint import README_FILE
from ..metadata import eval_results_yaml
from ..staging import CONFIG_FILE, read_json
from .entries import Entry
from .index import render_index

# files of these kinds are rendered, so one that is not expected is a leftover
RENDERED = ("*.py", ".eval_results/*")


def rendered_files(entry: Entry) -> dict[str, bytes]:
    """Path in the folder -> content: the card, its results, the model code, and config.json with its `auto_map`.

    Raises:
        ValueError: config.json is missing or not JSON.
    """
    files = {README_FILE: entry.readme.encode()}
    results = eval_results_yaml(entry.card)
    if results is not None:
        files[f".eval_results/{entry.benchmark}.yaml"] = results.encode()
    files |= {file.name: file.read_bytes() for file in code_files(entry.card.family)}
    files[CONFIG_FILE] = _config(entry)
    return files


def _config(entry: Entry) -> bytes:
    path = entry.folder / CONFIG_FILE
    if not path.is_file():
        raise ValueError(f"{entry.name}/{CONFIG_FILE} is missing: copy it from the run's output folder")
    config = read_json(path)
    auto_map = dict(ARCHITECTURES[entry.card.family].auto_map)
    if config.get("auto_map") == auto_map:
        return path.read_bytes()
    # as transformers writes it
    return (json.dumps(config | {"auto_map": auto_map}, indent=2, sort_keys=True) + "\n").encode()


def rendered_index(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Path in the gallery -> content."""
    return {README_FILE: render_index(entries).encode()}


def stale_files(entry: Entry, expected: Sequence[str]) -> list[Path]:
    """Files that look rendered but are not among the `expected` paths, such as code that the model no longer needs."""
    found = (path for pattern in RENDERED for path in entry.folder.glob(pattern) if path.is_file())
    return sorted(path for path in found if path.relative_to(entry.folder).as_posix() not in expected)
