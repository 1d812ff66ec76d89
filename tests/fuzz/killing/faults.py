"""What befalls a process as it changes files: a kill, a kill in the middle of a file, a full disk."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

# events of the interpreter that stand for a change, and how many of their first arguments are paths; the last one is
# the descriptor of the folder that these are relative to, or -1
CHANGES = {"os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.link": 2}
# what a full disk has no room for
NEEDS_ROOM = ("open", "os.mkdir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# both write in native code, which raises no event
NATIVE_WRITERS = ((safetensors.torch, "serialize_file"), (torch, "save"))


@dataclass(frozen=True)
class Fault:
    """`kind` at the change number `at`, counted from 1, of files in a folder.

    "kill" is right before the change; "tear" after half of it, if it writes a file; "fill" lets the disk be full from
    there on; "limit" lets no file have more than `at` bytes; "none" only counts.
    """

    kind: str = "none"
    at: int = 0


NO_FAULT = Fault()


def inject(fault: Fault, folder: Path, counted: Callable[[int], None] = lambda _: None) -> None:
    """Let `fault` befall this process; `counted` is told the number of each change."""
    place, number = f"{folder.resolve()}{os.sep}", 0
    if fault.kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at, resource.RLIM_INFINITY))

    def happen(event: str, paths: list[str], tear: Callable[[], None] | None) -> None:
        nonlocal number
        if not any(path == str(folder.resolve()) or path.startswith(place) for path in paths):
            return
        number += 1
        counted(number)
        if fault.kind == "fill" and number >= fault.at and event in NEEDS_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), paths[0])
        if number == fault.at and fault.kind in ("kill", "tear"):
            if fault.kind == "tear" and tear is not None:
                tear()
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple) -> None:
        if event in CHANGES:
            happen(event, [absolute(name, arguments[-1]) for name in arguments[: CHANGES[event]]], None)
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)) and writes(*arguments[1:]):
            path = absolute(arguments[0])
            happen(event, [path], lambda: os.truncate(path, 0) if os.path.exists(path) else Path(path).touch())

    def native(write: Callable) -> Callable:
        def wrapped(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            def tear() -> None:
                write(content, path, *args, **kwargs)
                os.truncate(path, os.path.getsize(path) // 2)

            if isinstance(path, (str, os.PathLike)):
                happen("open", [absolute(path)], tear)
            write(content, path, *args, **kwargs)

        return wrapped

    for module, name in NATIVE_WRITERS:
        setattr(module, name, native(getattr(module, name)))
    sys.addaudithook(hook)


def writes(mode: str | None, flags: int) -> bool:
    return bool(flags & WRITING) if mode is None else bool(set(mode) & set("wax+"))


def absolute(name: Any, folder: int = -1) -> str:
    """An event's path; `folder` is the descriptor of what it is relative to, -1 for the current one."""
    name = os.fsdecode(name)
    return os.path.abspath(name if folder < 0 else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name))
