"""Trains on two processes whose rows halt at different depths; `-m support.ranks FOLDER ddp_VARIANT fsdp_VARIANT`.

`VARIANT.safetensors` in the folder holds the rows of the first process above those of the second; parameters after
training go to `ddp_VARIANT.safetensors` and so on.
"""

import sys
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs, debug_launcher
from safetensors.torch import load_file, save_file
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from .batches import rows
from .families import BY_NAME, make_batch, make_model

LEARNING_RATE, UPDATES = 0.01, 2
# a deadlock shall end the test, not wait for the default half hour
TIMEOUT = timedelta(seconds=60)


def uneven_batch(variant, rows_per_rank: int = 3) -> dict[str, torch.Tensor]:
    """Rows for two ranks: the deepest ones, and ones that halt before their first step."""
    batch = make_batch(variant, rows=3000, length=2, seed=21)
    with torch.no_grad():
        steps = make_model(variant)(**batch).ponder_steps
    order = (steps if steps.dim() == 1 else steps.amax(-1)).argsort(descending=True, stable=True)
    return rows(batch, torch.cat((order[:rows_per_rank], order[-rows_per_rank:])))


def update(model, optimizer, batch, backward) -> None:
    for _ in range(UPDATES):
        optimizer.zero_grad()
        backward(model(**batch).loss)
        optimizer.step()


def train_whole(variant, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What two processes must arrive at, by one."""
    model = make_model(variant).train()
    update(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), batch, torch.Tensor.backward)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def train_rank(accelerator: Accelerator, kind: str, variant, folder: Path) -> None:
    model = make_model(variant).train()
    whole = load_file(folder / f"{variant.name}.safetensors")
    share = len(whole["labels"]) // 2
    batch = rows(whole, slice(accelerator.process_index * share, (accelerator.process_index + 1) * share))
    if kind == "ddp":
        trained, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))
        update(trained, optimizer, batch, accelerator.backward)
    else:
        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model.model.block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        update(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), batch, torch.Tensor.backward)
    parameters = {
        name: (parameter.full_tensor() if kind == "fsdp" else parameter).detach()
        for name, parameter in model.named_parameters()
    }
    if accelerator.is_main_process:
        save_file(parameters, folder / f"{kind}_{variant.name}.safetensors")


def run(folder: str, *jobs: str) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)])
    assert accelerator.num_processes == dist.get_world_size() == 2
    for job in jobs:
        kind, _, name = job.partition("_")
        train_rank(accelerator, kind, BY_NAME[name], Path(folder))
    accelerator.end_training()


if __name__ == "__main__":
    debug_launcher(run, args=tuple(sys.argv[1:]), num_processes=2)
