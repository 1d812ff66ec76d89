"""A lock on a folder that only one process has, and that is free again when the process ends, however it does."""

import errno
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:
    # not on Windows
    fcntl = None

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a block like this for `folder`, which is made if it does not exist.

    Raises:
        ValueError: another process has the folder.
    """
    folder = Path(folder)
    path, file = folder / LOCK_FILE, lock_file(folder)
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
    finally:
        # as long as it is locked: whoever opened it meanwhile looks whether it is still there
        path.unlink(missing_ok=True)
        file.close()


def lock_file(folder: Path) -> IO[str]:
    """The lock file of `folder`, open and locked."""
    path = folder / LOCK_FILE
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
        try:
            lock(file, folder)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def lock(file: IO[str], folder: Path) -> None:
    try:
        if fcntl is None:
            raise OSError(errno.ENOLCK, "there are no locks")
        # a process's own: its children, which may outlive it, do not have the lock
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            warnings.warn(f"{folder} cannot be locked ({error.strerror}): start no second run there", stacklevel=2)
            return
        file.seek(0)
        holder = file.read() or "another process"
        raise ValueError(
            f"output_dir {folder} is in use by {holder}: wait until that run has ended, or use another folder"
        ) from None
