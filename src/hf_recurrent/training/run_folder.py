"""Output folders: the run that a folder belongs to, and the checkpoint from which that run resumes."""

import hashlib
import json
import math
import re
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import safe_open
from transformers import TrainerControl, TrainerState

from ..files import PARTIAL, no_room, read_json, write_json
from ..hub.checkpoint import one_line
from .checksums import check_checksums
from .clock import TrainingClock
from .folder_lock import LOCK_FILE, locked
from .values import check_type

RUN_FILE, TRAINER_STATE, WEIGHTS = "run.json", "trainer_state.json", "model.safetensors"
# what accelerate writes, whole, of a model whose parameters it has sharded
SHARDED_MODEL, SHARDED_OPTIMIZER = "pytorch_model_fsdp.bin", "optimizer.bin"
RUN_FIELDS = {"digest": str, "settings": dict, "evaluated": bool, "finished": bool}
# what a run that goes on would take for its beginning if it were absent
STATE_FIELDS = ("global_step", "train_batch_size", "log_history", "stateful_callbacks")
CHOICE_FIELDS = ("best_metric", "best_global_step", "best_model_checkpoint")
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
        *("evaluate_on", "evaluate_params", "compare_with", "dataset_id"),
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
    if not path.is_file():
        return None
    try:
        run = read_json(path)
        check_type("its content", run, dict[str, Any], RUN_FILE)
        found = {**{name: run.get(name) for name in RUN_FIELDS}, "evaluated": run.get("evaluated", run.get("finished"))}
        for name, kind in RUN_FIELDS.items():
            check_type(name, found[name], kind, RUN_FILE)
        # earlier versions did not write it
        found[STEP_SIZE] = run.get(STEP_SIZE)
        check_type(STEP_SIZE, found[STEP_SIZE], int | None, RUN_FILE)
        return found
    except ValueError as error:
        raise ValueError(f"{path} is not readable ({error}): use another output_dir, or remove the folder") from error


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
        if folder.is_dir() and any(path.name != LOCK_FILE and path.suffix != PARTIAL for path in folder.iterdir()):
            raise ValueError(f"output_dir {folder} holds files but no {RUN_FILE}: use an empty or a new folder")
        if claim:
            write_run(folder, settings)
        return False
    before, now = run[STEP_SIZE], settings.get(STEP_SIZE)
    if None not in (before, now) and before != now and not run["evaluated"]:
        raise ValueError(
            f"output_dir {folder} holds a run whose optimiser steps are of {before:,} examples or tokens over all "
            f"processes, and here they are of {now:,}: choose {' and '.join(SHARES)} for as many, or use another folder"
        )
    # earlier versions counted more of the settings
    same = digest(settings) in (run["digest"], digest(run["settings"]))
    if not same and not (now is not None and before == now and shared_anew(run, settings)):
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


