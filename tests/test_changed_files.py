"""Files of a folder that change together or not at all."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hf_recurrent.changes import changed_files, complete_change, is_unfinished, new_folder
from hf_recurrent.files import write_bytes

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
        assert [change.file(name).read_text() for name in ("b.txt", "own.txt")] == ["new b", "own"]
    assert texts(folder) == {**NEW, "own.txt": "own"}
    assert (folder / "b.txt").stat().st_mode & 0o777 == 0o640
    # the same content is no change
    assert (folder / "kept.txt").stat().st_ino == before.st_ino
    assert change.names == ["a.txt", "b.txt", "in/c.txt", "gone.txt"]
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
    before = texts(folder)
    (folder / "a.txt").mkdir()
    with pytest.raises(ValueError, match=r"a\.txt is a folder where a file should be"), changed_files(folder) as change:
        write(change)
    assert texts(folder) == before


def no_links(*args):
    raise OSError("operation not supported")


@pytest.mark.parametrize("failing", range(1, 6))
@pytest.mark.parametrize("links", [True, False])
def test_an_error_between_two_files_changes_nothing(folder, monkeypatch, failing, links):
    before, calls = texts(folder), []

    def failing_at(call):
        def changed(path, *args):
            calls.append(path)
            if len(calls) == failing:
                raise OSError("no space left")
            return call(path, *args)

        return changed

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(Path, name, failing_at(getattr(Path, name)))
        if not links:
            patch.setattr(os, "link", no_links)
        with pytest.raises(OSError, match="no space left"), changed_files(folder) as change:
            write(change)
    assert texts(folder) == before
    assert not list(folder.glob(".*"))


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_changed_files import changed_files, write
from pathlib import Path
left = int(sys.argv[3])
def killed(event, arguments):
    global left
    if event in ("os.rename", "os.link", "os.remove", "os.mkdir") and any("folder" in str(name) for name in arguments):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
with changed_files(Path(sys.argv[2])) as change:
    sys.addaudithook(killed)
    write(change)
"""


@pytest.mark.slow
def test_a_killed_change_is_carried_out_or_forgotten_by_the_next(folder):
    before, ends, number = texts(folder), [], 0
    while True:
        command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(folder), str(number)]
        status = subprocess.run(command, check=False).returncode
        decided = is_unfinished(folder)
        complete_change(folder)
        assert not list(folder.glob(".*"))
        ends.append(texts(folder))
        assert ends[-1] == (NEW if decided or ends[-1] != before else before)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        for name in NEW:
            (folder / name).unlink(missing_ok=True)
        for name, text in before.items():
            (folder / name).write_text(text)
        number += 1
    assert before in ends
    assert NEW in ends[:-1]
    assert number > 8


def test_of_two_at_once_the_second_is_refused(folder):
    with changed_files(folder) as change:
        write(change)
        with pytest.raises(ValueError, match="is being changed by another process"), changed_files(folder):
            pass
    assert texts(folder) == NEW
    target = folder.parent / "target"
    with new_folder(target, lambda place: None) as built:
        (built / "a").write_text("a")
        with pytest.raises(ValueError, match="is being changed"), new_folder(target, lambda place: None):
            pass
    assert texts(target) == {"a": "a"}


def test_what_a_killed_process_left_beside_a_new_folder_is_restored_or_removed(tmp_path):
    left, target = tmp_path / ".target.partial", tmp_path / "target"
    for kind in ("new", "old"):
        (left / kind).mkdir(parents=True)
        (left / kind / "file").write_text(kind)
    seen = []
    with new_folder(target, lambda place: seen.append(texts(place))) as built:
        assert list(built.iterdir()) == []
        assert texts(target) == {"file": "old"}
        (built / "file").write_text("newer")
    assert {"file": "old"} in seen
    assert texts(tmp_path) == {"target/file": "newer"}


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


def test_the_error_of_a_file_names_it(tmp_path):
    (tmp_path / "a.json").mkdir()
    with pytest.raises(OSError, match="directory") as refused:
        write_bytes(tmp_path / "a.json", b"content")
    assert refused.value.filename == str(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_new_folder_in_the_place_of_a_broken_link(tmp_path):
    link = tmp_path / "loop"
    link.symlink_to(link)
    with (
        pytest.raises(ValueError, match="loop is a file; name a folder that does not exist yet"),
        new_folder(link, str),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
