"""Output folders: the run that a folder belongs to, and the checkpoint from which that run resumes."""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..files import new_parents, read_json, write_json

RUN_FILE, RECIPE_FILE, LOCK_FILE, TRAINER_STATE, WEIGHTS = (
    "run.json",
    "recipe.yaml",
    ".lock",
    "trainer_state.json",
    "model.safetensors",
)
# the last file of a checkpoint that is written
COMPLETE = "complete"
# what accelerate writes, whole, of a model whose parameters it has sharded
SHARDED_MODEL, SHARDED_OPTIMIZER = "pytorch_model_fsdp.bin", "optimizer.bin"
# the examples of an optimiser step, or its most tokens, over all processes; and the settings that share them out
STEP_SIZE, SHARES = "size of a step", ("per_device_train_batch_size", "gradient_accumulation_steps")
# how long a run trains
LENGTHS = {"max_steps", "num_train_epochs"}
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# settings that change where, how fast or with what output a run works, but not what it computes
NOT_IDENTITY = frozenset(
    {
        *("output_dir", "resume_from_checkpoint", "cache_dir", "num_proc", "dataloader_num_workers", "use_cpu"),
        # every run does all of them
        *("do_train", "do_eval", "do_predict"),
        *("disable_tqdm", "report_to", "run_name", "logging_steps", "save_total_limit", "keep_checkpoints"),
        *("write_predictions", "timing", "thresholds", "threshold_samples", "per_device_eval_batch_size"),
        *("evaluate_on", "evaluate_params", "dataset_id", "language"),
        *("title", "license", "notice", "paper", "paper_table", "paper_variants", "differences"),
        STEP_SIZE,
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token", "token"),
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
    return read_json(path) if path.is_file() else None


def write_run(folder: Path, settings: dict[str, Any], *, evaluated: bool = False, finished: bool = False) -> None:
    """Record the run that `folder` belongs to, and how far it is."""
    run = {"digest": digest(settings), "settings": identity(settings), STEP_SIZE: settings.get(STEP_SIZE)}
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
        if folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir()):
            raise ValueError(f"output_dir {folder} holds files but no {RUN_FILE}: use an empty or a new folder")
        if claim:
            write_run(folder, settings)
        return False
    before, now = run.get(STEP_SIZE), settings.get(STEP_SIZE)
    if None not in (before, now) and before != now and not run["evaluated"]:
        raise ValueError(
            f"output_dir {folder} holds a run whose optimiser steps are of {before:,} examples or tokens over all "
            f"processes, and here they are of {now:,}: choose {' and '.join(SHARES)} for as many, or use another folder"
        )
    # earlier versions counted more of the settings
    same = digest(settings) in (run["digest"], digest(run["settings"]))
    if now is not None and before == now:
        # whatever number of processes shares out the examples of a step
        there, here = ({**each, **dict.fromkeys(SHARES)} for each in (run["settings"], settings))
        same = same or digest(there) == digest(here)
    if not same:
        ours, theirs = single_settings(identity(settings)), single_settings(run["settings"])
        changed = {
            name: f"{name}: {theirs.get(name, '(default)')!r} there, {ours.get(name, '(default)')!r} here"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name) != theirs.get(name)
        }
        # the learning rate has followed the old length
        onwards = f", or train its weights further, in another folder with --model_name_or_path {folder}"
        raise ValueError(
            f"output_dir {folder} holds a different run: use another folder, or its settings "
            f"({'; '.join(changed.values())}){onwards if run['evaluated'] and changed.keys() & LENGTHS else ''}"
        )
    return run["finished"]


def single_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with an entry for each field of those that are mappings, such as `config.hidden_size`."""
    found = {}
    for name, value in settings.items():
        parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        found |= parts
    return found


@contextmanager
def claimed(
    folder: Path, settings: dict[str, Any], turn: AbstractContextManager, is_main_process: bool
) -> Iterator[bool]:
    """`acquire(folder, settings)` in this process's `turn`, for a block that no other run enters with this folder.

    If the block fails with nothing in the folder but the claim, all is as it was before, so that a corrected run can
    have the folder. Checkpoints that a killed run had begun to write, or to remove, are removed.

    Raises:
        ValueError: the folder holds another run or files of no run, is in use, or cannot be made.
    """
    with new_parents(folder / RUN_FILE), ExitStack() as stack:
        with turn:
            finished = acquire(folder, settings, claim=False)
            if is_main_process and not finished:
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(FileLock(folder / LOCK_FILE, timeout=0))
                except Timeout as error:
                    raise ValueError(
                        f"output_dir {folder} is in use by another process: wait until that run has ended, or use "
                        "another folder"
                    ) from error
                except OSError as error:
                    raise ValueError(f"output_dir {folder} cannot be written ({error}): name a new folder") from error
                stack.callback((folder / LOCK_FILE).unlink, missing_ok=True)
                stack.enter_context(released_on_error(folder))
                finished = acquire(folder, settings)
                for path in folder.glob(".checkpoint-*"):
                    shutil.rmtree(path)
        yield finished


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


def checkpoints(folder: Path) -> list[Path]:
    """The `checkpoint-N` folders, the latest first."""
    found = [path for path in Path(folder).glob("checkpoint-*") if CHECKPOINT.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The optimiser steps of a `checkpoint-N` folder."""
    return int(CHECKPOINT.fullmatch(checkpoint.name).group(1))


def remove_checkpoint(checkpoint: Path) -> None:
    """Delete a checkpoint so that a part of it is never taken for the whole."""
    waste = checkpoint.with_name(f".{checkpoint.name}.removed")
    checkpoint.rename(waste)
    shutil.rmtree(waste)


def last_complete_checkpoint(folder: Path, last_file: str = COMPLETE) -> Path | None:
    """The latest checkpoint of `folder` that was written to its last file; warns of each that it skips."""
    for checkpoint in checkpoints(folder):
        if (checkpoint / last_file).is_file():
            return checkpoint
        warnings.warn(f"skipping the incomplete {checkpoint}", stacklevel=2)
    return None


def checkpoint_to_resume(folder: Path, requested: str | None, last_file: str = COMPLETE) -> Path | None:
    """The `requested` checkpoint, or the last complete one of `folder` if none is requested.

    One of another folder is where a run begins: what this folder has since is taken instead.

    Raises:
        ValueError: the requested checkpoint is not complete.
    """
    if requested is None or not is_in(folder, Path(requested)):
        own = last_complete_checkpoint(folder, last_file)
        if own is not None or requested is None:
            return own
    if not (Path(requested) / last_file).is_file():
        raise ValueError(f"resume_from_checkpoint {requested}: it is no complete checkpoint, {last_file} is missing")
    return Path(requested)


def is_in(folder: Path, checkpoint: Path) -> bool:
    return checkpoint.resolve().parent == folder.resolve()


def trainer_state(checkpoint: Path) -> dict[str, Any]:
    """The `trainer_state.json` of a complete checkpoint."""
    return json.loads((checkpoint / TRAINER_STATE).read_text(encoding="utf-8"))


def training_finished(checkpoint: Path) -> bool:
    """Whether training had ended, by its last step or by early stopping, when this checkpoint was written."""
    return trainer_state(checkpoint)["stateful_callbacks"]["TrainerControl"]["args"]["should_training_stop"]


def remove_checkpoints(folder: Path) -> None:
    """Delete the `checkpoint-N` folders of a finished run."""
    for checkpoint in checkpoints(folder):
        remove_checkpoint(checkpoint)
