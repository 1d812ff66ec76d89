"""Errors of commands as one line."""

import errno

import pytest
from huggingface_hub import constants

from hf_recurrent.hub.errors import explanation

FULL = OSError(errno.ENOSPC, "No space left on device", "a.json")


def caused(error: Exception, cause: Exception, implicitly: bool = False) -> Exception:
    """`error` as it is raised from `cause`, or while `cause` is handled."""
    setattr(error, "__context__" if implicitly else "__cause__", cause)
    return error


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        caused(RuntimeError("the data set was not made"), FULL),
        caused(ValueError("I/O operation on closed file"), FULL, implicitly=True),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_full_disk_is_named_whatever_failed_by_it(error):
    assert explanation(error).startswith("there is no room on the disk for a file (")
    assert explanation(error).endswith("): make room, then give the same command again")


def test_errors_of_this_package_say_it_themselves():
    assert explanation(ValueError("two\nproblems")) == "two\nproblems"
    assert explanation(RuntimeError("a defect")) is None
    assert explanation(OSError(errno.EACCES, "Permission denied", "a.json")) == "a.json: Permission denied"


@pytest.mark.parametrize(
    "error",
    [
        caused(ValueError("org/x does not load"), NotADirectoryError(errno.ENOTDIR, "Not a directory", "file/token")),
        OSError("We couldn't connect to 'https://huggingface.co'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_cache_that_cannot_be_made_is_named(error, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    home = str(tmp_path / "file" / "home")
    monkeypatch.setattr(constants, "HF_HOME", home)
    assert explanation(error).startswith(f"HF_HOME is {home!r}, which cannot be made (Not a directory): ")
    assert explanation(error).endswith(f"({error})")
