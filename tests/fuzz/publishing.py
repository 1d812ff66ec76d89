"""Publishing a model, a benchmark and a metric while something goes wrong, again and again.

A publisher is a process of its own that runs the command. It is killed or terminated at a random moment or request,
loses the network, finds the disk full, or meets another publisher. Then the repository is as it was or whole, in every
commit; the message is one line; the same command again completes it, and once more changes nothing; local folders are
unchanged. Where a process is killed, which cannot tidy up, an empty repository or branch may be left.

    cd tests; python -m fuzz.publishing --seconds 600 --seed 0
"""

import contextlib
import io
import itertools
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from fuzz.campaigns import Findings, main
from support.checkpoints import GUT_LISTOPS
from support.client import client_in_this_process
from support.loopback_hub import LoopbackHub
from support.loopback_hub.faults import Fault
from support.loopback_hub.routes import ROUTES

# what takes long to import; publishers are forked from a process that has done so
PRELOADED = ["datasets", "hf_recurrent.benchmarks.export", "hf_recurrent.cli.app", "hf_recurrent.hub.publish"]
PATIENCE = 300  # seconds
# exit status of a command that is told to end
INTERRUPTED = 130
SIZES = {"num_train": 40, "num_validation": 8, "num_test": 24}
METRIC = "bits_per_token"
KINDS = {"model": "org/gut", "dataset": "org/listops", "space": f"org/{METRIC}"}
EFFECTS = [{"status": 500}, {"status": 503}, {"status": 429}, {"drop": True}, {"drop_upload": True}]
EFFECTS += [{"lose_answer": True}, {"cut": True}]
# what goes wrong, and how often among others
TROUBLES = {"kill": 4, "kill at request": 6, "terminate": 2, "fault": 4, "no network": 3, "disk": 2, "two": 4}
# of the repository after trouble
STATES = ("as before", "whole", "empty", "half")
# of models, how many are also loaded without the package, which takes longest
RELOADED = 0.05

Tree = dict[str, bytes]


@dataclass(frozen=True)
class Version:
    """One content of a repository: the words of the command that publishes it, and what this gave without trouble.

    That is the `tree`, the `commit`, the large files (`objects`), and the number of `requests` and `seconds` it took.
    """

    words: tuple[str, ...]
    folder: Path | None
    tree: Tree = field(default_factory=dict, repr=False)
    commit: Any = field(default=None, repr=False)
    objects: dict[str, bytes] = field(default_factory=dict, repr=False)
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Exit status (negative: the signal that ended it) and stderr of a publisher."""

    status: int
    message: str = ""


class Publisher:
    """A process that runs a command against a Hub as soon as it is told to `go`."""

    context = multiprocessing.get_context("forkserver")

    def __init__(self, words: tuple[str, ...], hub: LoopbackHub, scratch: Path, **options: Any):
        self.answer, theirs = self.context.Pipe()
        job = (words, hub.endpoint, hub.token, str(scratch), options, theirs)
        self.process = self.context.Process(target=run_command, args=job)
        self.process.start()
        theirs.close()
        # that it is ready
        self.answer.recv()

    def go(self) -> "Publisher":
        self.answer.send(None)
        return self

    def signal(self, number: int) -> None:
        """End the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def outcome(self) -> Outcome:
        found = None
        with contextlib.suppress(EOFError):
            if self.answer.poll(PATIENCE):
                found = Outcome(*self.answer.recv())
        if found is None:
            self.process.join(1)
            self.signal(signal.SIGKILL)
        self.process.join()
        self.answer.close()
        return found or Outcome(self.process.exitcode)


