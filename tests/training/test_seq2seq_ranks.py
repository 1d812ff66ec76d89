"""Two processes over sources and targets: what one process arrives at that accumulates their batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from seq2seq_ranks import ROWS, RUNS
from seq2seq_runs import pair_model, pair_trainer

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("seq2seq_ranks.py")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The runs of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_equal_one(ranks, tmp_path, name):
    """With the auxiliary losses, which are those of each process's batch."""
    whole = pair_trainer(tmp_path, ROWS, gradient_accumulation_steps=2, **RUNS[name])
    whole.train()
    weights, start = load_file(ranks / f"{name}.safetensors"), dict(pair_model().named_parameters())
    assert max((weights[key] - start[key]).abs().max() for key in weights) > 1e-2
    for key, tensor in whole.model.named_parameters():
        torch.testing.assert_close(weights[key], tensor.detach(), rtol=1e-4, atol=1e-6, msg=key)
    found = json.loads((ranks / f"{name}.json").read_text())
    for ours, theirs in zip(found["log"], whole.state.log_history, strict=False):
        if "loss" in theirs:
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
            assert ours["aux_loss"] == pytest.approx(theirs["aux_loss"], rel=1e-4)
    # seven rows on two processes, each of them once
    metrics = whole.evaluate()
    for key in ("eval_nll", "eval_accuracy", "eval_token_accuracy", "eval_ponder_cost"):
        assert found["metrics"][key] == pytest.approx(metrics[key], rel=1e-5)
