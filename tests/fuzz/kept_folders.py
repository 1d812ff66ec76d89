"""Commands that write into folders that people keep, while they are killed or find the disk full.

A process is killed at a random change of a file, or while it writes it, or the disk has no more room. Then all files
are those of before or those that the command makes, or its next run completes them: in any case it leaves what an
undisturbed run leaves, and nothing else.

    cd tests; python -m fuzz.kept_folders --seconds 600 --seed 0
"""

import contextlib
import functools
import io
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

# all that a command imports on its way, so that forked processes need not
import hf_recurrent.analysis.explain.plots
import hf_recurrent.analysis.plots
import hf_recurrent.training.reevaluation  # noqa: F401
from fuzz.campaigns import Findings, main
from fuzz.killing.faults import NO_FAULT, Fault, inject
from fuzz.malformed_commands import LISTOPS, REFERENCE
from hf_recurrent.cli import main as command
from support.checkpoints import committed_checkpoint

GUT, NDR, SUT = "gut-listops-cpu", "ndr-ctl-forward", "sut-logical-inference-cpu"
TABLES = ["compositional_table_lookup", *LISTOPS]
SMALL = ["--limit", "8", "--batch-size", "8"]
CALIBRATED = [*TABLES, *SMALL, "--criterion", "convergence", "--budget", "depth=0.9", "--without-labels"]
SWEPT = ["listops", *LISTOPS, *SMALL, "--thresholds", "0.5"]
# name -> checkpoints in ROOT, of which the first is CHECKPOINT, and the words of a command; OUT is new
COMMANDS: dict[str, tuple[Sequence[str], list[str]]] = {
    "cards refresh": ((NDR, GUT), ["cards", "refresh", "ROOT"]),
    "card render": ((NDR,), ["card", "render", "CHECKPOINT"]),
    "cards build": ((NDR,), ["cards", "build", "ROOT", "--out", "OUT"]),
    "sweep": ((GUT,), ["sweep", "CHECKPOINT", *SWEPT, "--card"]),
    "sweep --out": ((GUT,), ["sweep", "CHECKPOINT", *SWEPT, "--out", "OUT"]),
    "experts": ((SUT,), ["experts", "CHECKPOINT", "logical_inference_translation", *LISTOPS, *SMALL, "--card"]),
    "calibrate": ((NDR,), ["calibrate", "CHECKPOINT", *CALIBRATED, "--repeats", "1"]),
    "calibrate --card": ((NDR,), ["calibrate", "CHECKPOINT", *CALIBRATED, "--repeats", "1", "--card"]),
    "calibrate --out": ((NDR,), ["calibrate", "CHECKPOINT", *CALIBRATED, "--repeats", "1", "--out", "OUT"]),
    "fit-probe": ((NDR,), ["fit-probe", "CHECKPOINT", *TABLES, *SMALL, "--size", "2"]),
    "explain": ((GUT,), ["explain", "CHECKPOINT", "[MAX 2 9 ]", "--output", "OUT/figure.png"]),
    "evaluate": ((GUT,), ["evaluate", "CHECKPOINT", "listops", *LISTOPS, "--json", "OUT/tables.json"]),
    "convert": ((), ["convert", str(REFERENCE), "OUT"]),
    "benchmark export": ((), ["benchmark", "export", "listops", "OUT", *LISTOPS]),
    "metric export": ((), ["metric", "export", "accuracy_by_slice", "OUT/accuracy_by_slice"]),
}
# kinds of faults, and how often one comes among others
KINDS = {"kill": 6, "tear": 3, "fill": 3, "limit": 3}
# examples of a card
FEW = 8
FORK = multiprocessing.get_context("fork")

Tree = dict[str, bytes]


