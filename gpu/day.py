"""Everything that a GPU has to show, in the time that there is, into one folder.

    python -m gpu.day                            in 25 minutes
    python -m gpu.day --minutes 9 --skip learned
    python -m gpu.day --rehearse                 every part at toy size, on a CPU
    python -m gpu.day --plan                     work, memory and minutes of the recipes of the papers' sizes
    python -m gpu.day --list                     the parts

Nothing is installed or fetched. Parts come in order of worth, each in a process of its own; one for which too little
time is left gives way to the next that fits. A second run into the same folder goes on: finished parts are skipped, an
unfinished one makes the checks that it lacks, and recipes train on from their last checkpoint.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import device as devices
from .catalogue import BY_NAME, PARTS, Part
from .checks import CUT, FAILED, OVER, PASSED, Setting, read_results, results_of, write_results
from .report import summary, write_report

FOLDER, REHEARSAL, DATA = "runs/gpu", "runs/gpu-rehearsal", "build/gpu-data"
# of the time, for the report
RESERVE = 10.0
# for a part that stops by itself, before it is ended
GRACE = 15.0
MOST_RESTARTS = 20


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    kinds = list(dict.fromkeys(part.kind for part in PARTS))
    parser = argparse.ArgumentParser(
        prog="python -m gpu.day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="that all of it may take")
    parser.add_argument("--output", help=f"folder of results: {FOLDER}, or {REHEARSAL}")
    parser.add_argument("--data", default=DATA, help="folder that `python -m gpu.prepare` has filled")
    names = [*BY_NAME, *kinds]
    parser.add_argument("--only", nargs="+", choices=names, metavar="PART", help="parts or kinds of parts")
    parser.add_argument("--skip", nargs="+", choices=names, metavar="PART", default=[])
    for flag, meaning in (
        ("--again", "make the chosen parts anew"),
        ("--rehearse", "run every part at toy size on the CPU"),
        ("--list", "list the parts"),
        ("--plan", "estimate the recipes of the papers' sizes"),
    ):
        parser.add_argument(flag, action="store_true", help=meaning)
    args = parser.parse_args(arguments)
    if not args.minutes > 0:
        parser.error(f"--minutes is {args.minutes:g}: give the minutes that there are, above 0")
    args.output = Path(args.output or (REHEARSAL if args.rehearse else FOLDER))
    return args


def chosen(args: argparse.Namespace) -> list[Part]:
    def is_in(part: Part, names: Sequence[str]) -> bool:
        return part.name in names or part.kind in names

    return [part for part in PARTS if (not args.only or is_in(part, args.only)) and not is_in(part, args.skip)]


def environment(part: Part, rehearse: bool) -> dict[str, str]:
    further = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "KINETO_LOG_LEVEL": "99"}
    if rehearse:
        further |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        further |= {"TRITON_INTERPRET": "1"} if part.interpreted else {}
    return {**os.environ, **further}


def run_process(part: Part, setting: Setting, log: Path) -> int | None:
    """The exit status of one process of a part; None if its time was over and it was ended."""
    command = [sys.executable, "-m", "gpu.checks", json.dumps(setting._asdict())]
    with log.open("a", encoding="utf-8") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(part, setting.toy),
            cwd=Path(__file__).parents[1],
            # with all that it starts, so that none of it keeps the device
            start_new_session=True,
        )
        try:
            return process.wait(max(1.0, setting.seconds_left) + GRACE)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end_group(process)


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def note_interrupted(setting: Setting, status: int | None, log: Path) -> bool:
    """Give the check that was running when its process ended its outcome -> whether there was one."""
    results = read_results(setting.results)
    running = results.pop("running", None)
    if running is None:
        return False
    seconds = round(time.time() - running["since"], 2)
    if status is None:
        found = {"outcome": CUT, "reason": f"ended after {seconds:.0f} s: no time was left"}
    else:
        last = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])
        end = f"signal {-status}" if status < 0 else f"status {status}"
        found = {"outcome": FAILED, "reason": f"its process ended with {end}", "traceback": last}
    results["checks"][running["name"]] = {**found, "seconds": seconds}
    write_results(setting.results, results)
    return True


def run_part(part: Part, setting: Setting) -> None:
    """Run a part to its end or that of its time; what a check breaks, the next process goes on without."""
    log = setting.results.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    forget_cut(setting)
    for _ in range(MOST_RESTARTS):
        before = len(read_results(setting.results)["checks"])
        status = run_process(part, setting, log)
        noted = note_interrupted(setting, status, log)
        results = read_results(setting.results)
        if results["finished"] or status in (None, OVER) or setting.seconds_left <= 0:
            return
        if not noted and len(results["checks"]) == before:
            # not one check could be made: the part itself is broken
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            last = lines[-1] if lines else f"status {status}"
            results["checks"]["start"] = {
                "outcome": FAILED,
                "reason": last[:300],
                "traceback": "\n".join(lines[-40:]),
                "seconds": 0.0,
            }
            write_results(setting.results, results)
            return


def forget_cut(setting: Setting) -> None:
    """Let checks that no time was left for, or that no process started, be made again."""
    results = read_results(setting.results)
    kept = {name: row for name, row in results["checks"].items() if name != "start" and row["outcome"] != CUT}
    results.pop("running", None)
    write_results(setting.results, {**results, "checks": kept})


def forget_unfinished(path: Path) -> None:
    """Let checks be made again that have not reached the last of their steps."""
    results = read_results(path)
    kept = {name: row for name, row in results["checks"].items() if reached_end(row)}
    if len(kept) < len(results["checks"]):
        write_results(path, {**results, "checks": kept, "finished": False})


def reached_end(row: dict[str, Any]) -> bool:
    """Whether a check passed, and its tables tell of no step before their last (`step`, `of`)."""
    rows = [line for table in row.get("tables", ()) for line in table["rows"]]
    return row["outcome"] == PASSED and all(line.get("step", 0) >= line.get("of", 0) for line in rows)


def settings(args: argparse.Namespace, part: Part, until: float) -> Setting:
    device = "cpu" if args.rehearse else "cuda"
    folder, data = (str(Path(each).resolve()) for each in (args.output, args.data))
    return Setting(part.name, device, args.rehearse, until, folder, data)


def run_parts(args: argparse.Namespace) -> dict[str, str]:
    """Run the chosen parts that fit into the time -> why each of the others was left out."""
    # the last part is waited for, too
    end = time.time() + 60 * args.minutes - RESERVE - GRACE
    left_out: dict[str, str] = {}
    parts = chosen(args)
    for part in parts:
        path = results_of(args.output, part.name)
        if args.again:
            for old in (path, path.with_suffix(".log")):
                old.unlink(missing_ok=True)
        if part.goes_on:
            forget_unfinished(path)
        if read_results(path)["finished"]:
            print(f"{part.name}: finished before", flush=True)
            continue
        left = end - time.time()
        needed = 1 if args.rehearse else part.least
        if left < needed:
            left_out[part.name] = f"{max(0.0, left):.0f} s were left, and it needs {needed} s"
            print(f"{part.name}: {left_out[part.name]}", flush=True)
            continue
        # the last one takes what there is
        share = left if args.rehearse or part is parts[-1] else min(left, part.seconds)
        print(f"{part.name}: {part.title}, at most {share:.0f} s", flush=True)
        run_part(part, settings(args, part, time.time() + share))
        print(summary(part, read_results(path)), flush=True)
        write_report(args.output, facts_of(args), left_out)
    return left_out


def facts_of(args: argparse.Namespace) -> dict[str, Any]:
    return {"rehearsal": args.rehearse, "minutes": args.minutes, **devices.facts("cpu" if args.rehearse else "cuda")}


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    if args.list:
        for part in PARTS:
            print(f"{part.kind:8} {part.name:10} {part.seconds:4} s  {part.title}")
        return 0
    if args.plan:
        from . import plan

        plan.main()
        return 0
    if not args.rehearse:
        try:
            devices.require()
        except devices.NoDeviceError as error:
            sys.exit(f"error: {error}")
    start = time.time()
    # as an exception, so that the process of a part ends with this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    left_out = run_parts(args)
    failed = write_report(args.output, facts_of(args), left_out)
    print(f"{args.output / 'report.md'}: {failed} checks failed, {(time.time() - start) / 60:.1f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on where it stopped")
