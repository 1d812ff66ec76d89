"""The campaign of kills: training, commands and publishing that are killed or refused at a random place, and repeated.

A process is killed right before a random change of a file or a random request, the disk has no more room, or the Hub
refuses from a request on. Then each file of a folder is as before or whole, and so is each commit of a repository. The
same command again completes them; a training run ends as one that was not killed.

    cd tests; python -m fuzz.kills --seconds 600 --seed 0
"""

import contextlib
import errno
import functools
import io
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import torch
import yaml
from safetensors.torch import load

from fuzz.campaigns import Findings, main
from support.checkpoints import GUT_LISTOPS, committed_checkpoint
from support.client import client_in_this_process
from support.compare import assert_close
from support.documents import write_texts
from support.loopback_hub import LoopbackHub
from support.loopback_hub.faults import Fault

CONTEXT = multiprocessing.get_context("forkserver")
# what takes long to import; commands are forked from a process that has done so
PRELOADED = ("cli", "hub.publish", "training.run", "analysis.plots")
SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
STEPS = {"max_steps": 6, "warmup_steps": 2, "logging_steps": 1, "save_steps": 2, "use_cpu": True, "disable_tqdm": True}
CHOICE = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "load_best_model_at_end": True}
# of runs with the Trainer, and with the loop over documents
RECIPES: dict[str, dict[str, Any]] = {
    "classifier": {
        **{**STEPS, **CHOICE, "per_device_train_batch_size": 4, "learning_rate": 0.01, "write_predictions": True},
        "model_type": "gut",
        "config": SIZES,
        "benchmark": "listops",
        "benchmark_params": {"num_train": 16, "num_validation": 8, "num_test": 8, "max_depth": 2},
        "metric_for_best_model": "loss",
    },
    "documents": {
        **{**STEPS, "eval_steps": 3, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
        "model_type": "block_recurrent",
        "config": {**SIZES, "window_size": 8, "num_state_vectors": 2},
        "benchmark": "long_documents",
        "benchmark_config": "folder",
        "segment_length": 16,
    },
}
SMALL = ["--benchmark_params", "{num_train: 8, num_validation: 8, num_test: 8}"]
LISTOPS = ["listops", *SMALL, "--limit=8", "--batch_size=8"]
# the words of commands, of which the first is a checkpoint whose copy is CHECKPOINT
COMMANDS: dict[str, tuple[str | None, list[str]]] = {
    "card render": ("ndr-ctl-forward", ["card", "render", "CHECKPOINT"]),
    "evaluate": ("gut-listops-cpu", ["evaluate", "CHECKPOINT", *LISTOPS, "--output", "OUT/tables.json"]),
    "sweep": ("gut-listops-cpu", ["sweep", "CHECKPOINT", *LISTOPS, "--thresholds", "0.5", "--card"]),
    "benchmark export": (None, ["benchmark", "export", "listops", "OUT", *SMALL]),
    **{f"train {name}": (None, ["train", f"RECIPES/{name}.yaml", "--output_dir", "OUT"]) for name in RECIPES},
}
PUBLISH = "publish"
REPOSITORY = "org/gut"
# events of the interpreter that stand for a change of files, and how many of their first arguments are paths
CHANGES = {"os.rename": 2, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.link": 2}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

Tree = dict[str, bytes]


def inject(kind: str, at: int, folder: Path) -> list[str]:
    """Count changes of files in a folder; from number `at` on "fill" leaves no room, and "kill" ends this process."""
    changes: list[str] = []

    def hook(event: str, arguments: tuple) -> None:
        number = CHANGES.get(event, 0)
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            mode, flags = arguments[1:]
            number = int(bool(flags & WRITING) if mode is None else bool(set(mode) & set("wax+")))
        paths = [os.path.abspath(os.fsdecode(path)) for path in arguments[:number]]
        if any(path.startswith(f"{folder}{os.sep}") for path in paths):
            changes.append(event)
            if kind == "fill" and len(changes) >= at and event in ("open", "os.mkdir"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), paths[0])
            if kind == "kill" and len(changes) == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return changes


def perform(words: list[str], place: Path, fault: tuple[str, int], endpoint: str, token: str, answer: Any) -> None:
    """Run a command, and send its status, what it wrote as an error, and how often it changed files."""
    from hf_recurrent.cli import main as command
    from hf_recurrent.hub import publish

    torch.set_num_threads(1)
    datasets.config.HF_DATASETS_CACHE = str(place / "data")
    os.environ["HF_TOKEN"] = token
    # measured times are the same in every run, and nobody waits before a request is repeated
    time.perf_counter, time.sleep = functools.partial(next, itertools.count(0.0, 0.001)), lambda seconds: None
    # which has tests of its own, and takes longest
    publish.check_reload = lambda source, staged: None
    status, err = 1, io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
        client_in_this_process(SimpleNamespace(endpoint=endpoint), place),
    ):
        changes = inject(*fault, place / "work")
        try:
            command(words)
        except SystemExit as finished:
            err.write(finished.code if isinstance(finished.code, str) else "")
            status = 1 if isinstance(finished.code, str) else finished.code or 0
        except BaseException:
            traceback.print_exc()
    answer.send((status, err.getvalue(), len(changes)))
    os._exit(0)


