"""Checkpoints of runs over long documents: what `accelerate` keeps, and where every row is and what it remembers."""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..documents import DocumentReader
from ..metrics.serialize import write_json
from .run_folder import checkpoints

PROGRESS_FILE = "progress.json"


@dataclass
class Progress:
    """How far a run has come.

    `steps` optimiser steps, `seconds` of training over all resumptions, `groups` of rows that make a step; `nats` and
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
    """Write `checkpoint-N` in one step, N being the steps done, and delete all but the last `keep`.

    Every process calls it, and leaves its own reader and caches there.
    """
    target = Path(folder) / f"checkpoint-{progress.steps}"
    draft, rank = target.with_name(f".{target.name}"), accelerator.process_index
    if accelerator.is_main_process:
        for old in (draft, target):
            shutil.rmtree(old, ignore_errors=True)
        draft.mkdir(parents=True)
    accelerator.wait_for_everyone()
    with quiet("accelerate.utils.other"):
        # it would warn at each checkpoint that tied weights are kept once
        accelerator.save_state(str(draft))
    write_json(draft / f"reader_{rank}.json", reader.state_dict())
    tensors = {
        # tensors of a cache may share memory, which the format has no word for
        f"{group}.{name}": tensor.detach().clone().contiguous()
        for group, cache in enumerate(caches)
        for name, tensor in cache.state_dict().items()
    }
    save_file(tensors, draft / f"caches_{rank}.safetensors")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        write_json(draft / PROGRESS_FILE, asdict(progress))
        draft.rename(target)
        for old in checkpoints(folder)[keep:] if keep is not None else []:
            shutil.rmtree(old)
    accelerator.wait_for_everyone()
    return target


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Let a logger report errors only."""
    level = logging.getLogger(logger).level
    logging.getLogger(logger).setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.getLogger(logger).setLevel(level)


def find_checkpoint(folder: Path, asked: str | None) -> Path | None:
    """The checkpoint `asked` for, or the last one of `folder` if there is one.

    Raises:
        ValueError: the one asked for is none.
    """
    if asked is None:
        return next((path for path in checkpoints(folder) if (path / PROGRESS_FILE).is_file()), None)
    if not (Path(asked) / PROGRESS_FILE).is_file():
        raise ValueError(f"resume_from_checkpoint {asked}: {PROGRESS_FILE} is missing, so it is no complete checkpoint")
    return Path(asked)


def load_training_state(
    accelerator: Accelerator, checkpoint: Path, reader: DocumentReader, caches: list[Any]
) -> Progress:
    """Put everything that was prepared, `reader` and `caches` where `save_training_state` found them.

    Raises:
        ValueError: it was saved with other rows, segments, processes, groups or documents, or is damaged.
    """
    rank = accelerator.process_index
    # a process that the run did not have then learns from another's how many there were
    own = checkpoint / f"reader_{rank}.json"
    try:
        progress = Progress(**json.loads((checkpoint / PROGRESS_FILE).read_text(encoding="utf-8")))
        where = json.loads((own if own.is_file() else checkpoint / "reader_0.json").read_text(encoding="utf-8"))
    except (ValueError, TypeError, OSError) as error:
        raise damaged(checkpoint, error) from error
    if progress.groups != len(caches):
        raise ValueError(
            f"{checkpoint}: gradient_accumulation_steps was {progress.groups} and is {len(caches)}. Resume with what "
            "it was taken with"
        )
    try:
        reader.load_state_dict(where)
    except ValueError as error:
        raise ValueError(f"{checkpoint}: {error}") from error
    try:
        tensors = load_file(checkpoint / f"caches_{rank}.safetensors")
    except (SafetensorError, OSError) as error:
        raise damaged(checkpoint, error) from error
    try:
        for group, cache in enumerate(caches):
            own_tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{group}.")}
            cache.load_state_dict(
                {name.partition(".")[2]: tensor.to(accelerator.device) for name, tensor in own_tensors.items()}
            )
    except ValueError as error:
        raise ValueError(
            f"{checkpoint} is of another model: {error}. Resume with the recipe it was taken with"
        ) from error
    try:
        accelerator.load_state(str(checkpoint))
    # whatever loads a damaged file fails in whatever way it happens to
    except (SafetensorError, OSError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise damaged(checkpoint, error) from error
    return progress


def damaged(checkpoint: Path, error: Exception) -> ValueError:
    reason = str(error).partition("\n")[0]
    return ValueError(
        f"{checkpoint} does not load ({reason}): remove it, and the one before it is taken; if resume_from_checkpoint "
        "names it, name another"
    )
