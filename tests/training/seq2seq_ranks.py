"""Trains on sources and targets in two processes; `seq2seq_ranks.py FOLDER` leaves weights and logs there."""

import sys
from pathlib import Path

import torch
from accelerate import debug_launcher
from safetensors.torch import save_file
from seq2seq_runs import pair_rows, pair_trainer

from hf_recurrent.files import write_json

ROWS = pair_rows(16)
# rows by number, and batches by tokens for as long as both processes have batches of their own
RUNS = {"rows": {"per_device_train_batch_size": 2}, "tokens": {"max_tokens": 20, "max_steps": 2}}


def run(folder: str) -> None:
    torch.set_num_threads(1)
    for name in RUNS:
        train(folder, name)


def train(folder: str, name: str) -> None:
    trainer = pair_trainer(Path(folder) / f"{name}_run", ROWS, ddp_timeout=60, **RUNS[name])
    assert trainer.args.world_size == 2
    trainer.train()
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        weights = trainer.accelerator.unwrap_model(trainer.model).named_parameters()
        save_file({key: value.detach() for key, value in weights}, Path(folder) / f"{name}.safetensors")
        write_json(Path(folder) / f"{name}.json", {"log": trainer.state.log_history, "metrics": metrics})


def main(folder: str) -> None:
    debug_launcher(run, args=(folder,), num_processes=2)


if __name__ == "__main__":
    main(sys.argv[1])
