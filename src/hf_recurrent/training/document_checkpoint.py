"""Checkpoints of runs over long documents: those of `accelerate`, with the place and the state of every sequence."""

import copy
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.checkpointing import load_accelerator_state
from safetensors.torch import load_file, save_file, save_model

from ..data.segments import DocumentReader
from ..files import read_json, write_json
from ..models.common.pretrained import share_weights
from ..models.common.sharding import is_sharded
from .engine_states import load_optimizer, load_weights, whole_model
from .run_folder import (
    SHARDED_MODEL,
    SHARDED_OPTIMIZER,
    WEIGHTS,
    checkpoint_to_resume,
    checkpoints,
    remove_checkpoint,
)

PROGRESS_FILE, READER_FILE, SCHEDULE_FILE = "progress.json", "reader_0.json", "scheduler.bin"


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
    model: Any,
    progress: Progress,
    reader: DocumentReader,
    caches: list[Any],
    keep: int | None = None,
) -> Path:
    """Write `checkpoint-N` in one step, N being the optimiser steps done, and delete all but the last `keep`.

    Every process calls it, and saves its own caches.
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
    whole = whole_model(model) if is_sharded(model) else None
    if whole is not None:
        save_model(whole, str(draft / WEIGHTS))
    tensors = {
        # tensors of a cache may share memory, which safetensors does not allow
        f"{group}.{name}": tensor.detach().clone().contiguous()
        for group, cache in enumerate(caches)
        for name, tensor in cache.state_dict().items()
    }
    save_file(tensors, draft / cache_file(rank))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        write_json(draft / READER_FILE, reader.state_dict())
        write_json(draft / PROGRESS_FILE, asdict(progress))
        share_weights(draft, PROGRESS_FILE)
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
    """As `checkpoint_to_resume`."""
    return checkpoint_to_resume(folder, requested, PROGRESS_FILE)


def load_training_state(
    accelerator: Accelerator,
    checkpoint: Path,
    model: Any,
    optimizer: Any,
    reader: DocumentReader,
    caches: list[Any],
) -> Progress:
    """Restore all that `accelerator` prepared, `reader` and `caches` as `save_training_state` saved them.

    Another number of processes or of groups takes over the sequences, and another engine the weights.

    Raises:
        ValueError: it was saved with another number of sequences, other segments or documents, or is damaged.
    """
    progress = Progress(**read_json(checkpoint / PROGRESS_FILE))
    place = read_json(checkpoint / READER_FILE)
    try:
        reader.load_state_dict(place)
    except ValueError as error:
        raise ValueError(f"{checkpoint / READER_FILE}: {error}") from error
    before = Shares(place["settings"]["processes"], progress.groups, reader.num_rows)
    now = Shares(accelerator.num_processes, len(caches), reader.num_rows)
    rank, sharded = accelerator.process_index, (checkpoint / SHARDED_MODEL).is_file()
    if before == now:
        parts = load_parts(checkpoint / cache_file(rank), caches)
    else:
        parts = dealt_anew(checkpoint, caches[0], before, now, rank)
    for cache, part in zip(caches, parts, strict=True):
        cache.load_state_dict({name: tensor.to(accelerator.device) for name, tensor in part.state_dict().items()})
    if not (sharded or is_sharded(model)):
        accelerator.load_state(str(checkpoint))
    else:
        load_weights(model, checkpoint / WEIGHTS)
        load_optimizer(model, optimizer.optimizer, checkpoint / SHARDED_OPTIMIZER)
        load_accelerator_state(str(checkpoint), [], [], accelerator._schedulers, [], rank)
    return progress


class Shares(NamedTuple):
    """The division of `rows` sequences among processes, and of those of each into groups."""

    processes: int
    groups: int
    rows: int

    def of(self, process: int, group: int) -> torch.Tensor:
        """The numbers of a group's sequences, in its order."""
        own = torch.arange(process, self.rows, self.processes)
        return own.chunk(self.groups)[group]


def cache_file(process: int) -> str:
    return f"caches_{process}.safetensors"


def load_parts(path: Path, like: list[Any]) -> list[Any]:
    """The caches of a process's groups, of which there are as many, and such, as `like`."""
    parts = [copy.deepcopy(cache) for cache in like]
    tensors = load_file(path)
    try:
        for group, cache in enumerate(parts):
            own = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{group}.")}
            cache.load_state_dict({name.partition(".")[2]: tensor for name, tensor in own.items()})
    except ValueError as error:
        raise ValueError(f"{path} is of another model: {error}. Resume with the recipe it was taken with") from error
    return parts


def dealt_anew(checkpoint: Path, empty: Any, before: Shares, now: Shares, rank: int) -> list[Any]:
    """The caches of this process's groups, redistributed from caches saved by another number of processes."""
    tensors: dict[str, torch.Tensor] = {}
    for process in range(before.processes):
        for group, part in enumerate(load_parts(checkpoint / cache_file(process), [empty] * before.groups)):
            for name, tensor in part.state_dict().items():
                if name == "made_for" or tensor.dim() == 0:
                    tensors[name] = torch.maximum(tensors.get(name, tensor), tensor)
                # the model projects its state vectors again
                elif not name.endswith(("state_key", "state_value")):
                    # what some sequences lack is zero
                    rows = tensors.setdefault(name, tensor.new_zeros(before.rows, *tensor.shape[1:]))
                    rows[before.of(process, group)] = tensor
    whole = copy.deepcopy(empty)
    whole.load_state_dict(tensors)
    parts = [copy.deepcopy(whole) for _ in range(now.groups)]
    for group, part in enumerate(parts):
        part.batch_select_indices(now.of(rank, group))
    return parts
