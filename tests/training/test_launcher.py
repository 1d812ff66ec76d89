"""Processes of a run that a launcher has started, and what becomes of them without it."""

import os
import socket
import subprocess
import sys

import pytest
from tiny_run import SCRIPT

# starts a rank, whose output it shares
LAUNCHER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(60)"
RANK = """
import time
from hf_recurrent.training.launcher import end_with_launcher
end_with_launcher()
print("training", flush=True)
time.sleep(60)
"""
# whose handlers of signals are not the rank's
FORK = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
child.terminate()
child.join(30)
"""


def environment(port: int, rank: str = "0") -> dict[str, str]:
    """Variables of a process that torchrun has started, whose store listens on a port."""
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "LOCAL_RANK": rank}
    return {"TORCHELASTIC_RUN_ID": "run", "TORCHELASTIC_USE_AGENT_STORE": "True", **address}


def started(*code: str, **variables: str) -> subprocess.Popen:
    """A process of Python whose output can be read line by line."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", *code], env={**os.environ, **variables}, **pipes)


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0)])
def test_ends_when_its_launcher_is_killed(rank, lines):
    with socket.create_server(("localhost", 0)) as store:
        launcher = started(LAUNCHER, RANK, **environment(store.getsockname()[1], rank))
        assert launcher.stdout.readline() == "training\n"
        launcher.kill()
        # until the rank has closed them, too
        _, errors = launcher.communicate(timeout=30)
    assert errors.count("error: the launcher of this run has ended") == lines
    assert len(errors.splitlines()) == lines


def test_ends_when_its_launcher_was_killed_before():
    with socket.create_server(("localhost", 0)) as store:
        port = store.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-c", RANK],
        env={**os.environ, **environment(port)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the launcher of this run has ended")


def test_without_launcher_the_parent_may_end():
    """As with nohup."""
    alone = RANK.replace("time.sleep(60)", "time.sleep(3); print('done')")
    launcher = started(LAUNCHER, alone)
    assert launcher.stdout.readline() == "training\n"
    launcher.kill()
    assert launcher.communicate(timeout=30)[0] == "done\n"


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_tells_once_that_its_launcher_ends_it(tmp_path, told):
    """A process that it has forked may be terminated by itself."""
    rank = RANK.replace('print("training"', f'{FORK}print("training"')
    with socket.create_server(("localhost", 0)) as store:
        error_file = tmp_path / "attempt" / "0" / "error.json"
        error_file.parent.mkdir(parents=True)
        if told:
            (tmp_path / "attempt" / "told").touch()
        process = started(rank, **environment(store.getsockname()[1]), TORCHELASTIC_ERROR_FILE=str(error_file))
        assert process.stdout.readline() == "training\n"
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.count("error: another process has failed or was killed") == (not told)
    assert (tmp_path / "attempt" / "told").exists()


@pytest.mark.slow
def test_an_error_of_all_processes_is_told_once(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT)]
    flags = ["--train_file", str(tmp_path / "none.csv"), "--output_dir", str(tmp_path / "run"), "--use_cpu", "true"]
    done = subprocess.run([*launch, *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1, done.stderr
