"""Two processes whose rows have different numbers of chunks finish, and learn what one learns from all rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from chunk_ranks import shares, train_whole
from support.compare import assert_same
from support.families import BY_NAME, chunk_numbers, make_model

JOBS = [
    "ddp-wide-tlb",
    "ddp-narrow-gutlb",
    "fsdp-wide-tlb",
    "fsdp-wide-gutlb",
    "fsdp-narrow-gutlb",
    "fsdp-wide-gutlb_token",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunk_ranks")
    command = [sys.executable, "-m", "chunk_ranks", str(folder), *JOBS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_two_processes_learn_as_one(trained, job):
    variant = BY_NAME[job.rpartition("-")[2]]
    chunks = [int(chunk_numbers(variant, share["attention_mask"]).max()) + 1 for share in shares(variant)]
    assert chunks == [3, 1]
    after, before = load_file(trained / f"{job}.safetensors"), dict(make_model(variant).named_parameters())
    assert_same(after, train_whole(variant), tolerance=1e-6)
    for part in ("layers" if variant.family == "tlb" else "block", "memory_layers", "memory.weight", "classifier"):
        assert max((value - before[key]).abs().max() for key, value in after.items() if part in key) > 1e-5, part