class TroubledHub(LoopbackHub):
    """A Hub that kills its client or refuses from the request number `at` on."""

    def __init__(self, fault: tuple[str, int]):
        super().__init__(page_size=5)
        self.fault, self.client, self.numbers, self.counting = fault, 0, itertools.count(1), threading.Lock()

    def fault_for(self, request):
        kind, at = self.fault
        with self.counting:
            number = next(self.numbers)
        if kind == "kill" and number == at:
            os.kill(self.client, signal.SIGKILL)
        if kind == "refuse" and number >= at:
            return Fault(f"{request.method} .*", status=403)
        return super().fault_for(request)

    def tree(self) -> Tree:
        there = ("model", REPOSITORY) in self.repositories()
        return dict(self.repository(REPOSITORY).head().files) if there else {}


def run(words: list[str], place: Path, fault: tuple[str, int] = ("", 0), hub: TroubledHub | None = None):
    """The status of a command, None if it was killed, what it wrote as an error, and how often it changed files."""
    answer, theirs = CONTEXT.Pipe()
    server = ("http://127.0.0.1:9", "") if hub is None else (hub.endpoint, hub.token)
    process = CONTEXT.Process(target=perform, args=(words, place, fault if hub is None else ("", 0), *server, theirs))
    process.start()
    if hub is not None:
        hub.client = process.pid
    theirs.close()
    found = (None, "", 0)
    with contextlib.suppress(EOFError):
        found = answer.recv()
    process.join()
    return found


def unclear(status: int | None, shown: str) -> list[str]:
    is_clear = not status or ("Traceback" not in shown and "\nerror: " in f"\n{shown}")
    return [] if is_clear else [f"unclear: {shown[-2000:]}"]