def contents(folder: Path) -> Tree:
    """Path -> content of each file; of folders, those that hold no file alone are named, with nothing."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: b"" if path.is_dir() else path.read_bytes() for name, path in found.items()}


def run_command(words: list[str], folder: Path, fault: Fault, counter: Any, answer: Any) -> None:
    """Run a command, disturbed by `fault`, and send its status and what it wrote as an error."""
    torch.set_num_threads(1)
    # measured times are the same in every run
    time.perf_counter = functools.partial(next, itertools.count(0.0, 0.001))
    status, err = 1, io.StringIO()

    def count(number: int) -> None:
        counter.value = number

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        inject(fault, folder, count)
        try:
            command(words)
        except SystemExit as finished:
            status = finished.code or 0
        except BaseException:
            traceback.print_exc()
    answer.send((status, err.getvalue()))
    os._exit(0)


class Bench:
    """A command, and what it leaves in a folder if nothing befalls it.

    Attributes:
        before, after: contents of the folder.
        changes: how often the command changes files.
    """

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self.checkpoints, self.words = COMMANDS[name]
        # the second one finds its data ready, as all later ones do
        for _ in range(2):
            work = self.prepared()
            self.before = contents(work)
            counter = FORK.Value("i", 0)
            status, shown = self.run(work, NO_FAULT, counter)
            if status:
                raise RuntimeError(f"{name} does not run: {shown}")
            self.changes, self.after = counter.value, contents(work)
        if self.after == self.before:
            raise RuntimeError(f"{name} changes nothing")

    def prepared(self) -> Path:
        """A new folder with checkpoints whose cards are not what they should be."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "root").mkdir(parents=True)
        for name in self.checkpoints:
            target = self.folder / "root" / name
            shutil.copytree(committed_checkpoint(name), target, ignore=shutil.ignore_patterns("*.py"))
            if "card" in self.name:
                outdate(target)
        return self.folder

    def run(self, folder: Path, fault: Fault, counter: Any = None) -> tuple[int | None, str]:
        """The exit status of the command, None if it was killed, and what it wrote as an error."""
        root = folder / "root"
        places = {"ROOT": root, "CHECKPOINT": root / next(iter(self.checkpoints), ""), "OUT": folder / "out"}
        words = [str(folder / "out" / word[4:]) if word.startswith("OUT/") else word for word in self.words]
        words = [str(places.get(word, word)) for word in words]
        answer, theirs = FORK.Pipe()
        process = FORK.Process(target=run_command, args=(words, folder, fault, counter or FORK.Value("i", 0), theirs))
        process.start()
        theirs.close()
        found: tuple[int | None, str] = (None, "")
        with contextlib.suppress(EOFError):
            found = answer.recv()
        process.join()
        return found


def outdate(folder: Path) -> None:
    """Let a card be older than what lies beside it."""
    card = json.loads((folder / "card.json").read_text())
    card["limitations"].append("It is outdated.")
    # quickly measured again
    card["benchmark"]["parameters"]["max_eval_samples"] = FEW
    for result in card["results"]:
        result["table"]["n"] = FEW
    if "calibration" in card:
        card["calibration"] = None
        card["plots"] = [plot for plot in card["plots"] if plot["kind"] != "calibrated_steps"]
    (folder / "card.json").write_text(json.dumps(card))


def trial(bench: Bench, fault: Fault) -> tuple[str, list[str]]:
    """The state after a fault, and the promises that it broke."""
    folder, faults = bench.prepared(), []
    status, shown = bench.run(folder, fault)
    found = contents(folder)
    state = "as before" if found == bench.before else "whole" if found == bench.after else "between"
    if status is not None and status != 0:
        if "Traceback" in shown or "\nerror: " not in f"\n{shown}":
            faults.append(f"unclear: {shown[-2000:]}")
        if state == "between":
            faults.append(f"refused, and left {differences(found, bench.before)}")
    elif status == 0 and state != "whole":
        faults.append(f"succeeded, but {differences(found, bench.after)}")
    status, shown = bench.run(folder, NO_FAULT)
    if status != 0 and not (found == bench.after and "is not empty" in shown):
        faults.append(f"the next run: {shown[-2000:]}")
    left = differences(contents(folder), bench.after)
    return state, faults + ([f"the next run left {left}"] if left else [])


def differences(found: Tree, wanted: Tree) -> list[str]:
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def campaign(
    *, seconds: float = math.inf, count: float = math.inf, seed: int = 0, commands: Sequence[str] = tuple(COMMANDS)
) -> Findings:
    """Faults that befell each command in turn."""
    found, rng = Findings(["as before", "whole", "between"]), random.Random(seed)
    order = rng.sample(commands, len(commands))
    with tempfile.TemporaryDirectory(prefix="kept_folders_") as place:

        @functools.cache
        def bench(name: str) -> Bench:
            return Bench(name, Path(place).resolve() / name.replace(" ", "_"))

        for number in found.trials(seconds, count):
            chosen = bench(order[number % len(order)])
            kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
            at = int(2 ** rng.uniform(4, 18)) if kind == "limit" else rng.randint(1, chosen.changes)
            state, faults = trial(chosen, Fault(kind, at))
            found.counts[chosen.name][state] += 1
            found.faults += [f"{chosen.name}, {kind} at {at}: {fault}" for fault in faults]
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
