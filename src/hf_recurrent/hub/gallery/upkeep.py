"""The upkeep of a gallery: files that are rendered from its cards, and problems that a person must solve."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ...analysis.tables import CALIBRATION_FILE, EXPERT_FILE, INSIDE_FILE, SWEEP_FILE
from ...changes import Change, changed_files
from ...files import plain, write_bytes
from ...models.common.exit_calibration import PROBE
from ..card import RENDERING_ERRORS, put_card, render_card
from ..inside import read_inside
from ..lint import CARD_FILE, README_FILE, card_problems
from ..metadata import eval_results_yaml, results_path
from ..sections import with_calibration, without_curves, without_pictures
from ..staging import CONFIG_FILE, WEIGHTS_FILE, is_publishable, read_json
from ..tasks import task_of
from .entries import NAME, Entry, card_folders, read_entry, read_gallery
from .page import render_index

RENDER = "run `hf-recurrent cards refresh` on the gallery"
COPY = "copy it from the run's output folder"
REMOVE = "take it out of the gallery"
NEEDED = (CARD_FILE, "tokenizer.json", "tokenizer_config.json")
# limit of the weights in a folder of this repository, with two bytes a parameter
MAX_BYTES, BYTES_PER_PARAMETER = 8_000_000, 2
PICKLE_SUFFIXES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})
# torch.save writes zip archives; a bare pickle starts with the PROTO opcode and a protocol from 2 to 5
ZIP = b"PK\x03\x04"
PROTO, PROTOCOLS = 0x80, range(2, 6)


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
        contents = {root / name: content for name, content in rendered_index(entries).items()}
        for entry in entries:
            files = rendered_files(entry)
            contents |= {entry.folder / name: content for name, content in files.items()}
            change.removed |= {path.relative_to(root).as_posix() for path in stale_files(entry, list(files))}
        for path, content in contents.items():
            write_bytes(change.new / path.relative_to(root), content)
    return sorted(map(Path, change.names))


def with_own_calibration(entry: Entry, change: Change) -> Entry:
    """The checkpoint with the calibration that lies in its folder and not yet in its card, as part of a `change`.

    Raises:
        ValueError: the file is none that `hf-recurrent calibrate` writes, or the card could not be published.
    """
    path = entry.folder / CALIBRATION_FILE
    if not path.is_file():
        return entry
    own = Change(entry.folder, change.new / entry.name)
    try:
        found = read_json(path)
        if without_curves(found) == entry.card.calibration:
            return entry
        card = with_calibration(entry.card, found, own.new)
        readme = render_card(card)
    except (ValueError, *RENDERING_ERRORS) as error:
        reason = f"does not hold what this package writes ({_line(error)})"
        raise ValueError(f"{entry.name}/{path.name} {reason}: {COPY}") from error
    put_card(own, card, before=entry.card)
    change.removed |= {f"{entry.name}/{name}" for name in own.removed}
    return Entry(entry.folder, card, readme)


def rendered_files(entry: Entry) -> dict[str, bytes]:
    """Path in the folder -> content: the card and its results."""
    files = {README_FILE: entry.readme.encode()}
    results = eval_results_yaml(entry.card)
    if results is not None:
        files[results_path(entry.card)] = results.encode()
    return files


def rendered_index(entries: Sequence[Entry]) -> dict[str, bytes]:
    """Path in the gallery -> content."""
    return {README_FILE: render_index(entries).encode()}


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
    for folder in card_folders(root):
        try:
            entries.append(read_entry(folder))
        except ValueError as error:
            problems.append(f"{_line(error)}: {COPY}" if NAME.fullmatch(folder.name) else _line(error))
            continue
        problems += entry_problems(entries[-1])
    problems += _misplaced(root)
    # an index of a part of the cards would differ for no other reason
    if len(entries) == len(card_folders(root)):
        problems += _differences(root, "", rendered_index(entries))
    return problems


def entry_problems(entry: Entry) -> list[str]:
    """The problems of one checkpoint folder."""
    rendered = rendered_files(entry)
    return [
        *_differences(entry.folder, f"{entry.name}/", rendered),
        *_config_problems(entry),
        *_card_problems(entry),
        *_name_problems(entry),
        *_statistics_problems(entry),
        *_section_problems(entry),
        *_inside_problems(entry),
        *_file_problems(entry, list(rendered)),
        *_weight_problems(entry),
    ]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _differences(folder: Path, prefix: str, files: dict[str, bytes]) -> Iterator[str]:
    for name, content in files.items():
        path = folder / name
        if not path.is_file():
            yield f"{prefix}{name} is missing: {RENDER}"
        elif path.read_bytes() != content:
            yield f"{prefix}{name} differs from its rendering: {RENDER}"


def _misplaced(root: Path) -> Iterator[str]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not (path / CARD_FILE).is_file():
            yield f"{path.name} has no {CARD_FILE}: {COPY}, or remove the folder"
        elif not path.is_dir() and path.name != README_FILE:
            yield f"{path.name} does not belong beside the checkpoint folders: {REMOVE}"


def _config_problems(entry: Entry) -> Iterator[str]:
    path = entry.folder / CONFIG_FILE
    if not path.is_file():
        yield f"{entry.name}/{CONFIG_FILE} is missing: {COPY}"
        return
    try:
        config = read_json(path)
    except ValueError:
        yield f"{entry.name}/{CONFIG_FILE} is not JSON: {COPY}"
        return
    model_type = config.get("model_type")
    if model_type != entry.card.family:
        yield (
            f"{entry.name}/{CONFIG_FILE} has model_type {model_type!r}, {CARD_FILE} has {entry.card.family!r}: "
            "copy both from the same run"
        )
    elif task_of(config) != entry.card.task:
        yield (
            f"{entry.name}/{CONFIG_FILE} names {config.get('architectures')}, which is not for {entry.card.task}, the "
            f"task in {CARD_FILE}: copy both from the same run"
        )


def _card_problems(entry: Entry) -> Iterator[str]:
    for problem in card_problems(entry.readme, entry.folder.joinpath):
        reason = " ".join(problem.split())
        yield f"{entry.name}/{CARD_FILE} gives a card that cannot be published: {reason}: mend either, then {RENDER}"


def _name_problems(entry: Entry) -> Iterator[str]:
    repo_id = entry.card.repo_id
    if "/" not in repo_id and repo_id != entry.name:
        yield f"{entry.name}/{CARD_FILE} names the folder {repo_id!r}: set its repo_id to {entry.name!r}, then {RENDER}"


def _statistics_problems(entry: Entry) -> Iterator[str]:
    path = entry.folder / entry.statistics_file
    if not path.is_file():
        return
    card = entry.card.to_dict()
    expected = {"splits": {result["split"]: result["table"] for result in card["results"]}}
    try:
        found = read_json(path)
    except ValueError:
        yield f"{entry.name}/{path.name} is not JSON: {COPY}"
        return
    if card["threshold_curve"] or "threshold_curve" in found:
        expected["threshold_curve"] = card["threshold_curve"]
    for key, value in expected.items():
        if json.dumps(found.get(key), sort_keys=True) != json.dumps(value, sort_keys=True):
            yield f"{entry.name}/{path.name} disagrees with {CARD_FILE} about {key}: copy both from the same run"


def _section_problems(entry: Entry) -> Iterator[str]:
    """Files that disagree with the card's later sections, and sections whose file is missing."""
    again = "run the command that wrote it again, with --card"
    sections = (
        (SWEEP_FILE, entry.card.sweep, lambda data: without_pictures(data["splits"]), again),
        (EXPERT_FILE, entry.card.experts, lambda data: dict(data["splits"]), again),
        (CALIBRATION_FILE, entry.card.calibration, without_curves, RENDER),
    )
    for name, shown, of_file, remedy in sections:
        path = entry.folder / name
        if not path.is_file():
            if shown is not None:
                yield f"{entry.name}/{name} is missing: {COPY}"
            continue
        try:
            found = of_file(read_json(path))
        except (ValueError, KeyError, TypeError, AttributeError):
            yield f"{entry.name}/{name} does not hold what this package writes: {COPY}"
            continue
        if shown is None or json.dumps(found, sort_keys=True) != json.dumps(plain(shown), sort_keys=True):
            yield f"{entry.name}/{name} disagrees with {CARD_FILE}: {remedy}"


