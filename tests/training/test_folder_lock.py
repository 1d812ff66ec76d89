"""A folder that one process has."""

import subprocess
import sys

import pytest

from hf_recurrent.training.folder_lock import LOCK_FILE, locked

HOLDER = """
import subprocess, sys, time
from pathlib import Path
from hf_recurrent.training.folder_lock import locked
with locked(Path(sys.argv[1])):
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    print(child.pid, flush=True)
    time.sleep(60)
"""


def test_released_at_the_end(tmp_path):
    folder = tmp_path / "new" / "run"
    with locked(folder):
        assert (folder / LOCK_FILE).is_file()
    assert not list(folder.iterdir())
    with pytest.raises(KeyError), locked(folder):
        raise KeyError
    assert not list(folder.iterdir())


def test_others_are_refused_until_the_process_is_killed(tmp_path):
    """Also while a child of it lives on, which has inherited its open files."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        child = int(holder.stdout.readline())
        with pytest.raises(ValueError, match=rf"output_dir .* is in use by process {holder.pid} on .*: wait until"):
            locked(tmp_path).__enter__()
        holder.kill()
        holder.wait()
        with locked(tmp_path):
            pass
        assert not list(tmp_path.iterdir())
    finally:
        holder.kill()
        holder.stdout.close()
        holder.wait()
        subprocess.run(["kill", str(child)], check=True)


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_recurrent.training.folder_lock.fcntl", None)
    with (
        pytest.warns(UserWarning, match=r"cannot be locked \(there are no locks\): start no second run"),
        locked(tmp_path),
    ):
        pass
