"""Runs of `task_runs` in each process of a launcher, by `script_ranks.py FOLDER CHANGES RUN ...`, in the folder.

`RUN.RANK.json` is how often a process has embedded tokens to evaluate. Where the launcher asks for FSDP, accelerate
takes the CPUs for GPUs, which its engine is for.
"""

import json
import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from task_runs import arguments
from torch.nn.modules.module import register_module_forward_hook

from hf_recurrent.training.run import run

SHARDED = "ACCELERATE_USE_FSDP" in os.environ


def main(folder: str, changes: str, *names: str) -> None:
    torch.set_num_threads(1)
    if SHARDED:
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
    places = json.loads((Path(folder) / "places.json").read_text())
    evaluated = 0

    def count(module, inputs, outputs):
        nonlocal evaluated
        evaluated += isinstance(module, torch.nn.Embedding) and not module.training

    register_module_forward_hook(count)
    for name in names:
        evaluated = 0
        messages = run(arguments(name, Path(folder) / name, places, use_cpu=not SHARDED, **json.loads(changes)))
        rank = torch.distributed.get_rank()
        assert (messages is not None) == (rank == 0)
        (Path(folder) / f"{name}.{rank}.json").write_text(json.dumps(evaluated))


if __name__ == "__main__":
    main(*sys.argv[1:])
