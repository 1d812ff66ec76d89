"""Output folders: the run that a folder belongs to, its checkpoints, and the one from which that run resumes."""

import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file, load_model

from ..utils import new_parents, read_json, write_json

RUN_FILE, RECIPE_FILE, LOCK_FILE = "run.json", "recipe.yaml", ".lock"
TRAINER_STATE, WEIGHTS = "trainer_state.json", "model.safetensors"
# the last file of a checkpoint that is written
COMPLETE = "complete"
# examples of an optimiser step, or its most tokens, over all processes, and the settings that share them out
STEP_SIZE, SHARES = "size of a step", ("per_device_train_batch_size", "gradient_accumulation_steps")
# how long a run trains
LENGTHS = {"max_steps", "num_train_epochs"}
# settings that change where, how fast or with what output a run works, but not what it computes
NOT_IDENTITY = frozenset(
    {
        *("output_dir", "resume_from_checkpoint", "cache_dir", "num_proc", "dataloader_num_workers", "use_cpu"),
        # every run does all of them
        *("do_train", "do_eval", "do_predict"),
        *("disable_tqdm", "report_to", "run_name", "logging_steps", "save_total_limit", "keep_checkpoints"),
        *("write_predictions", "timing", "per_device_eval_batch_size"),
        *("evaluate_on", "evaluate_params", "dataset_id", "language"),
        *("title", "license", "notice", "paper", "paper_table", "paper_variants", "differences"),
        *("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token", "token"),
    }
)


