"""One of two processes is killed in the middle of training: the run ends, says so once, and can be resumed."""

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
LAUNCHER = ["-m", "accelerate.commands.launch", "--config_file", str(CONFIG), "-m", "hf_recurrent.train"]
LONG = {"max_steps": 80, "save_steps": 5}
# seconds
PATIENCE, START = 60, 120


def launch(argv):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *LAUNCHER, *argv], env=environment, **pipes)


def wait_for(found, launcher):
    end = time.monotonic() + START
    while not found():
        assert launcher.poll() is None, launcher.communicate()[1][-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)


def process_of(launcher, rank):
    children = psutil.Process(launcher.pid).children()
    return next(child for child in children if child.environ().get("RANK") == str(rank))


@pytest.mark.parametrize("rank", [0, 1])
def test_others_end_and_the_run_is_resumed(tmp_path, rank):
    places, folder = write_files(tmp_path), tmp_path / "together"
    argv = arguments("classes", folder, places, **LONG)
    launcher = launch(argv)
    wait_for((folder / "checkpoint-10").is_dir, launcher)
    process_of(launcher, rank).kill()
    _, errors = launcher.communicate(timeout=PATIENCE)
    assert launcher.returncode != 0
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, errors
    assert "another process has failed or was killed" in said[0]
    # beside the launcher's own report
    assert "Signal 9 (SIGKILL)" in errors
    assert "hf_recurrent/training/run.py" not in errors
    assert not (folder / "model.safetensors").exists()

    launcher = launch(argv)
    out, errors = launcher.communicate(timeout=300)
    assert launcher.returncode == 0, errors[-3000:]
    alone = tmp_path / "alone"
    told = run_recipe(arguments("classes", alone, places, **LONG, gradient_accumulation_steps=2), RUNS["classes"][0])
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, alone))
    assert_close(ours, theirs, 1e-4)
    assert told in out