def run_command(words, endpoint, token, scratch, options, answer) -> None:
    """Run the command `words` in this process when told to, and send its exit status and stderr."""
    os.setsid()
    from hf_recurrent.cli import main
    from hf_recurrent.hub import publish

    os.environ.update(HF_TOKEN=token, TMPDIR=scratch)
    tempfile.tempdir = scratch
    time.sleep = lambda seconds: None
    if not options.get("reload"):
        publish.check_reload = lambda source, staged: None
    if options.get("plant"):
        options["plant"]()
    if "file_bytes" in options:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (options["file_bytes"],) * 2)
    status, err = 1, io.StringIO()
    hub = SimpleNamespace(endpoint=endpoint)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(err),
        client_in_this_process(hub, scratch),
    ):
        answer.send(None)
        answer.recv()
        try:
            main(list(words))
        except SystemExit as finished:
            status = finished.code or 0
        except BaseException:
            traceback.print_exc()
    answer.send((status, err.getvalue()))
    # what is left to clean up is not what is tested
    answer.close()
    os._exit(0)


class TroubledHub(LoopbackHub):
    """A Hub that calls `trouble(number, before)` around each request, and is gone from request `last` on."""

    def __init__(self):
        super().__init__(page_size=5)
        self.trouble, self.last, self.number = lambda number, before: None, None, itertools.count()
        self.counting = threading.Lock()

    def fault_for(self, request):
        with self.counting:
            number = next(self.number)
        request.number = number
        if self.last is not None and number >= self.last:
            return Fault(f"{request.method} .*", drop=True)
        return super().fault_for(request)

    def answer(self, request):
        self.trouble(request.number, True)
        try:
            return super().answer(request)
        finally:
            self.trouble(request.number, False)


def versions(scratch: Path, kinds: Sequence[str]) -> dict[str, list[Version]]:
    """The contents of a repository of each of these kinds, published once without trouble."""
    return {kind: [published(kind, version, scratch) for version in unpublished(kind, scratch)] for kind in kinds}


def unpublished(kind: str, scratch: Path) -> list[Version]:
    if kind == "space":
        return [Version(("metric", "publish", METRIC, KINDS[kind]), None)]
    words, folders = (("publish",), model_folders) if kind == "model" else (("benchmark", "publish"), dataset_folders)
    return [Version((*words, str(folder), KINDS[kind]), folder) for folder in folders(scratch)]


def model_folders(scratch: Path) -> list[Path]:
    """A checkpoint twice, with different cards."""
    from hf_recurrent.hub.card import read_card, write_card

    folders = [
        shutil.copytree(GUT_LISTOPS, scratch / name, ignore=shutil.ignore_patterns("*.py"))
        for name in ("model", "model-2")
    ]
    card = read_card(folders[1])
    write_card(folders[1], replace(card, limitations=[*card.limitations, "It is another."]))
    return folders


def dataset_folders(scratch: Path) -> list[Path]:
    """An export of two configs, and one of the first alone, so that files have to be deleted."""
    from hf_recurrent.benchmarks.export import export_benchmark

    configs = {"dataset": ["original", "length_generalization"], "dataset-2": ["original"]}
    options = {"params": SIZES, "cache_dir": scratch / "cache"}
    return [export_benchmark("listops", scratch / name, configs=chosen, **options) for name, chosen in configs.items()]


def published(kind: str, version: Version, scratch: Path) -> Version:
    with TroubledHub() as hub:
        publisher, start = Publisher(version.words, hub, scratch), time.monotonic()
        outcome = publisher.go().outcome()
        spent = {"requests": len(hub.calls), "seconds": time.monotonic() - start}
        if outcome.status:
            raise RuntimeError(f"{version.words}: {outcome.message}")
        repository = hub.repository(KINDS[kind], kind)
        head, objects = repository.head(), dict(repository.lfs)
        return replace(version, tree=head.files, commit=head, objects=objects, **spent)


