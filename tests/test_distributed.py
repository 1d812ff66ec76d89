"""Two processes whose sequences halt at different depths, or have different numbers of chunks, finish.

They learn the same as one process from all sequences.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from support import chunk_ranks
from support.compare import assert_same
from support.families import BY_NAME, STEPS, chunk_numbers, make_model, slow
from support.ranks import RANKED, train_whole, uneven_batch

NAMES = ["gut", "ut", "gut_no_transition", "ndr_act_universal", "sut", "gut_expected"]
FIXED = ["gut_every_step", "gut_few_steps"]
# data parallel; and sharded, where every step gathers the block's parameters from all ranks
JOBS = [f"{kind}_{name}" for kind in ("ddp", "fsdp") for name in (*NAMES, *FIXED)]
CHUNK_JOBS = [
    "ddp-wide-tlb",
    "ddp-narrow-gutlb",
    "fsdp-wide-tlb",
    "fsdp-wide-gutlb",
    "fsdp-narrow-gutlb",
    "fsdp-wide-gutlb_token",
    "kept-wide-tlb",
    "kept-narrow-gutlb",
]


def parametrize(jobs: list[str]):
    return pytest.mark.parametrize("job", [slow(job) for job in jobs])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of what two processes have learned, in one run of all jobs."""
    folder = tmp_path_factory.mktemp("ranks")
    for name in (*NAMES, *FIXED):
        batch = uneven_batch(RANKED[name])
        save_file({key: value.contiguous() for key, value in batch.items()}, folder / f"{name}.safetensors")
    command = [sys.executable, "-m", "support.two_ranks", str(folder), *JOBS, *CHUNK_JOBS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_ranks_halt_at_different_depths(name):
    variant = BY_NAME[name]
    with torch.no_grad():
        steps = make_model(variant)(**uneven_batch(variant)).ponder_steps
    first, second = steps.chunk(2)
    assert (first.max(), second.max()) == (STEPS, variant.first_stop)


def assert_learned(after, variant, expected, parts):
    before = dict(make_model(variant).named_parameters())
    assert_same(after, expected, tolerance=1e-6)
    for part in parts:
        assert max((value - before[key]).abs().max() for key, value in after.items() if part in key) > 1e-5, part


@parametrize(JOBS)
def test_two_processes_learn_as_one(trained, job):
    variant = RANKED[job.partition("_")[2]]
    expected = train_whole(variant, uneven_batch(variant))
    parts = ("block", "classifier", *(("halting_head",) if variant.halts else ()))
    parts += () if "backprop_steps" in variant.fields else ("embed_tokens",)
    assert_learned(load_file(trained / f"{job}.safetensors"), variant, expected, parts)


@parametrize(CHUNK_JOBS)
def test_processes_with_other_numbers_of_chunks_learn_as_one(trained, job):
    variant = BY_NAME[job.rpartition("-")[2]]
    chunks = [int(chunk_numbers(variant, share["attention_mask"]).max()) + 1 for share in chunk_ranks.shares(variant)]
    assert chunks == [3, 1]
    parts = ("layers" if variant.architecture == "tlb" else "block", "memory_layers", "memory.weight", "classifier")
    assert_learned(load_file(trained / f"{job}.safetensors"), variant, chunk_ranks.train_whole(variant), parts)
