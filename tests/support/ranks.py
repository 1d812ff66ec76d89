"""Trains on two processes whose sequences halt at different depths.

A job is `KIND_VARIANT`, `KIND` being ddp or fsdp. `VARIANT.safetensors` in the folder holds the rows of the first
process above those of the second; parameters after training go to `KIND_VARIANT.safetensors`.
"""

from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from .batches import rows
from .families import BY_NAME, Variant, make_batch, make_model

# gradients through the last steps only leave embeddings without any
FEW_STEPS = Variant("gut_few_steps", "gut", {"backprop_steps": 2, "halting": "none"})
RANKED = {**BY_NAME, FEW_STEPS.name: FEW_STEPS}
LEARNING_RATE, UPDATES = 0.01, 2


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
    """Parameters after one process has trained on all sequences, as two processes must."""
    model = make_model(variant).train()
    update(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), batch, torch.Tensor.backward)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def train_rank(accelerator: Accelerator, job: str, folder: Path) -> None:
    kind, _, name = job.partition("_")
    variant = RANKED[name]
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
        save_file(parameters, folder / f"{job}.safetensors")
