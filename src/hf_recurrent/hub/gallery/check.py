"""What keeps a gallery from being what its cards and this package say, one line each."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from ...analysis.tables import EXPERT_FILE, SWEEP_FILE
from ...metrics.serialize import plain
from ..lint import CARD_FILE, README_FILE, card_problems
from ..staging import CONFIG_FILE, WEIGHTS_FILE, is_publishable, read_json
from ..sweep_section import told
from ..tasks import task_of
from .entries import Entry, card_folders, read_entry
from .images import is_png
from .rendered import rendered_files, rendered_index, stale_files
from .weights import count_parameters, is_pickle

RENDER = "run `make cards`"
COPY = "copy it from the run's output folder"
REMOVE = "remove it"
NEEDED = (CARD_FILE, "tokenizer.json", "tokenizer_config.json")
# what a folder of this repository may weigh with two bytes a parameter
MOST_BYTES, BYTES_PER_PARAMETER = 8_000_000, 2


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
            problems.append(f"{_line(error)}: {COPY}")
            continue
        problems += entry_problems(entries[-1])
    problems += _strangers(root)
    # an index of a part of the cards would differ for no other reason
    if len(entries) == len(card_folders(root)):
        problems += _differences(root, "", rendered_index(entries))
    return problems


def entry_problems(entry: Entry) -> list[str]:
    """The problems of one checkpoint folder."""
    try:
        rendered = rendered_files(entry)
    except ValueError as error:
        # without a config there is no telling what the rendered files should be
        rendered, config = {README_FILE: entry.readme.encode()}, [_line(error)]
    else:
        config = list(_config_problems(entry))
    return [
        *_differences(entry.folder, f"{entry.name}/", rendered),
        *config,
        *_card_problems(entry),
        *_name_problems(entry),
        *_statistics_problems(entry),
        *_section_problems(entry),
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
            what = "lacks the complete auto_map" if name == CONFIG_FILE else "differs from its rendering"
            what = "differs from the package's file" if name.endswith(".py") else what
            yield f"{prefix}{name} {what}: {RENDER}"


def _strangers(root: Path) -> Iterator[str]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not (path / CARD_FILE).is_file():
            yield f"{path.name} has no {CARD_FILE}: {COPY}, or remove the folder"
        elif not path.is_dir() and path.name != README_FILE:
            yield f"{path.name} does not belong beside the checkpoint folders: {REMOVE}"


def _config_problems(entry: Entry) -> Iterator[str]:
    config = read_json(entry.folder / CONFIG_FILE)
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
    for problem in card_problems(entry.readme, entry.folder):
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
    """Files whose numbers the card's later sections tell, and cards that tell of files that are not there."""
    sections = ((SWEEP_FILE, entry.card.sweep, told), (EXPERT_FILE, entry.card.experts, dict))
    for name, shown, of_file in sections:
        path = entry.folder / name
        if not path.is_file():
            if shown is not None:
                yield f"{entry.name}/{name} is missing: {COPY}"
            continue
        try:
            found = of_file(read_json(path)["splits"])
        except (ValueError, KeyError, TypeError, AttributeError):
            yield f"{entry.name}/{name} does not hold what this package writes: {COPY}"
            continue
        if shown is None or json.dumps(found, sort_keys=True) != json.dumps(plain(shown), sort_keys=True):
            yield f"{entry.name}/{name} disagrees with {CARD_FILE}: run the command that wrote it again, with --card"


def _file_problems(entry: Entry, rendered: list[str]) -> Iterator[str]:
    shown = {plot.path for plot in entry.card.plots}
    stale = set(stale_files(entry, rendered)) if CONFIG_FILE in rendered else set()
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
        elif not is_publishable(name):
            yield f"{place} does not belong in a checkpoint folder: {REMOVE}"
        elif path.suffix == ".png" and name not in shown:
            yield f"{place} is not shown by the card: {REMOVE}"
        elif path.suffix == ".png" and not is_png(path.read_bytes()):
            yield f"{place} is not a PNG file: {COPY}"


def _weight_problems(entry: Entry) -> Iterator[str]:
    path, place = entry.folder / WEIGHTS_FILE, f"{entry.name}/{WEIGHTS_FILE}"
    small = entry.parameters * BYTES_PER_PARAMETER <= MOST_BYTES
    if not path.is_file():
        if small:
            yield f"{place} is missing: {COPY}"
        return
    try:
        found = count_parameters(path)
    except ValueError as error:
        yield f"{place} is not readable ({_line(error)}): {COPY}"
        return
    if found * BYTES_PER_PARAMETER > MOST_BYTES:
        size = found * BYTES_PER_PARAMETER / 1e6
        yield f"{place} has {size:.1f} MB in half precision, more than {MOST_BYTES / 1e6:.0f} MB: {REMOVE}"
    if found != entry.parameters:
        yield f"{place} has {found:,} parameters, {CARD_FILE} says {entry.parameters:,}: copy both from the same run"
