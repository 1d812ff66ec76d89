"""A short campaign against each training script; `training_kills` has the long ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


# the second seed keeps checkpoints
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "seed"), [("run_glue_style", 0), ("run_clm", 0), ("run_clm_accelerate", 1), ("run_seq2seq", 0)]
)
def test_disturbed_runs_end_as_one_that_nothing_befell(script, seed):
    command = [sys.executable, "-m", "fuzz.training_kills", "--count", "2", "--seed", str(seed), "--scripts", script]
    # a process of its own: forks of this one would have its threads' locks, but not its threads
    done = subprocess.run(
        command, cwd=TESTS, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-2000:]
    counts = json.loads(done.stdout)[script]
    assert not counts["failures"]
    assert counts["folders"] == 2
    assert sum(counts["faults"].values()) >= 2
