"""Trains on two processes whose sequences have different numbers of chunks.

A job is `KIND-WIDTH-VARIANT`. `KIND` is ddp, fsdp, or kept: fsdp that keeps parameters gathered until the backward
pass, of a model that has been evaluated. `WIDTH` is how the second process's short rows are padded: as wide as the long
rows of the first, or not at all. Parameters after training go to `KIND-WIDTH-VARIANT.safetensors`.
"""

from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from .batches import is_per_token, rows
from .families import BY_NAME, CHUNKS, make_batch, make_model
from .ranks import LEARNING_RATE, update

ROWS = 3


def shares(variant) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Sequences of three chunks, and of one."""
    batch = make_batch(variant, rows=60, seed=21)
    lengths = batch["attention_mask"].sum(-1)
    long = (lengths > 2 * CHUNKS["chunk_size"]).nonzero().squeeze(-1)[:ROWS]
    short = (lengths <= CHUNKS["chunk_size"]).nonzero().squeeze(-1)[:ROWS]
    return rows(batch, long), rows(batch, short)


def train_whole(variant) -> dict[str, torch.Tensor]:
    """Parameters after one process has trained on all sequences, as two processes must."""
    model = make_model(variant).train()
    long, short = shares(variant)
    batch = {name: torch.cat((value, short[name])) for name, value in long.items()}
    update(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), batch, torch.Tensor.backward)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def train_rank(accelerator: Accelerator, job: str, folder: Path) -> None:
    kind, width, name = job.split("-")
    model = make_model(BY_NAME[name]).train()
    batch = shares(BY_NAME[name])[accelerator.process_index]
    if width == "narrow":
        most = int(batch["attention_mask"].sum(-1).max())
        batch = {key: value[:, :most] if is_per_token(key, value) else value for key, value in batch.items()}
    if kind == "ddp":
        trained, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE))
        update(trained, optimizer, batch, accelerator.backward)
    else:
        mesh = init_device_mesh("cpu", (2,))
        for module in list(model.modules()):
            if type(module).__name__ in ("MemoryBlock", "MemoryUpdate"):
                fully_shard(module, mesh=mesh, reshard_after_forward=kind != "kept")
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        if kind == "kept":
            with torch.no_grad():
                model(**batch)
        update(model, optimizer, batch, torch.Tensor.backward)
    parameters = {
        name: (parameter if kind == "ddp" else parameter.full_tensor()).detach()
        for name, parameter in model.named_parameters()
    }
    if accelerator.is_main_process:
        save_file(parameters, folder / f"{job}.safetensors")
