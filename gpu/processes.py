"""Two processes on one device whose sequences halt at different depths: they learn what one process learns.

Of DDP and FSDP2, by NCCL where it takes two processes on one GPU, and by gloo.
"""

import datetime
import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from perf.core import Table

from .checks import Check, NotHereError, Setting
from .correct import largest_error, on

from support.batches import rows  # isort: skip - found by the import above
from support.compare import assert_same  # isort: skip
from support.families import make_model  # isort: skip
from support.ranks import LEARNING_RATE, RANKED, train_whole, uneven_batch, update  # isort: skip

NAMES = ("gut", "ut", "sut")
# until a deadlock is taken for one; a CPU's ranks may share their cores with others
SECONDS = {"cuda": 60, "cpu": 300}
# what NCCL says of two processes on one GPU, and gloo of collectives that it has for a CPU's tensors alone
REFUSALS = ("Duplicate GPU", "invalid usage", "ncclInvalidUsage", "does not support", "No backend type associated")


def learn(kind: str, backend: str, name: str, device: str, folder: Path, rank: int) -> None:
    """One rank: train on its share of the rows, and write what all have learned."""
    # both on the only GPU
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=SECONDS[device])
    )
    model = make_model(RANKED[name]).train().to(device)
    whole = load_file(folder / "batch.safetensors")
    share = len(whole["labels"]) // 2
    batch = on(device, rows(whole, slice(rank * share, (rank + 1) * share)))
    trained = model
    if kind == "ddp":
        trained = torch.nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device, (2,))
        fully_shard(model.model.block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    update(trained, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), batch, torch.Tensor.backward)
    found = {
        key: (value.full_tensor() if kind == "fsdp" else value).detach().cpu()
        for key, value in model.named_parameters()
    }
    if rank == 0:
        save_file(found, folder / "learned.safetensors")
    dist.barrier()
    dist.destroy_process_group()


def as_one(setting: Setting, kind: str, backend: str, name: str) -> list[Table]:
    if not dist.is_available():
        raise NotHereError(f"torch {torch.__version__} was built without torch.distributed")
    if backend == "nccl" and (setting.device == "cpu" or not dist.is_nccl_available()):
        raise NotHereError("NCCL needs a GPU")
    batch = uneven_batch(RANKED[name])
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        save_file({key: value.contiguous() for key, value in batch.items()}, folder / "batch.safetensors")
        arguments = [kind, backend, name, setting.device, made]
        commands = [[sys.executable, "-m", "gpu.processes", json.dumps([*arguments, rank])] for rank in range(2)]
        ranks = [
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
            for command in commands
        ]
        errors = []
        try:
            errors = [rank.communicate(timeout=SECONDS[setting.device])[1] for rank in ranks]
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{kind} by {backend}: a rank was not done after {SECONDS[setting.device]} s"
            ) from None
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            said = "\n".join(errors)
            refusal = next((line for line in said.splitlines() if any(each in line for each in REFUSALS)), None)
            if refusal is not None:
                raise NotHereError(f"{backend} refuses two processes on one {setting.device}: {refusal.strip()[:200]}")
            ends = " and ".join(str(rank.returncode) for rank in ranks)
            raise AssertionError(f"{kind} by {backend}: the ranks ended with status {ends} {said[-4000:]}")
        learned, expected = load_file(folder / "learned.safetensors"), train_whole(RANKED[name], batch)
    assert_same(learned, expected, 1e-5)
    row = {"model": name, "kind": kind, "backend": backend, "largest error": largest_error(learned, expected)}
    return [Table("Two processes: parameters against those that one process learns", [row])]


def checks(setting: Setting) -> Iterator[Check]:
    for backend in ("nccl", "gloo"):
        for kind in ("ddp", "fsdp"):
            for name in NAMES[: 1 if setting.toy else None]:
                check = functools.partial(as_one, setting, kind, backend, name)
                yield Check(f"{kind} by {backend}, {name}", check)


if __name__ == "__main__":
    *given, place, number = json.loads(sys.argv[1])
    learn(*given, Path(place), number)
