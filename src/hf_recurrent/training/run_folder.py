"""Output folders: the run that a folder belongs to, and the checkpoint from which that run resumes."""

import hashlib
import json
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..changes import no_room
from ..files import PARTIAL, write_json
from ..hub.checkpoint import one_line
from .folder_lock import LOCK_FILE, locked

RUN_FILE, TRAINER_STATE = "run.json", "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# settings that change where, how fast or with what output a run works, but not what it computes
NOT_IDENTITY = frozenset(
    {
        *("output_dir", "resume_from_checkpoint", "cache_dir", "num_proc", "dataloader_num_workers", "use_cpu"),
        *("disable_tqdm", "report_to", "run_name", "logging_steps", "save_total_limit", "keep_checkpoints"),
        *("write_predictions", "timing", "thresholds", "threshold_samples", "per_device_eval_batch_size"),
        *("evaluate_on", "evaluate_params", "compare_with", "dataset_id"),
        *("title", "notice", "paper", "paper_table", "paper_variants", "differences"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token"),
    }
)


def identity(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what a run computes."""
    return {name: value for name, value in settings.items() if name not in NOT_IDENTITY}


def digest(settings: dict[str, Any]) -> str:
    """A fingerprint of `identity(settings)`."""
    content = json.dumps(identity(settings), sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def read_run(folder: Path) -> dict[str, Any] | None:
    """The run that `folder` belongs to, None if it has no `run.json`.

    It is `evaluated` when all its results are written, and `finished` when nothing is left to do.
    """
    path = Path(folder) / RUN_FILE
    if not path.is_file():
        return None
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(run["settings"], dict):
            raise TypeError(f"settings is {run['settings']!r}")
        evaluated = run.get("evaluated", run["finished"])
        return {**{name: run[name] for name in ("digest", "settings", "finished")}, "evaluated": evaluated}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not readable ({error}): use another output_dir, or remove the folder") from error


def write_run(folder: Path, settings: dict[str, Any], *, evaluated: bool = False, finished: bool = False) -> None:
    """Record the run that `folder` belongs to, and how far it is."""
    run = {"digest": digest(settings), "settings": identity(settings)}
    write_json(Path(folder) / RUN_FILE, {**run, "evaluated": evaluated or finished, "finished": finished})


def acquire(folder: Path, settings: dict[str, Any], claim: bool = True) -> bool:
    """Reserve `folder` for this run if `claim` -> whether the same run has finished there already.

    Raises:
        ValueError: the folder holds another run, or files of no run.
    """
    folder = Path(folder)
    run = read_run(folder)
    if run is None:
        # a run that was killed at once leaves no more than the beginning of its claim
        if folder.is_dir() and any(path.name != LOCK_FILE and path.suffix != PARTIAL for path in folder.iterdir()):
            raise ValueError(f"output_dir {folder} holds files but no {RUN_FILE}: use an empty or a new folder")
        if claim:
            write_run(folder, settings)
        return False
    if run["digest"] != digest(settings):
        ours, theirs = identity(settings), run["settings"]
        changed = [
            f"{name}: {theirs.get(name, '(default)')!r} there, {ours.get(name, '(default)')!r} here"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        ]
        raise ValueError(f"output_dir {folder} holds a different run ({'; '.join(changed)}): use another folder")
    return run["finished"]


@contextmanager
def claimed(
    folder: Path, settings: dict[str, Any], turn: AbstractContextManager, is_main_process: bool
) -> Iterator[bool]:
    """`acquire(folder, settings)` in this process's `turn`, for a block that no other run enters with this folder.

    If the block fails with nothing in the folder but the claim, all is as it was before, so that a corrected run can
    have the folder. What a killed run had begun to write there, or to remove, is removed.

    Raises:
        ValueError: the folder holds another run or files of no run, is in use, cannot be written, or is on a disk that
            is full, which may be in the block.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with ExitStack() as stack:
            with turn, place_named(folder):
                finished = acquire(folder, settings, claim=False)
                # a finished folder needs a lock if one was left there by a kill, and may be read-only if not
                if is_main_process and (not finished or (folder / LOCK_FILE).exists()):
                    stack.enter_context(locked(folder))
                    stack.enter_context(released_on_error(folder))
                    finished = acquire(folder, settings)
                    remove_leftovers(folder)
            yield finished
    except BaseException as error:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        if no_room(error):
            raise ValueError(
                f"output_dir {folder}: there is no room on the disk for a file ({one_line(error)}): make room, then "
                "give the same command again; it goes on from the last complete checkpoint"
            ) from error
        raise


@contextmanager
def place_named(folder: Path) -> Iterator[None]:
    """Raise the error of a place where there can be no folder as a ValueError that names it; not of a full disk."""
    try:
        yield
    except OSError as error:
        if no_room(error):
            raise
        problem = f"is {str(folder)!r}, which cannot be written ({error.strerror or error})"
        raise ValueError(f"output_dir {problem}: name a new folder") from error


@contextmanager
def released_on_error(folder: Path) -> Iterator[None]:
    """Remove the claim of a run that fails before there is anything else."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if {path.name for path in folder.iterdir()} == {RUN_FILE, LOCK_FILE}:
                (folder / RUN_FILE).unlink()
        raise


def remove_leftovers(folder: Path) -> None:
    """Delete files that were being written, and checkpoints that were being written or removed, when a run ended."""
    for path in folder.rglob(f".*{PARTIAL}"):
        path.unlink()
    for path in folder.glob(".checkpoint-*"):
        shutil.rmtree(path)


def checkpoints(folder: Path) -> list[Path]:
    """The `checkpoint-N` folders, the latest first."""
    found = [path for path in Path(folder).glob("checkpoint-*") if CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The optimiser steps of a `checkpoint-N` folder."""
    return int(CHECKPOINT.fullmatch(checkpoint.name).group(1))


def remove_checkpoint(checkpoint: Path) -> None:
    """Delete a checkpoint so that a part of it is never taken for the whole."""
    waste = checkpoint.with_name(f".{checkpoint.name}.removed")
    checkpoint.rename(waste)
    shutil.rmtree(waste)


def checkpoint_problem(checkpoint: Path) -> str | None:
    """The reason why a checkpoint is unusable, None if it is usable.

    `Trainer` writes the model, then optimiser, schedule and random states, then trainer_state.json: a killed
    run lacks the later files, a full disk or a crashed machine may have cut any of them short.
    """
    required = (TRAINER_STATE, "config.json", "model.safetensors", "optimizer.pt", "scheduler.pt")
    for name in required:
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    random_states = sorted(checkpoint.glob("rng_state*.pth"))
    if not random_states:
        return "rng_state.pth is missing"
    try:
        for name in (TRAINER_STATE, "config.json"):
            json.loads((checkpoint / name).read_text(encoding="utf-8"))
        with safe_open(checkpoint / "model.safetensors", "pt") as weights:
            weights.keys()
        for path in (checkpoint / "optimizer.pt", checkpoint / "scheduler.pt", *random_states):
            # torch.save writes zip archives with checksums; reading them needs no unpickling
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged:
                return f"{path.name} is damaged"
    except (ValueError, OSError, SafetensorError, zipfile.BadZipFile) as error:
        return f"a file is not readable ({error})"
    return None


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint of `folder` whose files are all there and readable; warns of each that it skips."""
    for checkpoint in checkpoints(folder):
        problem = checkpoint_problem(checkpoint)
        if problem is None:
            return checkpoint
        warnings.warn(f"skipping the incomplete {checkpoint}: {problem}", stacklevel=2)
    return None


def checkpoint_to_resume(folder: Path, requested: str | None) -> Path | None:
    """The `requested` checkpoint, or the last complete one of `folder` if none is requested.

    Raises:
        ValueError: the requested checkpoint is not complete.
    """
    if requested is None:
        return last_complete_checkpoint(folder)
    problem = checkpoint_problem(Path(requested))
    if problem is not None:
        raise ValueError(f"resume_from_checkpoint {requested}: {problem}")
    return Path(requested)


def trainer_state(checkpoint: Path) -> dict[str, Any]:
    """The `trainer_state.json` of a complete checkpoint."""
    return json.loads((checkpoint / TRAINER_STATE).read_text(encoding="utf-8"))


def training_finished(checkpoint: Path) -> bool:
    """Whether training had ended, by its last step or by early stopping, when this checkpoint was written."""
    control = trainer_state(checkpoint).get("stateful_callbacks", {}).get("TrainerControl", {})
    return bool(control.get("args", {}).get("should_training_stop"))


def remove_checkpoints(folder: Path) -> None:
    """Delete the `checkpoint-N` folders of a finished run."""
    for checkpoint in checkpoints(folder):
        remove_checkpoint(checkpoint)