def shared_anew(run: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether settings differ from those of a run only in how the examples of a step are shared out."""
    there, here = ({name: each[name] for name in each if name not in SHARES} for each in (run["settings"], settings))
    return digest(there) == digest(here)


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
        place = "" if error.filename in (None, str(folder)) else f"{error.filename}: "
        problem = f"is {str(folder)!r}, which cannot be written ({place}{error.strerror or error})"
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


def checkpoint_problem(checkpoint: Path) -> str | None:
    """The reason why a checkpoint is unusable, None if it is usable.

    `Trainer` writes the model, then optimiser, schedule and random states, then trainer_state.json: a killed
    run lacks the later files, a full disk or a crashed machine may have cut any of them short.
    """
    sharded = (checkpoint / SHARDED_OPTIMIZER).is_file()
    states = (SHARDED_MODEL, SHARDED_OPTIMIZER) if sharded else ("optimizer.pt",)
    binaries = (WEIGHTS, *states, "scheduler.pt")
    for name in (TRAINER_STATE, "config.json", *binaries):
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
    random_states = sorted(checkpoint.glob("rng_state*.pth"))
    if not random_states:
        return "rng_state.pth is missing"
    try:
        state = read_json(checkpoint / TRAINER_STATE)
        check_state(state)
        check_step(checkpoint, "global_step", state["global_step"], TRAINER_STATE)
        check_type("its content", read_json(checkpoint / "config.json"), dict[str, Any], "config.json")
        check_checksums(checkpoint)
        for path in (*(checkpoint / name for name in binaries), *random_states):
            check_binary(path)
        if state.get("best_model_checkpoint") is not None:
            # one of them, or their average, may be what the run leaves
            for earlier in checkpoints(checkpoint.parent):
                if step_of(earlier) < state["global_step"]:
                    check_binary(earlier / WEIGHTS)
    except (ValueError, OSError) as error:
        return f"a file is not readable ({error})"
    return None


def check_binary(path: Path) -> None:
    """Raise a ValueError for safetensors, or an archive of `torch.save`, that are missing or damaged."""
    # zip archives have checksums; reading them needs no unpickling
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as weights:
                weights.keys()
            return
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    # the readers fail in whatever way they happen to
    except Exception as error:
        raise ValueError(f"{path} is damaged ({one_line(error)})") from error
    if damaged:
        raise ValueError(f"{path} is damaged ({damaged})")


def check_step(checkpoint: Path, name: str, steps: int, source: str) -> None:
    """Raise a ValueError unless a checkpoint was written after so many steps as its name says, if it says so."""
    if CHECKPOINT.fullmatch(checkpoint.name) and steps != step_of(checkpoint):
        raise ValueError(f"{source}: {name} is {steps}, expected {step_of(checkpoint)}, as the folder's name says")


def check_state(state: Any) -> None:
    """Raise a ValueError for what is not the `trainer_state.json` of this version of transformers."""
    hints = {**get_type_hints(TrainerState), "stateful_callbacks": dict[str, dict | list]}
    check_type("its content", state, dict[str, Any], TRAINER_STATE)
    for name, value in state.items():
        if name not in hints:
            raise ValueError(f"{TRAINER_STATE} has {name!r}, which is not known: update transformers")
        check_type(name, value, hints[name], TRAINER_STATE)
    for name in STATE_FIELDS:
        if state.get(name) is None:
            raise ValueError(f"{TRAINER_STATE} has no {name}")
    for name in CHOICE_FIELDS:
        if name not in state:
            raise ValueError(f"{TRAINER_STATE} has no {name}")
    if not math.isfinite(state["best_metric"] or 0):
        raise ValueError(f"{TRAINER_STATE}: best_metric is {state['best_metric']}, expected a finite number")
    callbacks = state["stateful_callbacks"]
    for name, value in callbacks.items():
        for item in value if isinstance(value, list) else [value]:
            check_type(f"args of {name}", item.get("args"), dict, TRAINER_STATE)
            check_type(f"attributes of {name}", item.get("attributes"), dict, TRAINER_STATE)
    for kind in (TrainerControl, TrainingClock):
        check_type(kind.__name__, callbacks.get(kind.__name__), dict, TRAINER_STATE)
        check_callback(kind, callbacks[kind.__name__]["args"])


def check_callback(kind: type, args: dict[str, Any]) -> None:
    """Raise a ValueError unless `args` are all arguments of a callback, of their types, and numbers are finite."""
    hints = get_type_hints(kind.__init__)
    for name in hints.keys() - {"return"}:
        if name not in args:
            raise ValueError(f"{TRAINER_STATE}: {kind.__name__} has no {name}")
        check_type(f"{name} of {kind.__name__}", args[name], hints[name], TRAINER_STATE)
        if isinstance(args[name], float) and not math.isfinite(args[name]):
            raise ValueError(f"{TRAINER_STATE}: {name} of {kind.__name__} is {args[name]}, expected a finite number")


@contextmanager
def damage_reported(checkpoint: str | Path) -> Iterator[None]:
    """Raise the errors that damaged files cause in their loaders as a ValueError that names the checkpoint."""
    try:
        yield
    # a damaged file makes its loader fail in whatever way it happens to
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{checkpoint} does not load ({reason}): remove it to resume from the one before it; if "
            "resume_from_checkpoint names it, name another"
        ) from error


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

    One of another folder is where a run begins: what this folder has since is taken instead.

    Raises:
        ValueError: the requested checkpoint is not complete.
    """
    if requested is None:
        return last_complete_checkpoint(folder)
    own = None if is_in(folder, Path(requested)) else last_complete_checkpoint(folder)
    if own is not None:
        return own
    problem = checkpoint_problem(Path(requested))
    if problem is not None:
        raise ValueError(f"resume_from_checkpoint {requested}: {problem}")
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
