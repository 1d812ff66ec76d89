"""The upkeep of a gallery: files that are rendered from its cards, and problems that a person must solve."""

import os
from collections.abc import Iterator
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
    with changed_files(root) as change:
        entries = [with_own_calibration(entry, change) for entry in read_gallery(root)]
        change.removed |= {path.relative_to(root).as_posix() for entry in entries for path in stale_files(entry)}
        contents = {root / README_FILE: render_index(entries).encode()}
        for entry in entries:
            contents |= rendered_files(entry)
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


def rendered_files(entry: Entry) -> dict[Path, bytes]:
    """Path -> content: the card and its results."""
    files = {entry.folder / README_FILE: entry.readme.encode()}
    if measured := eval_results_file(entry.results):
        files[entry.folder / measured[0]] = measured[1].encode()
    return files


def stale_files(entry: Entry) -> set[Path]:
    """Files that look rendered but are not, such as results of another benchmark."""
    return set(entry.folder.glob(".eval_results/*")) - rendered_files(entry).keys()


def gallery_problems(root: str | os.PathLike) -> list[str]:
    """Every problem of a gallery in a line that names folder, file and remedy; none if it is publishable as it is.

    Raises:
        ValueError: `root` is not a gallery at all.
    """
    root = Path(root)
    problems, entries, folders = [], [], card_folders(root)
    for folder in folders:
        try:
            entries.append(read_entry(folder))
        except ValueError as error:
            problems.append(one_line(error))
            continue
        problems += [f"{folder.name}/{problem}" for problem in entry_problems(entries[-1])]
    others = sorted(path.name for path in root.iterdir() if path not in folders and path.name != README_FILE)
    problems += [f"{name} does not belong beside the checkpoint folders: take it out" for name in others]
    # an index of a part of the cards would differ for no other reason
    if len(entries) == len(folders):
        problems += differences(root, {root / README_FILE: render_index(entries).encode()})
    return problems


def entry_problems(entry: Entry) -> Iterator[str]:
    """The problems of one checkpoint folder, each with the file that has it."""
    folder, results = entry.folder, entry.results
    different, stale = list(differences(folder, rendered_files(entry))), stale_files(entry)
    yield from different
    for name in (*NEEDED, *([CALIBRATION_FILE] if results["calibration"] else ())):
        if not (folder / name).is_file():
            yield f"{name} is missing: {COPY}"
    try:
        if not different:
            lint_card(folder)
        config, calibration = folder / CONFIG_FILE, folder / CALIBRATION_FILE
        if config.is_file() and task_for(auto_class_of(read_json(config))) != results["task"]:
            yield f"{CONFIG_FILE} is not of a model for {results['task']}: {COPY}"
        if calibration.is_file() and without_curves(read_json(calibration)) != results["calibration"]:
            yield f"{CALIBRATION_FILE} disagrees with {RESULTS_FILE}: {RENDER}"
    except ValueError as error:
        yield f"{README_FILE}: {one_line(error)}"
    if "/" not in results["name"] and results["name"] != entry.name:
        yield f"{RESULTS_FILE} names the folder {results['name']!r}: set its name to {entry.name!r}, then {RENDER}"
    shown = {figure["path"] for figure in results["figures"]}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if not is_publishable(name) or path.suffix == ".py" or (path.suffix == ".png" and name not in shown):
            yield f"{name} does not belong in a checkpoint folder: take it out of the gallery"
        elif path in stale:
            yield f"{name} is no longer part of this checkpoint: {RENDER}"
        elif name == WEIGHTS_FILE and path.stat().st_size > MAX_BYTES:
            yield f"{name} has more than {MAX_BYTES // 1_000_000} MB: take it out of the gallery"


def differences(folder: Path, files: dict[Path, bytes]) -> Iterator[str]:
    """Rendered files that are not as they would be rendered now."""
    for path, content in files.items():
        if not path.is_file() or path.read_bytes() != content:
            how = "differs from its rendering" if path.is_file() else "is missing"
            yield f"{path.relative_to(folder).as_posix()} {how}: {RENDER}"