def _inside_problems(entry: Entry) -> Iterator[str]:
    try:
        read_inside(entry.folder)
    except ValueError as error:
        yield f"{entry.name}/{INSIDE_FILE}: {_line(error)}"


def _file_problems(entry: Entry, rendered: list[str]) -> Iterator[str]:
    shown = {plot.path for plot in entry.card.plots}
    stale = set(stale_files(entry, rendered))
    for name in (*NEEDED, entry.statistics_file):
        if not (entry.folder / name).is_file():
            yield f"{entry.name}/{name} is missing: {COPY}"
    for path in sorted(entry.folder.rglob("*")):
        name = path.relative_to(entry.folder).as_posix()
        place = f"{entry.name}/{name}"
        if path.is_symlink():
            yield f"{place} is a link: replace it by the file"
        elif path.is_dir():
            continue
        elif is_pickle(path):
            yield f"{place} holds a pickle, which can run code when it is loaded: {REMOVE}"
        elif path in stale:
            yield f"{place} is no longer part of this checkpoint: {RENDER}"
        elif path.suffix == ".py":
            yield f"{place} is code, which is written anew when the checkpoint is published: {REMOVE}"
        elif not is_publishable(name):
            yield f"{place} does not belong in a checkpoint folder: {REMOVE}"
        elif path.suffix == ".png" and name not in shown:
            yield f"{place} is not shown by the card: {REMOVE}"


