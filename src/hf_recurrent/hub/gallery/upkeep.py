"""The upkeep of a gallery: files that are rendered from its cards, and problems that a person must solve."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...analysis.tables import CALIBRATION_FILE
from ...files import Change, changed_files, one_line, read_json, write_bytes
from ..card import eval_results_file, render_card
from ..results import README_FILE, RESULTS_FILE, lint_card, put_results, with_calibration, without_curves
from ..staging import CONFIG_FILE, WEIGHTS_FILE, is_publishable
from ..tasks import auto_class_of, task_for
from .entries import Entry, card_folders, read_entry, read_gallery
from .page import render_index

RENDER = "run `hf-recurrent cards refresh` on the gallery"
COPY = "copy it from the run's output folder"
NEEDED = (RESULTS_FILE, CONFIG_FILE, "tokenizer.json", "tokenizer_config.json")
# of the weights in a folder of this repository
MAX_BYTES = 16_000_000


def refresh(root: str | os.PathLike) -> list[Path]:
    """Render every card, its evaluation results and the index anew, with calibrations that a card does not show yet.

    Removes results that no longer belong. Returns the paths that changed, relative to `root`; a second call changes
    nothing.

    Raises:
        ValueError: a folder's card data cannot be used; nothing is written then.
    """
    root = Path(root)
    card_folders(root)
    with changed_files(root) as change:
        entries = [with_own_calibration(entry, change) for entry in read_gallery(root)]
        contents = {root / README_FILE: render_index(entries).encode()}
        for entry in entries:
            files = rendered_files(entry)
            contents |= {entry.folder / name: content for name, content in files.items()}
            change.removed |= {path.relative_to(root).as_posix() for path in stale_files(entry, list(files))}
        for path, content in contents.items():
            write_bytes(change.new / path.relative_to(root), content)
    return sorted(map(Path, change.names))


def with_own_calibration(entry: Entry, change: Change) -> Entry:
    """The checkpoint with the calibration that lies in its folder and not yet in its card, as part of a `change`."""
    path = entry.folder / CALIBRATION_FILE
    if not path.is_file():
        return entry
    found = read_json(path)
    if without_curves(found) == entry.results["calibration"]:
        return entry
    own = Change(entry.folder, change.new / entry.name)
    results = with_calibration(entry.results, found, own.new)
    put_results(own, results, before=entry.results)
    change.removed |= {f"{entry.name}/{name}" for name in own.removed}
    return Entry(entry.folder, results, render_card(results))


def rendered_files(entry: Entry) -> dict[str, bytes]:
    """Path in the folder -> content: the card and its results."""
    files = {README_FILE: entry.readme.encode()}
    measured = eval_results_file(entry.results)
    if measured is not None:
        files[measured[0]] = measured[1].encode()
    return files


def stale_files(entry: Entry, expected: Sequence[str]) -> list[Path]:
    """Files that look rendered but are not among the `expected` paths, such as results of another benchmark."""
    found = (path for path in entry.folder.glob(".eval_results/*") if path.is_file())
    return sorted(path for path in found if path.relative_to(entry.folder).as_posix() not in expected)


def gallery_problems(root: str | os.PathLike) -> list[str]:
    """Every problem of a gallery in a line that names folder, file and remedy; none if it is publishable as it is.

    Raises:
        ValueError: `root` is not a gallery at all.
    """
    root = Path(root)
    problems, entries = [], []
    folders = card_folders(root)
    for folder in folders:
        try:
            entries.append(read_entry(folder))
        except ValueError as error:
            problems.append(one_line(error))
            continue
        problems += entry_problems(entries[-1])
    others = sorted(path.name for path in root.iterdir() if path not in folders and path.name != README_FILE)
    problems += [f"{name} does not belong beside the checkpoint folders: take it out" for name in others]
    # an index of a part of the cards would differ for no other reason
    if len(entries) == len(folders):
        problems += _differences(root, "", {README_FILE: render_index(entries).encode()})
    return problems


def entry_problems(entry: Entry) -> Iterator[str]:
    """The problems of one checkpoint folder."""
    rendered, shown = rendered_files(entry), {figure["path"] for figure in entry.results["figures"]}
    differences = list(_differences(entry.folder, f"{entry.name}/", rendered))
    yield from differences
    for name in NEEDED:
        if not (entry.folder / name).is_file():
            yield f"{entry.name}/{name} is missing: {COPY}"
    try:
        if not differences:
            lint_card(entry.folder)
        config = entry.folder / CONFIG_FILE
        if config.is_file() and task_for(auto_class_of(read_json(config))) != entry.results["task"]:
            yield f"{entry.name}/{CONFIG_FILE} is not of a model for {entry.results['task']}: {COPY}"
        yield from _calibration_problems(entry)
    except ValueError as error:
        yield f"{entry.name}: {one_line(error)}"
    named = entry.results["name"]
    if "/" not in named and named != entry.name:
        yield f"{entry.name}/{RESULTS_FILE} names the folder {named!r}: set its name to {entry.name!r}, then {RENDER}"
    for path in sorted(entry.folder.rglob("*")):
        name = path.relative_to(entry.folder).as_posix()
        if path.is_dir():
            continue
        if not is_publishable(name) or path.suffix == ".py" or (path.suffix == ".png" and name not in shown):
            yield f"{entry.name}/{name} does not belong in a checkpoint folder: take it out of the gallery"
        elif path in stale_files(entry, list(rendered)):
            yield f"{entry.name}/{name} is no longer part of this checkpoint: {RENDER}"
        elif name == WEIGHTS_FILE and path.stat().st_size > MAX_BYTES:
            yield f"{entry.name}/{name} has more than {MAX_BYTES // 1_000_000} MB: take it out of the gallery"


def _differences(folder: Path, prefix: str, files: dict[str, bytes]) -> Iterator[str]:
    for name, content in files.items():
        path = folder / name
        if not path.is_file():
            yield f"{prefix}{name} is missing: {RENDER}"
        elif path.read_bytes() != content:
            yield f"{prefix}{name} differs from its rendering: {RENDER}"


def _calibration_problems(entry: Entry) -> Iterator[str]:
    """A calibration that is not that of the results."""
    path = entry.folder / CALIBRATION_FILE
    if path.is_file() and without_curves(read_json(path)) != entry.results["calibration"]:
        yield f"{entry.name}/{path.name} disagrees with {RESULTS_FILE}: {RENDER}"
    elif not path.is_file() and entry.results["calibration"] is not None:
        yield f"{entry.name}/{path.name} is missing: {COPY}"
