"""Training runs that are killed, share a folder, or find the disk full, and end as one that nobody disturbed.

cd tests; python -m fuzz.training_kills --seconds 600 --seed 0
"""

import functools
import math
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

# all that a run imports on its way, so that forked processes need not
import hf_recurrent.analysis.plots
import hf_recurrent.training.document_run
import hf_recurrent.training.seq2seq_plots
import hf_recurrent.training.seq2seq_run  # noqa: F401
from fuzz.campaigns import Findings, main
from fuzz.killing.faults import NO_FAULT, Fault, inject
from fuzz.killing.finished_folder import contents, differences
from hf_recurrent.hub.bundle import code_files
from hf_recurrent.training.run import as_command, run_and_print
from support.documents import write_texts

ROOT = Path(__file__).parents[2]
FORK = multiprocessing.get_context("fork")
SIZES = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
STEPS = {"max_steps": 6, "warmup_steps": 2, "logging_steps": 1, "save_steps": 2, "use_cpu": True, "disable_tqdm": True}
CHOICE = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "load_best_model_at_end": True}
TRAINER = {**STEPS, **CHOICE, "per_device_train_batch_size": 4, "metric_for_best_model": "loss"}
TIMED = {"write_predictions": True, "timing": True}
CURVE = {"thresholds": [0.9], "threshold_samples": 4}
EXPERTS = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "attention_experts": 2,
    "attention_experts_per_token": 1,
    "num_attention_heads": 1,
    "head_dim": 8,
    "feed_forward_experts": 2,
    "feed_forward_experts_per_token": 1,
    "intermediate_size": 8,
    "relative_window": 1,
}
# dropout, halting, evaluations and checkpoints on the way, the choice of a checkpoint or an average, every figure
RECIPES: dict[str, dict[str, Any]] = {
    "run_glue_style": {
        **{**TRAINER, **TIMED, **CURVE},
        "model_type": "gut",
        "config": SIZES,
        "benchmark": "listops",
        "benchmark_params": {"num_train": 16, "num_validation": 8, "num_test": 8, "max_depth": 2},
        "learning_rate": 0.01,
    },
    "run_clm": {
        **{**TRAINER, **TIMED, **CURVE},
        "model_type": "gutlb",
        "config": {**SIZES, "chunk_size": 6, "num_memory_slots": 2},
        "benchmark": "flip_flop",
        "benchmark_params": {"train_length": 12, "num_train": 16, "num_validation": 4, "num_test": 4},
        "learning_rate": 0.01,
    },
    "run_clm_accelerate": {
        **STEPS,
        "model_type": "block_recurrent",
        "config": {**SIZES, "window_size": 8, "num_state_vectors": 2},
        "benchmark_config": "folder",
        "segment_length": 16,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "eval_steps": 3,
    },
    "run_seq2seq": {
        **{**TRAINER, **TIMED},
        "model_type": "sut",
        "config": {**EXPERTS, "label_smoothing": 0.1},
        "benchmark": "logical_inference_translation",
        "benchmark_params": {"num_train": 24, "num_validation": 4, "num_test": 6},
        "learning_rate": 0.01,
        "max_tokens": 200,
        "gradient_accumulation_steps": 2,
        "metric_for_best_model": "nll",
        "average_checkpoints": 2,
    },
}
# kinds of faults, and how often one comes among others
KINDS = {"kill": 8, "tear": 3, "moment": 3, "fill": 3, "limit": 1, "twice": 1, "interpreter": 1}
# a seed takes one or the other
FLAGS = ((), ("--keep_checkpoints", "true"))


@dataclass
class Process:
    """A training run: its `process`, and the file that its output goes to."""

    process: Any
    log: Path

    def end(self) -> tuple[int, str]:
        """Wait for the end -> the exit code, negative for the number of a signal, and the output."""
        code = self.process.wait() if isinstance(self.process, subprocess.Popen) else joined(self.process)
        printed = self.log.read_text(encoding="utf-8", errors="replace")
        self.log.unlink()
        return code, printed


def joined(process: Any) -> int:
    process.join()
    return process.exitcode


class Bench:
    """A script with a tiny recipe, and the folder of a run that nothing befell.

    Attributes:
        changes: how often such a run changes files of its folder.
        seconds: how long it takes.
        expected: the contents of its folder.
    """

    def __init__(self, script: str, folder: Path, *flags: str):
        self.script, self.folder, self.flags = script, folder, flags
        recipe = {**RECIPES[script], "cache_dir": str(folder / "data")}
        if recipe.get("benchmark_config") == "folder":
            recipe["data_dir"] = str(write_texts(folder / "texts", {"train": 5, "validation": 1, "test": 2}, 8, 30))
        self.recipe = folder / "tiny.yaml"
        self.recipe.parent.mkdir(parents=True, exist_ok=True)
        self.recipe.write_text(yaml.safe_dump(recipe))
        # part of what a process would do anew
        code_files(recipe["model_type"])
        # the second one finds its data ready, as all later ones do
        for name in ("first", "straight"):
            counter, started = FORK.Value("i", 0), time.perf_counter()
            code, printed = self.fork(self.target(name), counter=counter).end()
            self.changes, self.seconds = counter.value, time.perf_counter() - started
            if code:
                raise RuntimeError(f"{script} does not run: {printed}")
        self.expected = contents(self.target("straight"))

    def target(self, name: str) -> Path:
        """A folder for a run; the last part is always the same, since cards show it."""
        return self.folder / name / "run"

    def arguments(self, target: Path) -> list[str]:
        return [str(self.recipe), "--output_dir", str(target), *self.flags]

    def log(self) -> Path:
        return self.folder / f"{time.perf_counter_ns()}.log"

    def fork(self, target: Path, fault: Fault = NO_FAULT, counter: Any = None) -> Process:
        """Start a process that has imported everything."""
        log = self.log()
        log.touch()
        process = FORK.Process(target=train, args=(self.script, self.arguments(target), target, fault, counter, log))
        process.start()
        return Process(process, log)

    def interpreter(self, target: Path) -> Process:
        """Start the script as its users do."""
        log = self.log()
        command = [sys.executable, str(ROOT / "training" / f"{self.script}.py"), *self.arguments(target)]
        with log.open("w") as file:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return Process(subprocess.Popen(command, stdout=file, stderr=file, env=environment), log)


