"""Checkpoints of runs over long documents: those of `accelerate`, with the place and the state of every sequence."""

import logging
import reprlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from accelerate import Accelerator
from safetensors.torch import load_file, save_file

from ..documents import DocumentReader
from ..files import read_json, write_json
from .run_folder import WEIGHTS, check_binary, check_step, checkpoints, damage_reported, remove_checkpoint
from .values import AT_LEAST_0, COUNT_FROM_0, MOST, NUMBER, check_numbers, check_type, fits

PROGRESS_FILE = "progress.json"
# the fields of the two kinds of entries of a log
LOG_ENTRIES = ({"step", "bits_per_token", "tokens", "learning_rate"}, {"step", "validation_bits_per_token"})


@dataclass
class Progress:
    """The progress of a run.

    `steps` optimiser steps, `seconds` of training over all resumptions, `groups` of sequences in a step; `nats` and
    `tokens` predicted by all processes since the last entry of the `log` that has them.
    """

    steps: int = 0
    seconds: float = 0.0
    groups: int = 1
    nats: float = 0.0
    tokens: int = 0
    log: list[dict[str, float]] = field(default_factory=list)


def save_training_state(
    accelerator: Accelerator,
    folder: Path,
    progress: Progress,
    reader: DocumentReader,
    caches: list[Any],
    keep: int | None = None,
) -> Path:
    """Write `checkpoint-N` in one step, N being the optimiser steps done, and delete all but the last `keep`.

    Every process calls it, and saves its own reader and caches.
    """
    target = Path(folder) / f"checkpoint-{progress.steps}"
    draft, rank = target.with_name(f".{target.name}"), accelerator.process_index
    if accelerator.is_main_process:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    accelerator.wait_for_everyone()
    with quiet("accelerate.utils.other"):
        # it would warn at each checkpoint that tied weights are kept once
        accelerator.save_state(str(draft))
    write_json(draft / f"reader_{rank}.json", reader.state_dict())
    tensors = {
        # tensors of a cache may share memory, which safetensors does not allow
        f"{group}.{name}": tensor.detach().clone().contiguous()
        for group, cache in enumerate(caches)
        for name, tensor in cache.state_dict().items()
    }
    save_file(tensors, draft / f"caches_{rank}.safetensors")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        write_json(draft / PROGRESS_FILE, asdict(progress))
        if target.exists():
            remove_checkpoint(target)
        draft.rename(target)
        keep_last(folder, keep)
    accelerator.wait_for_everyone()
    return target


def keep_last(folder: Path, keep: int | None) -> None:
    """Delete all checkpoints but the last `keep`, or none."""
    for old in checkpoints(folder)[keep:] if keep is not None else []:
        remove_checkpoint(old)


@contextmanager
def quiet(logger: str, least: int = logging.ERROR) -> Iterator[None]:
    """Let a logger report errors only, or what is at `least` so severe."""
    level = logging.getLogger(logger).level
    logging.getLogger(logger).setLevel(least)
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(level)


def find_checkpoint(folder: Path, requested: str | None) -> Path | None:
    """The `requested` checkpoint, or the last one of `folder` if there is one.

    Raises:
        ValueError: the requested one is not complete.
    """
    if requested is None:
        return next((path for path in checkpoints(folder) if (path / PROGRESS_FILE).is_file()), None)
    if not (Path(requested) / PROGRESS_FILE).is_file():
        raise ValueError(
            f"resume_from_checkpoint {requested}: {PROGRESS_FILE} is missing, so it is no complete checkpoint"
        )
    return Path(requested)


def is_logged(value: Any) -> bool:
    """Whether a log may hold a value; one that is not finite is None there."""
    return value is None or (fits(value, float) and 0 <= value <= MOST)


def read_progress(checkpoint: Path) -> Progress:
    """The progress in a checkpoint.

    Raises:
        ValueError: the file is damaged.
    """
    path = checkpoint / PROGRESS_FILE
    found, hints = read_json(path), get_type_hints(Progress)
    check_type("its content", found, dict[str, Any], PROGRESS_FILE)
    for name, hint in hints.items():
        check_type(name, found.get(name), hint, PROGRESS_FILE)
    if found.keys() - hints:
        raise ValueError(f"{PROGRESS_FILE} has {sorted(found.keys() - hints)}, which are not known")
    progress = Progress(**found)
    try:
        check_numbers(progress, seconds=AT_LEAST_0, nats=NUMBER, tokens=COUNT_FROM_0)
    except ValueError as error:
        raise ValueError(f"{PROGRESS_FILE}: {error}") from error
    check_step(checkpoint, "steps", progress.steps, PROGRESS_FILE)
    for entry in progress.log:
        if entry.keys() not in LOG_ENTRIES or not all(map(is_logged, entry.values())):
            raise ValueError(f"{PROGRESS_FILE}: log holds {reprlib.repr(entry)}, which is no entry of it")
    return progress


def load_training_state(
    accelerator: Accelerator, checkpoint: Path, reader: DocumentReader, caches: list[Any]
) -> Progress:
    """Restore all that `accelerator` prepared, `reader` and `caches` as `save_training_state` saved them.

    Raises:
        ValueError: it was saved with other batches, segments, processes, groups or documents, or is damaged.
    """
    rank = accelerator.process_index
    # the file of another process has their number, for a process that the run did not have before
    own = checkpoint / f"reader_{rank}.json"
    with damage_reported(checkpoint):
        progress = read_progress(checkpoint)
        own = own if own.is_file() else checkpoint / "reader_0.json"
        place = read_json(own)
    if progress.groups != len(caches):
        raise ValueError(
            f"{checkpoint}: gradient_accumulation_steps was {progress.groups} and is {len(caches)}. Resume with what "
            "it was taken with"
        )
    try:
        reader.load_state_dict(place)
    except ValueError as error:
        raise ValueError(f"{own}: {error}") from error
    kept = checkpoint / f"caches_{rank}.safetensors"
    with damage_reported(checkpoint):
        # `accelerate` names no file, and goes on without random states
        for name in (WEIGHTS, "optimizer.bin", "scheduler.bin", f"random_states_{rank}.pkl", kept.name):
            check_binary(checkpoint / name)
        tensors = load_file(kept)
    try:
        for group, cache in enumerate(caches):
            own_tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{group}.")}
            cache.load_state_dict(
                {name.partition(".")[2]: tensor.to(accelerator.device) for name, tensor in own_tensors.items()}
            )
    except ValueError as error:
        raise ValueError(f"{kept} is of another model: {error}. Resume with the recipe it was taken with") from error
    with damage_reported(checkpoint):
        accelerator.load_state(str(checkpoint))
    return progress