def _weight_problems(entry: Entry) -> Iterator[str]:
    path, place = entry.folder / WEIGHTS_FILE, f"{entry.name}/{WEIGHTS_FILE}"
    small = entry.parameters * BYTES_PER_PARAMETER <= MAX_BYTES
    if not path.is_file():
        if small:
            yield f"{place} is missing: {COPY}"
        return
    try:
        found = count_parameters(path)
    except ValueError as error:
        yield f"{place} is not readable ({_line(error)}): {COPY}"
        return
    if found * BYTES_PER_PARAMETER > MAX_BYTES:
        size = found * BYTES_PER_PARAMETER / 1e6
        yield f"{place} has {size:.1f} MB in half precision, more than {MAX_BYTES / 1e6:.0f} MB: {REMOVE}"
    # a probe may have been fitted since
    if entry.parameters not in (found, found - count_parameters(path, PROBE)):
        yield f"{place} has {found:,} parameters, {CARD_FILE} says {entry.parameters:,}: copy both from the same run"


def count_parameters(path: Path, prefix: str = "") -> int:
    """Number of values in a safetensors file under names that begin so, from its header.

    Raises:
        ValueError: it is not a safetensors file.
    """
    try:
        with safe_open(path, "np") as weights:
            names = [name for name in weights.keys() if name.startswith(prefix)]  # noqa: SIM118
            return sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def is_pickle(path: Path) -> bool:
    """Whether a file is, or may contain, pickled objects: by its name or by how it starts."""
    if path.suffix in PICKLE_SUFFIXES:
        return True
    with path.open("rb") as file:
        start = file.read(9)
    # a safetensors file starts with the length of its header, which may look like a protocol
    if path.suffix == ".safetensors" and start[8:] == b"{":
        return False
    return start.startswith(ZIP) or (len(start) > 1 and start[0] == PROTO and start[1] in PROTOCOLS)
