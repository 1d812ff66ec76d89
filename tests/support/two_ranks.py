"""Jobs of `ranks` and of `chunk_ranks` on two processes that import once: `-m support.two_ranks FOLDER JOB ...`."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs, debug_launcher
from torch import distributed as dist

from . import chunk_ranks, ranks

# a deadlock shall end the test, not wait for the default half hour
TIMEOUT = timedelta(seconds=60)


def run(folder: str, *jobs: str) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)])
    assert accelerator.num_processes == dist.get_world_size() == 2
    for job in jobs:
        (chunk_ranks if "-" in job else ranks).train_rank(accelerator, job, Path(folder))
    accelerator.end_training()


if __name__ == "__main__":
    debug_launcher(run, args=tuple(sys.argv[1:]), num_processes=2)