def identity(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what a run computes."""
    return {name: value for name, value in settings.items() if name not in NOT_IDENTITY}


def single(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with an entry for each field of those that are mappings, such as `config.hidden_size`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
    return found


def write_run(
    folder: Path, settings: dict[str, Any], *, evaluated: bool = False, finished: bool = False
) -> dict[str, Any]:
    """Record the run that `folder` belongs to, and how far it is.

    It is `evaluated` when all its results are written, and `finished` when nothing is left to do.
    """
    record = {"settings": identity(settings), "evaluated": evaluated or finished, "finished": finished}
    write_json(Path(folder) / RUN_FILE, record)
    return record


def recorded(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """What `folder` has recorded of this run; None where it is empty or not there.

    Raises:
        ValueError: the folder holds another run, or files of no run.
    """
    if not (folder / RUN_FILE).is_file():
        # a run that was killed at once leaves no more than its lock
        if folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir()):
            raise ValueError(f"output_dir {folder} holds files but no {RUN_FILE}: use an empty or a new folder")
        return None
    run = read_json(folder / RUN_FILE)
    # earlier versions had the size of a step outside the settings, and some more settings
    there, here = single({STEP_SIZE: run.get(STEP_SIZE), **identity(run["settings"])}), single(identity(settings))
    # processes may share a step otherwise, and what has ended may be published by any number of them
    same = SHARES if there.get(STEP_SIZE) == here.get(STEP_SIZE) else (STEP_SIZE,) if run["evaluated"] else ()
    changed = {
        name: f"{name}: {there.get(name, '(default)')!r} there, {here.get(name, '(default)')!r} here"
        for name in sorted((there.keys() | here.keys()) - {*same})
        if there.get(name) != here.get(name)
    }
    if changed:
        # the learning rate has followed the old length
        onwards = f", or train its weights further, in another folder with --model_name_or_path {folder}"
        raise ValueError(
            f"output_dir {folder} holds a different run: use another folder, or its settings "
            f"({'; '.join(changed.values())}){onwards if run['evaluated'] and changed.keys() & LENGTHS else ''}"
        )
    return run


@contextmanager
def claimed(
    folder: Path, settings: dict[str, Any], turn: AbstractContextManager, is_main_process: bool
) -> Iterator[dict[str, Any]]:
    """The record of a run in `folder`, for a block that no other run enters with this folder.

    If the block fails with nothing in the folder but the record, all is as it was before, so that a corrected run can
    have the folder.

    Args:
        turn: in which this process looks at the folder, the main one before the others.

    Raises:
        ValueError: the folder holds another run or files of no run, is in use, or cannot be made.
    """
    with new_parents(folder / RUN_FILE), ExitStack() as stack:
        with turn:
            if is_main_process:
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
            record = recorded(folder, settings) or write_run(folder, settings)
        try:
            yield record
        except BaseException:
            if is_main_process and {path.name for path in folder.iterdir()} == {RUN_FILE, LOCK_FILE}:
                (folder / RUN_FILE).unlink()
            raise


# ---- checkpoints


def checkpoints(folder: Path) -> list[Path]:
    """The `checkpoint-N` folders, the latest first."""
    found = [path for path in Path(folder).glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdecimal()]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The optimiser steps of a `checkpoint-N` folder."""
    return int(checkpoint.name.rpartition("-")[2])


def remove_checkpoints(several: Sequence[Path]) -> None:
    """Delete checkpoints so that a part of one is never taken for the whole."""
    for checkpoint in several:
        (checkpoint / COMPLETE).unlink(missing_ok=True)
        shutil.rmtree(checkpoint)


def seconds_of(checkpoint: Path) -> float:
    """The seconds of training of a complete checkpoint; 0 of one that an earlier version has written."""
    return float((checkpoint / COMPLETE).read_text() or 0)


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint of `folder` that was written to its last file; warns of each that it skips."""
    for checkpoint in checkpoints(folder):
        if (checkpoint / COMPLETE).is_file():
            return checkpoint
        warnings.warn(f"skipping the incomplete {checkpoint}", stacklevel=2)
    return None


def checkpoint_to_resume(folder: Path, requested: str | None) -> Path | None:
    """The `requested` checkpoint of `folder`, or the last complete one if none is requested.

    Raises:
        ValueError: the requested checkpoint is not complete, or in another folder.
    """
    if requested is None:
        return last_complete_checkpoint(folder)
    if Path(requested).resolve().parent != folder.resolve() or not (Path(requested) / COMPLETE).is_file():
        raise ValueError(
            f"resume_from_checkpoint {requested}: it is no complete checkpoint of output_dir {folder}; train weights "
            "of another run further with --model_name_or_path"
        )
    return Path(requested)


class DivergedError(FloatingPointError):
    """A loss or a weight is no longer a finite number."""

    def __init__(self, folder: str | Path, step: int, what: str):
        super().__init__(
            f"step {step}: {what} is not a finite number. Last good checkpoint: "
            f"{last_complete_checkpoint(Path(folder)) or 'none yet'}. Lower learning_rate, lengthen warmup_steps or "
            "lower max_grad_norm, in a new output_dir"
        )


def best_checkpoints(state: Any, args: Any) -> list[Path]:
    """The checkpoints of a run whose average it leaves, the best first; none if it leaves a single one.

    Args:
        state: `TrainerState`, whose evaluations are ranked by `args.metric_for_best_model`.
    """
    number = getattr(args, "average_checkpoints", None)
    if number is None:
        return []
    folders = {step_of(folder): folder for folder in checkpoints(args.output_dir)}
    metric = f"eval_{args.metric_for_best_model.removeprefix('eval_')}"
    values = {log["step"]: log[metric] for log in state.log_history if metric in log and log["step"] in folders}
    better, later = (-1 if flag else 1 for flag in (args.greater_is_better, args.best_model_on_ties == "latest"))
    ranked = sorted(values, key=lambda step: (better * values[step], later * step))
    return [folders[step] for step in ranked[:number]]


def load_average(model: torch.nn.Module, files: Sequence[Path]) -> torch.nn.Module:
    """`model` with the mean of its weights in some safetensors files, computed in float64."""
    # which checks that they fit
    load_model(model, files[0])
    several = [load_file(file) for file in files]
    means = {name: torch.stack([each[name].double() for each in several]).mean(0) for name in several[0]}
    # tied weights are there once
    model.load_state_dict(means, strict=False)
    return model
