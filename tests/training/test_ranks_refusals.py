"""What is wrong in two processes is told once."""

import json
import os
import subprocess
import sys

import pytest
from script_runs import RUNS, arguments, write_files
from tiny_run import ROOT

pytestmark = pytest.mark.nightly

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
CONTEXT = {"ACCELERATE_USE_PARALLELISM_CONFIG": "true", "PARALLELISM_CONFIG_CP_SIZE": "2"}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("data"))


def said(script, argv, **variables):
    """The lines of errors of all processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", *TORCHRUN, str(ROOT / script), *argv]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode != 0
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    ("name", "variables", "changes", "message"),
    [
        ("segments", {}, {"max_train_samples": 1}, "documents has 1 that are not empty, for 2"),
        ("classes", {"ACCELERATE_USE_DEEPSPEED": "true"}, {}, "the launcher asks for DeepSpeed"),
        ("segments", {"ACCELERATE_USE_FSDP": "true"}, {}, "the launcher asks for FSDP, which needs"),
        ("classes", CONTEXT, {}, "cp_size is 2: a state goes from chunk to chunk"),
        (
            "classes",
            {},
            {"per_device_train_batch_size": 3, "accelerator_config": {"split_batches": True}},
            "per_device_train_batch_size is 3 and split_batches True, for 2 processes: take a multiple of 2",
        ),
    ],
    ids=["documents", "deepspeed", "fsdp", "context", "batch"],
)
def test_bad_input_of_two_processes(places, tmp_path, name, variables, changes, message):
    (line,) = said(RUNS[name][0], arguments(name, tmp_path / name, places, **changes), **variables)
    assert message in line


@pytest.mark.parametrize("name", ["classes", "segments"])
def test_steps_of_another_size_are_refused(places, tmp_path, name):
    """Another number of processes must share out as many examples."""
    folder = tmp_path / name
    changes = {"save_steps": 2, "keep_checkpoints": True, "per_device_train_batch_size": 3}
    alone = arguments(name, folder, places, **changes)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / RUNS[name][0]), *alone]
    subprocess.run(command, env=environment, capture_output=True, timeout=200, check=True)
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "evaluated": False, "finished": False}))
    (line,) = said(RUNS[name][0], alone)
    assert "steps are of 3 examples or tokens over all processes, and here they are of 6" in line
    assert "choose per_device_train_batch_size and gradient_accumulation_steps for as many" in line