def train(script: str, argv: list[str], folder: Path, fault: Fault, counter: Any, log: Path) -> None:
    """Run a script as its command does, disturbed by `fault`, its output in `log`."""
    with log.open("w") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)

    def count(number: int) -> None:
        if counter is not None:
            counter.value = number

    inject(fault, folder, count)
    sys.argv = [script, *argv]
    as_command(lambda argv: run_and_print(argv, f"training/{script}.py"))


class Disturber:
    """Lets faults befall the runs of one bench, one folder after another.

    "kill" and "tear" hit a chosen change of files, "moment" a chosen time, "interpreter" a process that nothing was
    imported in before; "fill" and "limit" are full disks; "twice" starts two runs at once.
    """

    def __init__(self, bench: Bench, found: Findings, seed: int):
        self.bench, self.found, self.rng = bench, found, random.Random(f"{seed} {bench.script}")
        self.places: list[int] = []

    def place(self) -> int:
        """The number of a change; every one comes once before one comes again."""
        self.places = self.places or self.rng.sample(range(1, self.bench.changes + 1), self.bench.changes)
        return self.places.pop()

    def folder(self, name: str) -> None:
        """One folder: a fault or several, and a run that finishes."""
        target = self.bench.target(name)
        story = []
        while not story or self.rng.random() < 0.25:
            chosen = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
            self.found.counts[self.bench.script][chosen] += 1
            story.append(getattr(self, chosen)(target))
        code, printed = self.bench.fork(target).end()
        problems = [f"exit code {code}: {printed[-2000:]}"] if code else self.problems(target)
        self.found.faults += [f"{self.bench.script}, {' then '.join(story)}: {problem}" for problem in problems]
        if not problems:
            shutil.rmtree(target.parent)

    def problems(self, target: Path) -> list[str]:
        try:
            return differences(contents(target), self.bench.expected)
        except (ValueError, OSError, KeyError) as error:
            return [str(error)]

    def killed(self, target: Path, kind: str) -> str:
        fault = Fault(kind, self.place())
        self.bench.fork(target, fault).end()
        return str(fault)

    def kill(self, target: Path) -> str:
        return self.killed(target, "kill")

    def tear(self, target: Path) -> str:
        return self.killed(target, "tear")

    def moment(self, target: Path) -> str:
        return self.killed_later(self.bench.fork(target), self.rng.uniform(0, self.bench.seconds))

    def interpreter(self, target: Path) -> str:
        return self.killed_later(self.bench.interpreter(target), self.rng.uniform(0, 10 + 2 * self.bench.seconds))

    def killed_later(self, process: Process, seconds: float) -> str:
        time.sleep(seconds)
        process.process.kill()
        process.end()
        return f"kill after {seconds:.2f} s"

    def fill(self, target: Path) -> str:
        return self.refused(target, Fault("fill", self.place()))

    def limit(self, target: Path) -> str:
        return self.refused(target, Fault("limit", int(2 ** self.rng.uniform(4, 16))))

    def refused(self, target: Path, fault: Fault) -> str:
        """Let the disk be full, for which a run ends with one line of its own, if it notices."""
        code, printed = self.bench.fork(target, fault).end()
        if code and ("Traceback" in printed or "\nerror: " not in f"\n{printed}"):
            self.found.faults.append(f"{self.bench.script}, {fault}: unclear {printed[-2000:]}")
        return str(fault)

    def twice(self, target: Path) -> str:
        """Start two at once, of which one is refused, or comes when the other has finished."""
        first = self.bench.fork(target)
        seconds = self.rng.choice([0.0, self.rng.uniform(0, self.bench.seconds)])
        time.sleep(seconds)
        ended = [process.end() for process in (first, self.bench.fork(target))]
        texts = [text for code, text in ended if code]
        if len(texts) > 1 or any("in use" not in text or "Traceback" in text for text in texts):
            self.found.faults.append(f"{self.bench.script}, two runs {seconds:.2f} s apart: {ended}")
        return f"two runs {seconds:.2f} s apart"


def campaign(
    *, seconds: float = math.inf, count: float = math.inf, seed: int = 0, scripts: Sequence[str] = tuple(RECIPES)
) -> Findings:
    """Faults that befell the runs of each script in turn; every folder is compared with that of a run without."""
    found, order = Findings(KINDS), random.Random(seed).sample(scripts, len(scripts))
    with tempfile.TemporaryDirectory(prefix="training_kills_") as place:

        @functools.cache
        def disturber(script: str) -> Disturber:
            return Disturber(Bench(script, Path(place) / script, *FLAGS[seed % len(FLAGS)]), found, seed)

        for number in found.trials(seconds, count):
            disturber(order[number % len(order)]).folder(str(number))
    return found


if __name__ == "__main__":
    sys.exit(main(campaign, __doc__))