class Command:
    """A command that writes into folders, and what it leaves there if nothing befalls it.

    Attributes:
        before, after: contents of the folders.
        places: how many changes of files there are to be killed at.
    """

    kinds = ("kill", "kill", "fill")

    def __init__(self, name: str, place: Path):
        self.name, self.place, self.work = name, place, place / "work"
        self.checkpoint, words = COMMANDS[name]
        paths = {"CHECKPOINT": self.work / "checkpoint", "OUT": self.work / "out", "RECIPES": place}
        self.words = ["/".join(str(paths.get(part, part)) for part in word.split("/")) for word in words]
        write_texts(place / "texts", {"train": 5, "validation": 1, "test": 2}, 8, 30)
        for recipe, settings in RECIPES.items():
            data = {"data_dir": str(place / "texts")} if "benchmark_config" in settings else {}
            (place / f"{recipe}.yaml").write_text(yaml.safe_dump({**settings, **data}))
        # the second run finds its data ready, as all later ones do
        for _ in range(2):
            self.begin()
            self.before = self.contents()
            status, shown, self.places = run(self.words, self.place)
            if status or self.contents() == self.before:
                raise RuntimeError(f"{name} changes nothing: {shown}")
        self.after = self.contents()

    def begin(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        if self.checkpoint is not None:
            source, ignored = committed_checkpoint(self.checkpoint), shutil.ignore_patterns("*.py")
            shutil.copytree(source, self.work / "checkpoint", ignore=ignored)
            (self.work / "checkpoint" / "README.md").write_text("outdated")

    def contents(self) -> Tree:
        """Path -> content of each file, but for hidden ones, which are halves."""
        found = {path.relative_to(self.work).as_posix(): path for path in self.work.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if "/." not in f"/{name}"}

    def trial(self, kind: str, at: int, rng: random.Random) -> list[str]:
        """Faults that a kill or a full disk shows."""
        self.begin()
        status, shown, _ = run(self.words, self.place, (kind, at))
        found, faults = self.contents(), unclear(status, shown)
        if not self.name.startswith("train"):
            halves = [name for name in found if found[name] not in (self.before.get(name), self.after.get(name))]
            faults += [f"neither as before nor whole: {halves}"] if halves else []
        status, shown, _ = run(self.words, self.place)
        if status and not (found == self.after and "is not empty" in shown):
            faults.append(f"the next run: {shown[-2000:]}")
        return faults + self.differences(self.contents())

    def differences(self, found: Tree) -> list[str]:
        """What differs from an undisturbed run; of training, names of files, weights and predictions."""
        names = found.keys() | self.after.keys()
        if not self.name.startswith("train"):
            wrong = sorted(name for name in names if found.get(name) != self.after.get(name))
            return [f"the next run left other {wrong}"] if wrong else []
        if found.keys() != self.after.keys():
            return [f"only once there: {sorted(found.keys() ^ self.after.keys())}"]
        wrong = [name for name in names if name.endswith(".jsonl") and found[name] != self.after[name]]
        try:
            # a resumed run has its tensors elsewhere in memory
            assert_close(load(found["out/model.safetensors"]), load(self.after["out/model.safetensors"]), 1e-4)
        except AssertionError as error:
            wrong.append(str(error))
        return [f"ends otherwise: {wrong}"] if wrong else []


class Publication:
    """Publishing a checkpoint into a new repository, or over another version of it.

    Attributes:
        places: how many requests there are to be killed at.
    """

    kinds = ("kill", "refuse")

    def __init__(self, name: str, place: Path):
        self.name, self.place = name, place
        self.heads = {}
        for version in ("first", "second"):
            folder = shutil.copytree(GUT_LISTOPS, place / version, ignore=shutil.ignore_patterns("*.py"))
            results = json.loads((folder / "results.json").read_text())
            results["limitations"].append(f"It is the {version}.")
            (folder / "results.json").write_text(json.dumps(results))
            with TroubledHub(("", 0)) as hub:
                status, shown, _ = run(["card", "render", str(folder)], place)
                status, shown, _ = run(self.words(version), place, hub=hub)
                if status:
                    raise RuntimeError(f"{name} does not run: {shown}")
                repository = hub.repository(REPOSITORY)
                self.heads[version] = repository.head(), dict(repository.lfs)
                self.places = len(hub.calls)

    def words(self, version: str) -> list[str]:
        return ["publish", str(self.place / version), REPOSITORY]

    def trial(self, kind: str, at: int, rng: random.Random) -> list[str]:
        """Faults that a kill or a refusing Hub shows."""
        before, wanted = rng.choice([None, "second"]), self.heads["first"][0].files
        with TroubledHub((kind, at)) as hub:
            if before is not None:
                commit, objects = self.heads[before]
                repository = hub.add_repository(REPOSITORY)
                repository.lfs.update(objects)
                repository.commit("main", commit.blobs, commit.summary)
            was = hub.tree()
            status, shown, _ = run(self.words("first"), self.place, hub=hub)
            found, faults = hub.tree(), unclear(status, shown)
            # a process that is killed cannot remove the repository that it made for the commit
            if found not in (was, wanted) and not found.keys() <= {".gitattributes"}:
                faults.append(f"neither as before nor whole: {sorted(found)}")
            if status == 0 and found != wanted:
                faults.append("succeeded with other content")
            hub.fault = ("", 0)
            status, shown, _ = run(self.words("first"), self.place, hub=hub)
            history = [commit.files for commit in hub.repository(REPOSITORY).history("main")[1:]]
            if status or hub.tree() != wanted or any(files not in (was, wanted) for files in history):
                faults.append(f"not completed by repeating: {shown[-2000:]}")
        return faults


def campaign(
    *,
    seconds: float = math.inf,
    count: float = math.inf,
    seed: int = 0,
    names: tuple[str, ...] = (*COMMANDS, PUBLISH),
) -> Findings:
    """Kills and refusals of each of these in turn."""
    CONTEXT.set_forkserver_preload(["datasets", *(f"hf_recurrent.{name}" for name in PRELOADED)])
    found, rng = Findings(("same", "different")), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kills_") as folder:

        @functools.cache
        def subject(name: str) -> Command | Publication:
            place = Path(folder).resolve() / name.replace(" ", "_")
            place.mkdir()
            return (Publication if name == PUBLISH else Command)(name, place)

        for number in found.trials(seconds, count):
            chosen = subject(names[number % len(names)])
            kind, at = rng.choice(chosen.kinds), rng.randint(1, chosen.places)
            faults = chosen.trial(kind, at, rng)
            found.counts[chosen.name]["different" if faults else "same"] += 1
            found.faults += [f"{chosen.name}, {kind} at {at} of {chosen.places}: {fault}" for fault in faults]
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
