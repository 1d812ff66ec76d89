"""Files of a folder that change together or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hf_recurrent.files import changed_files, new_folder, write_bytes


def texts(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.txt").write_text("old b")
    (tmp_path / "d.txt").write_text("old d")
    (tmp_path / "kept.txt").write_text("kept")
    (tmp_path / "b.txt").chmod(0o640)
    return tmp_path


def write(new):
    for name in "abcd":
        (new / f"{name}.txt").write_text(f"new {name}")


def write_and_stop(new):
    write(new)
    raise KeyboardInterrupt


def test_files_are_replaced_and_added_and_others_stay(folder):
    with changed_files(folder) as new:
        write(new)
        assert (folder / "b.txt").read_text() == "old b"
    assert texts(folder) == {**{f"{name}.txt": f"new {name}" for name in "abcd"}, "kept.txt": "kept"}
    assert (folder / "b.txt").stat().st_mode & 0o777 == 0o640


def test_an_error_changes_nothing(folder):
    before = texts(folder)
    with pytest.raises(KeyboardInterrupt), changed_files(folder) as new:
        write_and_stop(new)
    assert texts(folder) == before


@pytest.mark.parametrize("failing", range(1, 7))
def test_an_error_between_two_files_changes_nothing(folder, monkeypatch, failing):
    before, calls, rename = texts(folder), [], Path.rename

    def fails_once(path, target):
        calls.append(path)
        if len(calls) == failing:
            raise OSError("no space left")
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fails_once)
        with pytest.raises(OSError, match="no space left"), changed_files(folder) as new:
            write(new)
    assert texts(folder) == before


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
