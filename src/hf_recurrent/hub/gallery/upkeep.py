"""The upkeep of a gallery: files that are rendered from its cards, and problems that a person must solve."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ...utils import changed_files, one_line, read_json, write_bytes
from ..card import auto_class_of, task_for
from ..checkpoint import CONFIG_FILE
from ..results import CALIBRATION_FILE, INSIDE_FILE, README_FILE, RESULTS_FILE, weight_files, without_curves
from ..staging import local_files, stage_checkpoint
from .entries import Entry, card_folders, read_entry, read_gallery
from .page import render_index

RENDER = "run `hf-recurrent cards refresh` on the gallery"
COPY = "copy it from the run's output folder"


def refresh(root: str | os.PathLike) -> list[Path]:
    """Render every card, its evaluation results and the index again.

    Returns the paths that changed, relative to `root`; a second call changes nothing.

    Raises:
        ValueError: a folder's card data cannot be used; nothing is written then.
    """
    entries = read_gallery(root)
    files = {README_FILE: render_index(entries)}
    files |= {f"{entry.name}/{name}": text for entry in entries for name, text in entry.files.items()}
    with changed_files(root) as change:
        for name, text in files.items():
            write_bytes(change.new / name, text.encode())
    return [path.relative_to(root) for path in change.written]


def outdated(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """Problems of the rendered files that are missing, or not as they would be rendered now."""
    for name, text in files.items():
        present = (folder / name).is_file()
        if not present or (folder / name).read_bytes() != text.encode():
            yield f"{name} {'differs from its rendering' if present else 'is missing'}: {RENDER}"


def gallery_problems(root: str | os.PathLike) -> list[str]:
    """Every problem of a gallery in a line that names folder, file and remedy; none if it is publishable as it is.

    Raises:
        ValueError: `root` is not a gallery at all.
    """
    root, folders = Path(root), card_folders(root)
    problems: list[str] = []
    entries: list[Entry] = []
    for folder in folders:
        try:
            entries.append(read_entry(folder))
            problems += (f"{folder.name}/{problem}" for problem in entry_problems(entries[-1]))
        except ValueError as error:
            problems.append(one_line(error))
    others = sorted(path.name for path in root.iterdir() if path not in folders and path.name != README_FILE)
    problems += [f"{name} does not belong beside the checkpoint folders: take it out" for name in others]
    # an index of a part of the cards would differ for no other reason
    if len(entries) == len(folders):
        problems += outdated(root, {README_FILE: render_index(entries)})
    return problems


def entry_problems(entry: Entry) -> Iterator[str]:
    """The problems of one checkpoint folder, each with the file that has it. Raises a ValueError as publishing does."""
    results, present = entry.results, local_files(entry.folder)
    needed = [CONFIG_FILE, *weight_files(entry.folder), "tokenizer.json", "tokenizer_config.json"]
    needed += [CALIBRATION_FILE] if results["calibration"] else []
    missing = [f"{name} is missing: {COPY}" for name in needed if name not in present]
    if problems := [*outdated(entry.folder, entry.files), *missing]:
        yield from problems
        return
    with TemporaryDirectory() as place:
        published = local_files(stage_checkpoint(entry.folder, Path(place) / "staged"))
    # code is written when a checkpoint is published, and stored inputs of a user's own data are for the page alone
    for name in present:
        if name not in (*published, INSIDE_FILE) or name.endswith(".py"):
            yield f"{name} does not belong in a checkpoint folder: take it out of the gallery"
    if task_for(auto_class_of(read_json(present[CONFIG_FILE]))) != results["task"]:
        yield f"{CONFIG_FILE} is not of a model for {results['task']}: {COPY}"
    if CALIBRATION_FILE in present and without_curves(read_json(present[CALIBRATION_FILE])) != results["calibration"]:
        yield f"{CALIBRATION_FILE} disagrees with {RESULTS_FILE}: run `hf-recurrent calibrate` again"
    if "/" not in results["name"] and results["name"] != entry.name:
        yield f"{RESULTS_FILE} names the folder {results['name']!r}: set its name to {entry.name!r}, then {RENDER}"
