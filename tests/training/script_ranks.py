"""Runs of `script_runs` in several processes; `script_ranks.py FOLDER PROCESSES RUN ...` leaves their folders there.

`RUN.RANK.json` is how often a process has embedded tokens to evaluate.
"""

import json
import sys
from pathlib import Path

import torch
from accelerate import debug_launcher
from script_runs import RUNS, arguments
from torch.nn.modules.module import register_module_forward_hook

from hf_recurrent.training.run import run as run_recipe


def run(folder: str, *names: str) -> None:
    torch.set_num_threads(1)
    places = json.loads((Path(folder) / "places.json").read_text())
    evaluated = 0

    def count(module, inputs, outputs):
        nonlocal evaluated
        evaluated += isinstance(module, torch.nn.Embedding) and not module.training

    register_module_forward_hook(count)
    for name in names:
        evaluated = 0
        messages = run_recipe(arguments(name, Path(folder) / name, places), RUNS[name][0])
        rank = torch.distributed.get_rank()
        assert (messages is not None) == (rank == 0)
        (Path(folder) / f"{name}.{rank}.json").write_text(json.dumps(evaluated))


if __name__ == "__main__":
    folder, processes, *names = sys.argv[1:]
    debug_launcher(run, args=(folder, *names), num_processes=int(processes))
