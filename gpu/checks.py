"""Checks of a part, run one after the other in a process of their own: `python -m gpu.checks SETTING`.

Each outcome is written as soon as it is known, so that a crash, or the end of the time, costs one check.
"""

import contextlib
import gc
import importlib
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from perf.core import Table

from . import device as devices

PASSED, FAILED, NOT_HERE, CUT = "passed", "failed", "not here", "cut"
# statuses of a process: the device answers no more; no time is left for the next check
LOST, OVER = 3, 4


class NotHereError(Exception):
    """A check cannot be made on this machine; the message says why."""


class OutOfTimeError(Exception):
    """Too little time is left for a check, which a later run makes."""


class Setting(NamedTuple):
    """What a part is run with.

    Attributes:
        part: its name.
        device: "cuda", or "cpu" in a rehearsal.
        toy: whether sizes are those of a rehearsal.
        until: when it is to stop, by `time.time`.
        folder: of the day's results.
        data: with the files of `gpu.prepare`.
    """

    part: str
    device: str
    toy: bool
    until: float
    folder: str
    data: str

    @property
    def results(self) -> Path:
        return results_of(Path(self.folder), self.part)

    @property
    def seconds_left(self) -> float:
        return self.until - time.time()


class Check(NamedTuple):
    """A check by its name.

    `call` returns the tables to show, if any; it raises AssertionError where something is wrong, NotHereError where it
    cannot tell, and OutOfTimeError where it has not the time.
    """

    name: str
    call: Callable[[], Iterable[Table] | None]


def results_of(folder: Path, part: str) -> Path:
    return folder / "parts" / f"{part}.json"


def read_results(path: Path) -> dict[str, Any]:
    """What is known of a part: its checks by name, and whether it is finished."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"finished": False, "checks": {}}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)


def outcome_of(check: Check, device: str) -> dict[str, Any]:
    try:
        tables = [table._asdict() for table in check.call() or ()]
    except NotHereError as reason:
        return {"outcome": NOT_HERE, "reason": str(reason)}
    except OutOfTimeError:
        raise
    except Exception as error:
        failure = {"outcome": FAILED, "reason": devices.one_line(error), "traceback": traceback.format_exc()}
        # its frames hold the check's tensors
        del error
        return {**failure, "device": devices.state(device)}
    return {"outcome": PASSED, "tables": tables}


def release(device: str) -> None:
    gc.collect()
    if device != "cpu":
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def run(checks: Iterable[Check], setting: Setting) -> int:
    """Make the checks that have no outcome yet -> the status to exit with: 0, `LOST` or `OVER`."""
    results = read_results(setting.results)
    for check in checks:
        if check.name in results["checks"]:
            continue
        if setting.seconds_left <= 0:
            return OVER
        start = time.time()
        # what a process that dies leaves
        results["running"] = {"name": check.name, "since": start}
        write_results(setting.results, results)
        try:
            found = outcome_of(check, setting.device)
        except OutOfTimeError as reason:
            print(f"{check.name}: {reason}", flush=True)
            del results["running"]
            write_results(setting.results, results)
            return OVER
        found["seconds"] = round(time.time() - start, 2)
        del results["running"]
        results["checks"][check.name] = found
        write_results(setting.results, results)
        print(f"{found['outcome']:8} {found['seconds']:7.1f} s  {check.name}  {found.get('reason', '')}", flush=True)
        if "lost" in found.get("device", {}):
            return LOST
        release(setting.device)
    results["finished"] = True
    write_results(setting.results, results)
    return 0


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """float32 products as exact as float32 is: cuDNN's LSTMs take TF32 by default."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield


def main(text: str) -> None:
    from .catalogue import BY_NAME

    setting = Setting(**json.loads(text))
    torch.set_num_threads(1 if setting.toy else 4)
    module, _, function = BY_NAME[setting.part].checks.partition(":")
    with exact_products():
        sys.exit(run(getattr(importlib.import_module(module), function)(setting), setting))


if __name__ == "__main__":
    # under its own name, so that what the parts raise is what is caught here
    from gpu.checks import main as run_part

    run_part(sys.argv[1])
