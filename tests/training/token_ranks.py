"""Trains on batches by tokens in two processes; `token_ranks.py FOLDER` leaves weights and logs there."""

import sys
from pathlib import Path

import torch
from accelerate import debug_launcher
from safetensors.torch import save_file
from token_runs import token_trainer

from hf_recurrent.files import write_json

RUN = {"batch_tokens": 24, "max_steps": 2}


def run(folder: str) -> None:
    torch.set_num_threads(1)
    trainer = token_trainer(Path(folder) / "run", ddp_timeout=60, **RUN)
    assert trainer.args.world_size == 2
    trainer.train()
    if trainer.is_world_process_zero():
        weights = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
        save_file({key: value.detach() for key, value in weights}, Path(folder) / "weights.safetensors")
        write_json(Path(folder) / "log.json", trainer.state.log_history)


if __name__ == "__main__":
    debug_launcher(run, args=(sys.argv[1],), num_processes=2)
