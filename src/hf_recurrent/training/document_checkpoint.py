"""Checkpoints of runs over long documents: those of `accelerate`, with the place and the state of every sequence."""

import copy
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.checkpointing import load_accelerator_state
from safetensors.torch import load_file, save_file, save_model

from ..models.base.pretrained import share_weights
from ..models.ops.sharding import is_sharded
from ..utils import read_json, write_json
from .run_folder import COMPLETE, WEIGHTS, checkpoints, remove_checkpoints
from .sharding import SHARDED_MODEL, SHARDED_OPTIMIZER, load_optimizer, load_weights, whole_model

if TYPE_CHECKING:
    from .documents import DocumentRun

PROGRESS_FILE, READER_FILE = "progress.json", "reader_0.json"
# the numbers of a group's sequences, among the tensors of its cache
ROWS = "rows"


@dataclass
class Progress:
    """The progress of a run.

    `steps` optimiser steps, `seconds` of training over all resumptions; `nats` and `tokens` predicted by all processes
    since the last entry of the `log` that has them.
    """

    steps: int = 0
    seconds: float = 0.0
    nats: float = 0.0
    tokens: int = 0
    log: list[dict[str, float]] = field(default_factory=list)


def rows_of_groups(run: "DocumentRun") -> tuple[torch.Tensor, ...]:
    """The numbers of the sequences of each of this process's groups, in order."""
    return torch.arange(run.accelerator.process_index, run.reader.num_rows, run.num_processes).chunk(len(run.caches))


def save_training_state(run: "DocumentRun") -> None:
    """Write `checkpoint-N`, N being the optimiser steps done, and delete all but the last ones.

    Every process calls it, and saves its own caches.
    """
    accelerator, model = run.accelerator, run.plain_model
    target = run.folder / f"checkpoint-{run.progress.steps}"
    if accelerator.is_main_process:
        # of a run that was killed while it was written
        remove_checkpoints([target] if target.exists() else [])
        target.mkdir(parents=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(target))
    whole = whole_model(model) if is_sharded(model) else None
    if whole is not None:
        save_model(whole, str(target / WEIGHTS))
    tensors = {
        # tensors of a cache may share memory, which safetensors does not allow
        f"{group}.{name}": tensor.detach().clone().contiguous()
        for group, (cache, rows) in enumerate(zip(run.caches, rows_of_groups(run), strict=True))
        for name, tensor in {**cache.state_dict(), ROWS: rows}.items()
    }
    save_file(tensors, target / f"caches_{accelerator.process_index}.safetensors")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        write_json(target / READER_FILE, run.reader.state_dict())
        write_json(target / PROGRESS_FILE, asdict(run.progress))
        share_weights(target, PROGRESS_FILE)
        (target / COMPLETE).touch()
        # as in transformers, nothing or 0 is no limit
        remove_checkpoints(checkpoints(run.folder)[run.args.save_total_limit or sys.maxsize :])
    accelerator.wait_for_everyone()


def load_training_state(run: "DocumentRun", checkpoint: Path) -> Progress:
    """Restore all that `save_training_state` saved of a run.

    Another number of processes or of groups takes over the sequences, and another engine the weights.

    Raises:
        ValueError: it was saved with another number of sequences, other segments, documents or models.
    """
    accelerator, model = run.accelerator, run.plain_model
    run.reader.load_state_dict(read_json(checkpoint / READER_FILE))
    whole = cache_of_all(checkpoint, run.caches[0], run.reader.num_rows)
    for cache, rows in zip(run.caches, rows_of_groups(run), strict=True):
        part = copy.deepcopy(whole)
        part.batch_select_indices(rows)
        cache.load_state_dict({name: tensor.to(accelerator.device) for name, tensor in part.state_dict().items()})
    if (checkpoint / SHARDED_MODEL).is_file() or is_sharded(model):
        load_weights(model, checkpoint / WEIGHTS)
        load_optimizer(model, run.optimizer.optimizer, checkpoint / SHARDED_OPTIMIZER)
        load_accelerator_state(str(checkpoint), [], [], accelerator._schedulers, [], accelerator.process_index)
    else:
        accelerator.load_state(str(checkpoint))
    return Progress(**read_json(checkpoint / PROGRESS_FILE))


def cache_of_all(checkpoint: Path, empty: Any, num_rows: int) -> Any:
    """The cache of all sequences, from those that the groups of all processes have saved."""
    tensors: dict[str, torch.Tensor] = {}
    for path in checkpoint.glob("caches_*.safetensors"):
        saved = load_file(path)
        for key, tensor in saved.items():
            group, _, name = key.partition(".")
            if name == "made_for" or tensor.dim() == 0:
                tensors[name] = torch.maximum(tensors.get(name, tensor), tensor)
            # the model projects its state vectors again
            elif name != ROWS and not name.endswith(("state_key", "state_value")):
                # what some sequences lack is zero
                rows = tensors.setdefault(name, tensor.new_zeros(num_rows, *tensor.shape[1:]))
                rows[saved[f"{group}.{ROWS}"]] = tensor
    whole = copy.deepcopy(empty)
    whole.load_state_dict(tensors)
    return whole
