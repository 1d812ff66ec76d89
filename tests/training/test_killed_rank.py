"""One of two processes is killed in the middle of training: the run ends and can be resumed."""

import os
import subprocess
import sys
import time

import psutil
import pytest
from safetensors.torch import load_file
from script_runs import RUNS, arguments, write_files
from tiny_run import ROOT

from hf_recurrent.training.run import run as run_recipe
from support.compare import assert_close

pytestmark = pytest.mark.nightly

CONFIG = ROOT / "training" / "accelerate" / "cpu.yaml"
# epochs of 5 batches
DATA = {"num_train": 60, "num_validation": 16, "num_test": 24, "max_depth": 3}
LONG = {"max_steps": 80, "save_steps": 5, "benchmark_params": DATA}
# seconds
PATIENCE, START = 60, 120


def launch(argv, processes=2):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    launcher = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIG), "--num_processes", str(processes)]
    command = [sys.executable, *launcher, "-m", "hf_recurrent.train", *argv]
    return subprocess.Popen(command, env=environment, **pipes)


def wait_for(found, launcher):
    end = time.monotonic() + START
    while not found():
        assert launcher.poll() is None, launcher.communicate()[1][-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)


def process_of(launcher, rank):
    children = psutil.Process(launcher.pid).children()
    return next(child for child in children if child.environ().get("RANK") == str(rank))


def of_batches(size):
    return {**LONG, "per_device_train_batch_size": size}


@pytest.mark.parametrize(("rank", "processes"), [(0, 2), (1, 3)])
def test_others_end_and_the_run_is_resumed(tmp_path, rank, processes):
    places, folder = write_files(tmp_path), tmp_path / "together"
    launcher = launch(arguments("classes", folder, places, **of_batches(6)))
    wait_for((folder / "checkpoint-10").is_dir, launcher)
    process_of(launcher, rank).kill()
    launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode != 0
    assert not (folder / "model.safetensors").exists()

    launcher = launch(arguments("classes", folder, places, **of_batches(12 // processes)), processes)
    out, errors = launcher.communicate(timeout=300)
    assert launcher.returncode == 0, errors[-3000:]
    alone = tmp_path / "alone"
    told = run_recipe(arguments("classes", alone, places, **of_batches(12)), RUNS["classes"][0])
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, alone))
    assert_close(ours, theirs, 1e-4)
    assert told in out
