"""Processes that load one benchmark into one fresh cache at once, which leave it as one process does."""

import contextlib
import multiprocessing
import random
import tempfile
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest import mock

import datasets

from fuzz.trials import Trial
from hf_recurrent.benchmarks import load_benchmark
from hf_recurrent.benchmarks.builder import BenchmarkBuilder

CONTEXT = multiprocessing.get_context("forkserver")
# what takes long to import, also for the program that starts the processes
PRELOADED = [
    *("datasets", "torch", "transformers.generation", "transformers.models.auto.modeling_auto"),
    *(
        "hf_recurrent.benchmarks.builder",
        "hf_recurrent.models.gut.modeling_gut",
        "hf_recurrent.models.sut.modeling_sut",
    ),
]
SIZES: dict[str, dict[str, Any]] = {
    "listops": {"num_train": 60, "num_validation": 20, "num_test": 20, "max_depth": 3},
    "logical_inference": {"num_train": 60, "num_validation": 20, "num_test": 20},
    "flip_flop": {"num_train": 60, "num_validation": 20, "num_test": 20, "train_length": 16},
}
# in the seconds that a process may take
LONGEST = 600.0


def rows_of(name: str, params: dict[str, Any], cache: str) -> dict[str, list]:
    """All rows of a benchmark, by split."""
    return {split: part.to_list() for split, part in load_benchmark(name, cache_dir=cache, **params).items()}


def load(answer: Connection, together: Barrier, job: tuple[str, dict[str, Any], str]) -> None:
    """Send the rows, or the error that there was."""
    datasets.disable_progress_bars()
    together.wait(LONGEST)
    try:
        answer.send(rows_of(*job))
    except Exception as error:
        answer.send(f"{type(error).__name__}: {error}")


def loaded_by(processes: int, job: tuple[str, dict[str, Any], str]) -> list[dict[str, list] | str]:
    """What processes that begin together load."""
    CONTEXT.set_forkserver_preload(PRELOADED)
    together, started = CONTEXT.Barrier(processes), []
    for _ in range(processes):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=load, args=(theirs, together, job))
        process.start()
        theirs.close()
        started.append((process, ours))
    return [ended(process, answer) for process, answer in started]


def ended(process: ForkServerProcess, answer: Connection) -> dict[str, list] | str:
    found: dict[str, list] | str = "no answer"
    with contextlib.suppress(EOFError):
        if answer.poll(LONGEST):
            found = answer.recv()
    process.join(1)
    process.kill()
    return found


def files(cache: str) -> dict[str, int]:
    """Sizes of all files but locks, which stay."""
    paths = [path for path in Path(cache).rglob("*") if path.suffix != ".lock" and not path.is_dir()]
    folders = [path for path in Path(cache).rglob("*") if path.is_dir()]
    return {str(path.relative_to(cache)): path.stat().st_size for path in paths} | {
        f"{folder.relative_to(cache)}/": 0 for folder in folders
    }


def processes_trial(rng: random.Random, processes: int) -> Trial:
    """A benchmark that processes load at once, against the same one in a cache that one process has made."""
    name = rng.choice(list(SIZES))
    params = {**SIZES[name], "seed": rng.randrange(10**6)}
    with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as shared:
        expected = rows_of(name, params, alone)
        found = loaded_by(processes, (name, params, shared))
        wrong = [each if isinstance(each, str) else "other rows" for each in found if each != expected]
        faults = [f"{wrong.count(each)} of {processes} processes: {each}" for each in sorted(set(wrong))]
        faults += cache_faults(shared, alone)
        with mock.patch.object(BenchmarkBuilder, "_generate_examples", side_effect=RuntimeError("generated again")):
            try:
                faults += ["the next call loads other rows"] * (rows_of(name, params, shared) != expected)
            except Exception as error:
                faults.append(f"the next call fails: {error!r}")
    return Trial((f"load_benchmark {name} in {processes} processes",), tuple(faults))


def cache_faults(shared: str, alone: str) -> list[str]:
    ours, theirs = files(shared), files(alone)
    extra, lost = sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys())
    # the facts of a dataset hold the times that it took
    sizes = sorted(
        path for path in ours.keys() & theirs.keys() if path.endswith(".arrow") and ours[path] != theirs[path]
    )
    found = {"left in the cache": extra, "not in the cache": lost, "of another size": sizes}
    return [f"{what}: {paths}" for what, paths in found.items() if paths]
