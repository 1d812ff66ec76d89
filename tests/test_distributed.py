"""Two processes whose rows halt at different depths finish, and learn what one process learns from all rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.compare import assert_same
from support.families import BY_NAME, STEPS, make_model
from support.ranks import train_whole, uneven_batch

NAMES = ["gut", "ut", "gut_no_transition", "ndr_act_universal"]
# data parallel; and sharded, where every step gathers the block's parameters from all ranks
JOBS = [f"{kind}_{name}" for kind in ("ddp", "fsdp") for name in NAMES]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name in NAMES:
        batch = uneven_batch(BY_NAME[name])
        save_file({key: value.contiguous() for key, value in batch.items()}, folder / f"{name}.safetensors")
    command = [sys.executable, "-m", "support.ranks", str(folder), *JOBS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_ranks_halt_at_different_depths(name):
    variant = BY_NAME[name]
    with torch.no_grad():
        steps = make_model(variant)(**uneven_batch(variant)).ponder_steps
    first, second = steps.chunk(2)
    assert (first.max(), second.max()) == (STEPS, int(variant.act))


@pytest.mark.parametrize("job", JOBS)
def test_two_processes_learn_as_one(trained, job):
    variant = BY_NAME[job.partition("_")[2]]
    after, before = load_file(trained / f"{job}.safetensors"), dict(make_model(variant).named_parameters())
    assert_same(after, train_whole(variant, uneven_batch(variant)), tolerance=1e-6)
    for part in ("block", "halting_head", "embed_tokens", "classifier"):
        assert max((value - before[key]).abs().max() for key, value in after.items() if part in key) > 1e-5, part