def contents(folder: Path | None) -> Tree:
    if folder is None:
        return {}
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass
class Trial:
    """One repository, before and after trouble. `faults` are broken promises.

    `plant` is called in the processes that meet the trouble, to break what is promised.
    """

    kind: str
    trouble: str
    hub: TroubledHub
    scratch: Path
    random: Random
    wanted: Version
    rival: Version
    options: list[str] = field(default_factory=list)
    plant: Callable[[], None] | None = None
    faults: list[str] = field(default_factory=list)
    state: str = ""

    @property
    def name(self) -> str:
        return KINDS[self.kind]

    def run(self, before: Version | None) -> None:
        """Publish over `before` (None: no repository) in trouble, judge what is left, and publish without."""
        if before is not None:
            repository = self.hub.add_repository(self.name, self.kind)
            repository.lfs.update(before.objects)
            repository.commit("main", before.commit.blobs, before.commit.summary, before.commit.description)
        folders = {folder: contents(folder) for folder in (self.wanted.folder, self.rival.folder)}
        heads = self.heads()
        outcomes = self.make_trouble()
        self.hub.trouble, self.hub.last = lambda number, before: None, None
        self.hub.heal()
        self.judge(heads, outcomes)
        self.repeat(changes=self.heads().get(self.branch) != self.wanted.tree)
        self.repeat(changes=False)
        if any(contents(folder) != content for folder, content in folders.items()):
            self.faults.append("a local folder is not as it was")

    def make_trouble(self) -> list[tuple[Version, Outcome]]:
        random, options = self.random, {"reload": self.random.random() < RELOADED, "plant": self.plant}
        at, before = random.randrange(self.wanted.requests), random.random() < 0.5
        if self.trouble == "disk":
            sizes = [len(content) for content in self.wanted.tree.values()]
            options["file_bytes"] = random.randrange(max(sizes))
        elif self.trouble == "no network":
            self.hub.last = at
        elif self.trouble == "fault":
            target = random.choice(sorted({route.name for route in ROUTES}))
            self.hub.fail(target, times=random.choice([1, 2, None]), **random.choice(EFFECTS))
        versions = [self.wanted, self.rival] if self.trouble == "two" else [self.wanted]
        publishers = [
            Publisher((*version.words, *self.options), self.hub, self.scratch, **options) for version in versions
        ]

        def strike(number: int, first: bool) -> None:
            if (number, first) == (at, before):
                publishers[0].signal(signal.SIGKILL)

        if self.trouble == "kill at request":
            self.hub.trouble = strike
        for publisher in publishers:
            publisher.go()
        if self.trouble in ("kill", "terminate"):
            publishers[0].process.join(random.uniform(0, self.wanted.seconds))
            publishers[0].signal(signal.SIGKILL if self.trouble == "kill" else signal.SIGTERM)
        return [(version, publisher.outcome()) for version, publisher in zip(versions, publishers, strict=True)]

    def heads(self) -> dict[str, Tree]:
        """Branch -> files; nothing where there is no repository."""
        if (self.kind, self.name) not in self.hub.repositories():
            return {}
        repository = self.hub.repository(self.name, self.kind)
        return {branch: repository.head(branch).files for branch in repository.branches}

    def judge(self, before: dict[str, Tree], outcomes: list[tuple[Version, Outcome]]) -> None:
        """Compare the repository with what it may be after trouble, and messages with what they may say."""
        after, branch = self.heads(), self.branch
        new = [version.tree for version, _ in outcomes]
        if after == before:
            self.state = "as before"
        elif any(after.get(branch) == tree for tree in new):
            self.state = "whole"
        # a process that is killed cannot remove what it made for the commit
        elif set(after) - set(before) and self.fresh(after, before):
            self.state = "empty"
        else:
            self.state = "half"
            self.faults.append(f"neither as before nor whole: {sorted(after.get(branch, {}))}")
        if branch != "main" and before and after.get("main") != before["main"]:
            self.faults.append("another branch has changed")
        self.judge_history([*new, *before.values()])
        for _, outcome in outcomes:
            if outcome.status == 0 and not any(after.get(branch) == other for other in new):
                self.faults.append(f"succeeded, but the repository is {self.state}")
            self.judge_message(outcome)
        if len(outcomes) == 1 and outcomes[0][1].status == 0 and after.get(branch) != self.wanted.tree:
            self.faults.append("succeeded with other content")

    def fresh(self, after: dict[str, Tree], before: dict[str, Tree]) -> bool:
        repository = self.hub.repository(self.name, self.kind)
        if before:
            # a branch that was made, equal to main
            return after.get("main") == before["main"] and all(tree == after["main"] for tree in after.values())
        return all(len(repository.history(branch)) == 1 for branch in after)

    def judge_history(self, allowed: list[Tree]) -> None:
        if not self.heads():
            return
        repository = self.hub.repository(self.name, self.kind)
        for branch in repository.branches:
            for commit in repository.history(branch)[1:]:
                if commit.files not in allowed:
                    self.faults.append(f"half in a commit: {sorted(commit.files)}")

    def judge_message(self, outcome: Outcome) -> None:
        """A refusal is one line; who was killed says nothing, and who was terminated says so or nothing."""
        lines = outcome.message.splitlines()
        if outcome.status in (-signal.SIGKILL, -signal.SIGTERM):
            return
        if outcome.status == INTERRUPTED:
            if self.state == "empty":
                self.faults.append("terminated, and left what it had made")
            return
        if outcome.status < 0 or outcome.status > 1 or "Traceback" in outcome.message:
            self.faults.append(f"status {outcome.status}: {outcome.message}")
        elif outcome.status == 1 and not (len(lines) == 1 and lines[0].startswith("error: ")):
            self.faults.append(f"unclear: {outcome.message}")
        elif outcome.status == 1 and self.trouble == "disk" and "cannot be staged" not in outcome.message:
            self.faults.append(f"does not tell of the disk: {outcome.message}")
        elif outcome.status == 1 and self.state == "empty" and "left" not in outcome.message:
            self.faults.append(f"does not tell what was left: {outcome.message}")

    @property
    def branch(self) -> str:
        return "draft" if "--revision" in self.options else "main"

    def repeat(self, *, changes: bool) -> None:
        """The same command again, without trouble; it completes the repository, and `changes` it only where needed."""
        before = self.commits
        outcome = Publisher((*self.wanted.words, *self.options), self.hub, self.scratch).go().outcome()
        if self.trouble == "two" and "tag='v1' exists" in outcome.message:
            # the other's content has the tag, and a tag never moves
            return
        if outcome.status or self.heads().get(self.branch) != self.wanted.tree:
            self.faults.append(f"not completed by repeating: {outcome}")
        elif self.commits > before and not changes:
            self.faults.append("repeating made a commit without a change")

    @property
    def commits(self) -> int:
        return sum(call.status == 200 for call in self.hub.called("commit"))


