"""Processes that torchrun or accelerate has started for one run: each ends with its launcher, and errors are told once.

A launcher ends the other processes when one fails. When it is killed itself nobody does: they are in sessions of their
own, and would train on, or wait for half an hour for a store of addresses that is gone.
"""

import os
import socket
import sys
import time
from threading import Thread

# set for the processes of a launcher, and for no others
RUN_ID = "TORCHELASTIC_RUN_ID"
# seconds
INTERVAL, GRACE = 1.0, 5.0


def end_with_launcher() -> None:
    """End this process as soon as the launcher that has started it has ended; without launcher, do nothing."""
    if RUN_ID not in os.environ:
        return
    launcher = os.getppid()
    # it may be a stranger's by now
    if not store_answers():
        end()
    Thread(target=watch, args=(launcher,), daemon=True).start()


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


def watch(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(INTERVAL)
    end()


def end() -> None:
    """End this process at once, wherever it waits."""
    if speaks():
        sys.stderr.write(
            "error: the launcher of this run has ended, and so does the run; the same command again resumes it from "
            "the last complete checkpoint\n"
        )
        sys.stderr.flush()
    os._exit(1)


def speaks() -> bool:
    """Whether this is the only process of a run, or the first on this machine."""
    return RUN_ID not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0"


def let_first_speak() -> None:
    """Give the launcher time to end this process if the first one has failed as well, and has said why."""
    if not speaks():
        time.sleep(GRACE)
