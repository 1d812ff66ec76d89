"""Files and folders that are written whole or not at all."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hf_recurrent.utils import PARTIAL, changed_files, new_folder, whole_file, write_bytes

NEW = {"a.txt": "new a", "b.txt": "new b", "in/c.txt": "new c", "kept.txt": "kept"}


def texts(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.txt").write_text("old b")
    (folder / "gone.txt").write_text("old")
    (folder / "kept.txt").write_text("kept")
    (folder / "b.txt").chmod(0o640)
    return folder


def write(change):
    for name, text in NEW.items():
        (change.new / name).parent.mkdir(exist_ok=True)
        (change.new / name).write_text(text)
    change.removed |= {"gone.txt", "never.txt", "../outside.txt"}


def test_files_are_replaced_added_and_removed_and_others_stay(folder):
    (folder / "own.txt").write_text("own")
    (folder.parent / "outside.txt").write_text("outside")
    before = (folder / "kept.txt").stat()
    with changed_files(folder) as change:
        write(change)
        assert (folder / "b.txt").read_text() == "old b"
    assert texts(folder) == {**NEW, "own.txt": "own"}
    assert (folder / "b.txt").stat().st_mode & 0o777 == 0o640
    # the same content is no change
    assert (folder / "kept.txt").stat().st_ino == before.st_ino
    assert change.written == [folder / name for name in ("a.txt", "b.txt", "in/c.txt")]
    assert {path.name for path in folder.iterdir()} == {"a.txt", "b.txt", "in", "kept.txt", "own.txt"}
    assert (folder.parent / "outside.txt").exists()


def test_a_folder_is_made_with_its_files_or_not_at_all(tmp_path):
    def interrupted():
        with changed_files(tmp_path / "a" / "b") as change:
            write(change)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    with changed_files(tmp_path / "a" / "b") as change:
        write(change)
    assert texts(tmp_path / "a" / "b") == NEW


def test_a_folder_in_the_place_of_a_file_is_named(folder):
    (folder / "b.txt").unlink()
    (folder / "b.txt").mkdir()
    before = texts(folder)
    with pytest.raises(ValueError, match=r"b\.txt is a folder where a file should be"), changed_files(folder) as change:
        write(change)
    assert texts(folder) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from hf_recurrent.utils import changed_files, new_folder, whole_file
folder = Path(sys.argv[1])
with whole_file(folder / "b.txt") as one, changed_files(folder) as change, new_folder(folder / "made", print) as built:
    for path in (one, change.new / "kept.txt", built / "a.txt"):
        path.write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_files_and_folders_as_they_were(folder):
    before = texts(folder)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = texts(folder)
    assert {name: text for name, text in left.items() if PARTIAL not in name} == before
    # nor is anybody kept from changing them
    with changed_files(folder) as change, whole_file(folder / "a.txt"):
        write(change)
        (folder / f".a.txt{PARTIAL}").write_text("new a")
    assert (folder / "a.txt").read_text() == "new a"


def test_a_failed_block_leaves_no_new_folder(tmp_path):
    def failing():
        with new_folder(tmp_path / "a" / "b", str) as built:
            (built / "file").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing()
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to(tmp_path):
    """As a device is: root would replace /dev/null by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        write_bytes(pipe, b"content")
    assert read.result() == b"content"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