def drawn(
    seed: int, number: int, known: dict[str, list[Version]], troubles: Sequence[str], scratch: Path
) -> tuple[str, Trial, Version | None]:
    """A trial with its name, and what is in the repository before."""
    random = Random(f"{seed}/{number}")
    kind = random.choice(list(known))
    wanted, rival = random.choice(known[kind]), random.choice(known[kind])
    trouble = random.choices(troubles, [TROUBLES[name] for name in troubles])[0]
    before = random.choice([None, *(version for version in known[kind] if version is not wanted)])
    # what is there has its visibility already
    visibility = [["--private"]] if before is None else []
    options = random.choice([[], [], ["--tag", "v1"], ["--revision", "draft"], *visibility])
    place = Path(tempfile.mkdtemp(dir=scratch))
    trial = Trial(kind, trouble, TroubledHub(), place, random, wanted, rival, options)
    return f"seed {seed}, trial {number} ({kind}, {trouble}, {' '.join(options)})", trial, before


def campaign(
    *,
    seconds: float = math.inf,
    count: float = math.inf,
    seed: int = 0,
    kinds: Sequence[str] = tuple(KINDS),
    troubles: Sequence[str] = tuple(TROUBLES),
    plant: Callable[[], None] | None = None,
) -> Findings:
    """Trials by kind of repository and trouble, and the state after it.

    Args:
        plant: breaks what is promised, in each process that meets trouble.
    """
    Publisher.context.set_forkserver_preload(PRELOADED)
    found = Findings(STATES)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        known = versions(scratch, kinds)
        for number in found.trials(seconds, count):
            name, trial, before = drawn(seed, number, known, troubles, scratch)
            trial.plant = plant
            with trial.hub:
                trial.run(before)
            shutil.rmtree(trial.scratch)
            found.counts[f"{trial.kind}, {trial.trouble}"][trial.state] += 1
            found.faults += [f"{name}: {fault}" for fault in trial.faults]
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
