"""What commands about a checkpoint share: the examples they run it on, and the folders and cards they write."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..deploy.processes import from_first, is_first
from ..utils import Change, changed_files, new_folder, write_json
from .console import wrote

if TYPE_CHECKING:
    from datasets import Dataset

    from ..tasks.base import Split, Task
    from ..tasks.checkpoints import Checkpoint, Request


def encoded(
    checkpoint: "Checkpoint", request: "Request", limit: int, seed: int, task: "Task | None" = None
) -> "Iterator[Split]":
    """Up to `limit` examples of each requested split, as token ids in order of their lengths.

    Args:
        task: that of the request, if it was made before.

    Raises:
        ValueError: there is no such split, or examples cannot be used.
    """
    from ..tasks.checkpoints import evaluation_splits, requested_task

    def chosen(rows: "Dataset") -> "Dataset":
        return rows.shuffle(seed=seed).select(range(limit)) if limit < len(rows) else rows

    splits = evaluation_splits(checkpoint, request, task or requested_task(checkpoint, request), chosen, by_token=True)
    return islice(splits, None if request.splits else 1)


def conditions(model: Any) -> dict[str, Any]:
    """Conditions that times depend on."""
    import torch

    threads = torch.get_num_threads()
    name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    if model.device.type == "cuda":
        name = torch.cuda.get_device_name(model.device)
    return {"device": name, "dtype": str(model.dtype).removeprefix("torch.")}


@contextmanager
def made_by_first(change: AbstractContextManager[Change], folder: str | Path) -> Iterator[Change]:
    """The `change` of a folder, which the first process makes; what the others write is thrown away."""
    if is_first():
        with change as made:
            # the others wait until it is certain that there can be a change
            from_first(lambda: None)
            yield made
        return
    from_first(lambda: None)
    with TemporaryDirectory() as scratch:
        yield Change(Path(folder), Path(scratch))


def destination(
    checkpoint: str, output: Path | None, in_place: bool, ending: str, revision: str | None = None
) -> tuple[Path, AbstractContextManager[Change]]:
    """The folder to write into, and a change of it: the checkpoint's own, or a new one of a copy.

    Args:
        ending: of the new folder's name, after that of the checkpoint.

    Raises:
        ValueError: the flags contradict each other, or there is no place for the files.
    """
    source = Path(checkpoint)
    if in_place and output is not None:
        raise ValueError(f"--output {output} and --in_place: a checkpoint is changed or copied, choose one")
    if in_place and not source.is_dir():
        raise ValueError(f"--in_place: checkpoint {checkpoint} is no local folder; name a new one with --output")
    if in_place:
        return source, made_by_first(changed_files(source), source)
    beside = source.resolve() if source.is_dir() else Path(source.name)
    folder = output or beside.with_name(f"{beside.name}-{ending}")
    return folder, made_by_first(copied(checkpoint, folder, revision), folder)


@contextmanager
def copied(checkpoint: str, folder: Path, revision: str | None) -> Iterator[Change]:
    """A change that makes a new folder with the card and the recipe of a checkpoint."""
    from ..hub.base_model import copy_results
    from ..hub.checkpoint import checkpoint_config, revision_options
    from ..tasks.checkpoints import RECIPE_FILE

    def refuse(_: Any) -> None:
        raise ValueError(
            f"the folder of the copy, {folder}, is not empty: name a new one with --output, or pass --in_place to "
            "change the checkpoint itself"
        )

    recipe, options = Path(checkpoint) / RECIPE_FILE, revision_options(checkpoint, revision)
    with new_folder(folder, refuse) as built:
        # it says what is wrong with the name of a checkpoint
        checkpoint_config("checkpoint", checkpoint, **options)
        copy_results(checkpoint, built, folder.name, **options)
        if recipe.is_file():
            shutil.copyfile(recipe, built / RECIPE_FILE)
        yield Change(folder, built)


def place(checkpoint: str, folder: Path | None, card: bool) -> Path:
    """The folder to write tables into.

    Raises:
        ValueError: it is not known, or has no card where there should be one.
    """
    from ..hub.results import RESULTS_FILE

    if folder is None and not Path(checkpoint).is_dir():
        raise ValueError(f"checkpoint {checkpoint} is no local folder: say where to write the results with --output")
    target = Path(checkpoint) if folder is None else folder
    if card and not (target / RESULTS_FILE).is_file():
        raise ValueError(
            f"--card: {target} has no {RESULTS_FILE}; a training run writes it, leave --card out otherwise"
        )
    return target


def write_tables(
    change: Change, name: str, tables: dict[str, Any], draws: bool = False, section: str | None = None
) -> None:
    """Write tables, by splits, into a file; if it `draws`, with figures of each split.

    Args:
        section: of the card, which then shows both; None leaves the card as it is.
    """
    write_json(change.new / name, {"splits": tables})
    if not draws:
        return
    from ..analysis.plots import save_figures
    from ..hub.results import put_results, read_results, with_section

    drawn = {split: save_figures(change.new, table, prefix=split) for split, table in tables.items()}
    results = None if section is None else read_results(change.folder)
    if results is not None:
        put_results(change, with_section(results, section, tables, drawn), before=results)


def report(change: Change) -> None:
    """Name the files that a change has written."""
    for path in change.written:
        wrote(path)
