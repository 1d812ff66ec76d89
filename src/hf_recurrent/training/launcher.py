"""Processes that torchrun or accelerate has started for one run: each ends with its launcher, and errors are told once.

A launcher ends the other processes when one fails. When it is killed itself nobody does: they are in sessions of their
own, and would train on, or wait for half an hour for a store of addresses that is gone.
"""

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from threading import Thread
from types import FrameType

# set for the processes of a launcher, and for no others
RUN_ID = "TORCHELASTIC_RUN_ID"
# where the launcher looks for the error of each process, in a folder of its own
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
# seconds
INTERVAL, GRACE = 1.0, 5.0
LAUNCHER_ENDED = (
    "the launcher of this run has ended, and so does the run; the same command again resumes it from the last complete "
    "checkpoint"
)
ANOTHER_ENDED = (
    "another process has failed or was killed, or their launcher was told to end them, and so all end; the same "
    "command again resumes training from the last complete checkpoint"
)


def end_with_launcher() -> None:
    """End this process as soon as the launcher that has started it has ended, or ends it; without one, do nothing."""
    if RUN_ID not in os.environ:
        return
    launcher = os.getppid()
    # it may be a stranger's by now
    if not store_answers():
        end(LAUNCHER_ENDED, speaks())
    Thread(target=watch, args=(launcher, catch_termination()), daemon=True).start()


def catch_termination() -> socket.socket:
    """A socket that gets the numbers of signals, at once wherever the main thread waits; SIGTERM does nothing else."""
    signals, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.detach())
    signal.signal(signal.SIGTERM, left_to_watch)
    # processes of a data loader are terminated on their own, perhaps at once
    os.register_at_fork(before=hold_termination, after_in_parent=release_termination, after_in_child=leave_termination)
    return signals


def hold_termination() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def release_termination() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def leave_termination() -> None:
    """Let SIGTERM end this process, which was forked from one that `watch` ends."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    release_termination()


def left_to_watch(number: int, frame: FrameType | None) -> None:
    """The handler of a signal that `watch` answers."""


def store_answers() -> bool:
    """Whether the launcher's store, through which processes find each other, may be there."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    try:
        socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=GRACE).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        # slow or far away
        return True
    return True


def watch(launcher: int, signals: socket.socket) -> None:
    while os.getppid() == launcher:
        arrived = select.select([signals], [], [], INTERVAL)[0] and signals.recv(64)
        # transformers may save a checkpoint instead
        if arrived and signal.SIGTERM in arrived and signal.getsignal(signal.SIGTERM) is left_to_watch:
            end(ANOTHER_ENDED, first_to_tell())
    end(LAUNCHER_ENDED, speaks())


def end(reason: str, tells: bool) -> None:
    """End this process at once, wherever it waits."""
    if tells:
        sys.stderr.write(f"error: {reason}\n")
        sys.stderr.flush()
    else:
        # the main thread may be telling
        time.sleep(INTERVAL)
    os._exit(1)


def lost_another(error: Exception) -> bool:
    """Whether an error is that of waiting for a process that is no longer there."""
    if RUN_ID not in os.environ:
        return False
    from torch.distributed import DistError

    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo/transport" in str(error))


def first_to_tell() -> bool:
    """Whether this process, of all that the launcher has started on this machine, is the first to tell of an error.

    Where that cannot be known, all but the first one wait until their launcher has had time to end them.
    """
    if RUN_ID not in os.environ:
        return True
    error_file = os.environ.get(ERROR_FILE)
    if not error_file:
        let_first_speak()
        return True
    try:
        # that of this attempt, with a folder for each process
        (Path(error_file).parents[1] / "told").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def speaks() -> bool:
    """Whether this is the only process of a run, or the first on this machine."""
    return RUN_ID not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def let_first_speak() -> None:
    """Give the launcher time to end this process if the first one has failed as well, and has said why."""
    if not speaks():
        time.sleep(GRACE)
