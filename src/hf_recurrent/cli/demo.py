"""`hf-recurrent demo`: a GUT learns small ListOps in minutes on a CPU, and thinks longer on deeper expressions.

1. Trains by the recipe `demo` into runs/demo (once: a finished run is reused).
2. Chooses on the validation split how sure the model must be to stop (`hf-recurrent calibrate`).
3. Compares it with itself at full depth on the test split; the card shows that too.
4. Lets it answer ten expressions.
"""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
import typer
from datasets import disable_progress_bars
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import PrinterCallback, TrainerCallback

from ..analysis.tables import CALIBRATION_FILE
from ..benchmarks import normalize_expression
from ..benchmarks.listops.expressions import analyse
from ..recipes import find_recipe
from ..templating import percent, signed, steps
from ..training.evaluate import load_checkpoint
from ..training.recipes import read_mapping
from ..training.trainer_run import TrainerRun
from .calibrate import calibrate, verdict
from .console import out, quiet_libraries, table, wrote

# of the kind that it was trained on, drawn with another seed: from easy to deep
SHOWCASE = (
    "[MIN 5 4 4 5]",
    "[MIN 2 2 5 1]",
    "[MAX 0 [MIN 6 2 5]]",
    "[MIN 5 4 [MIN 7 9]]",
    "[MIN [MAX 6 7] 7 2 8]",
    "[MAX [MAX [MAX 4 8] 1 5 4] 8]",
    "[MIN 3 6 [MIN [MIN 0 0 5] 3] 4]",
    "[MIN 4 [MIN [MAX 3 7] 3]]",
    "[MAX 2 [MIN 3 1 4 [MIN 6 [MIN 8 0 0]]] 2 2]",
    "[MIN [MIN 5 [MIN 3 4 9 [MAX 0 6 5 6]]] 2]",
)
STEP = "\u2588"
REPORT_STEPS = 500


class ProgressLine(TrainerCallback):
    """One line for a training run: steps, the last loss and the time left; without terminal, a line at times."""

    def __init__(self) -> None:
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"))
        self.progress = Progress(*columns, TimeRemainingColumn(), console=out)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self.task = self.progress.add_task("", total=state.max_steps, completed=state.global_step, loss="")
        self.progress.start()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.progress.update(self.task, completed=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if "loss" not in logs:
            return
        loss = f"{float(logs['loss']):.3f}"
        self.progress.update(self.task, loss=loss)
        if not out.is_terminal and state.global_step % REPORT_STEPS == 0:
            out.print(f"training: step {state.global_step:,} of {state.max_steps:,}, loss {loss}")

    def on_train_end(self, args, state, control, **kwargs) -> None:
        self.progress.stop()


class QuietRun(TrainerRun):
    """A run that shows a `ProgressLine` instead of its log."""

    def prepare(self) -> None:
        super().prepare()
        self.trainer.remove_callback(PrinterCallback)
        self.trainer.add_callback(ProgressLine())


def choose_exit(folder: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Calibrate the checkpoint in `folder` by the confidence of its answers -> the contents of its calibration.json.

    Raises:
        ValueError: no threshold keeps the promise.
    """
    benchmark = {"benchmark": recipe["benchmark"], "config": recipe["benchmark_config"]}
    settings = [f"{name}={json.dumps(value)}" for name, value in recipe["benchmark_params"].items()]
    try:
        # what matters of its tables is shown below
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            calibrate(str(folder), **benchmark, set_=settings, criterion=["confidence"], card=True)
    except typer.Exit as unsafe:
        raise ValueError(f"{folder} is at no confidence sure enough to stop early: train it for longer") from unsafe
    return json.loads((folder / CALIBRATION_FILE).read_text(encoding="utf-8"))


def compare(found: Mapping[str, Any]) -> None:
    """Print accuracy and steps by depth of the expression, beside full depth."""
    test = found["tests"]["test"]
    columns = [("depth", True), ("n", True), ("full depth", True), ("calibrated", True), ("steps", True), ("", False)]
    rows = [[row["value"], *cells(row), bar(row["mean_depth"])] for row in test["by_difficulty"]]
    title = f"Accuracy on fresh expressions at full depth ({found['max_steps']} steps) and calibrated"
    out.print(table(title, columns, [*rows, ["all", *cells(test), ""]]))
    out.print(f"rank correlation (Spearman) of steps and depth: {signed(test['spearman'])}")
    out.print(verdict(found)[1], markup=False)


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return f"{row['n']:,}", percent(row["full_accuracy"]), percent(row["accuracy"]), steps(row["mean_depth"])


def bar(length: float) -> str:
    return STEP * round(2 * length)


def answer(folder: Path, expressions: Sequence[str]) -> None:
    """Print value, answer and steps of each expression, and how many answers are right."""
    checkpoint = load_checkpoint(folder, "cpu")
    texts = [normalize_expression(expression) for expression in expressions]
    with torch.no_grad():
        outputs = checkpoint.model(**checkpoint.tokenizer(texts, padding=True, return_tensors="pt"))
    answers = [int(checkpoint.model.config.id2label[number]) for number in outputs.logits.argmax(-1).tolist()]
    analyses = [analyse(text.split()) for text in texts]
    found = list(zip(expressions, analyses, answers, outputs.ponder_steps.tolist(), strict=True))
    rows = [(text, it.depth, it.value, answer, taken) for text, it, answer, taken in found]
    columns = [("expression", False), ("depth", True), ("value", True), ("answer", True), ("steps", True)]
    right = sum(it.value == answer for _, it, answer, _ in found)
    out.print(table(f"{right} of {len(found)} right", columns, rows))


def run_demo(recipe: str, folder: Path) -> None:
    """Train by a recipe, named or a file, into `folder`, calibrate, compare and answer, and print what came of it."""
    # so small matrices are no work for two
    torch.set_num_threads(1)
    quiet_libraries()
    disable_progress_bars()
    out.print(f"{folder}: data, training, calibration; minutes on one core", markup=False)
    QuietRun([recipe, "--output_dir", str(folder), "--disable_tqdm", "true"]).execute()
    compare(choose_exit(folder, read_mapping(find_recipe(recipe))))
    answer(folder, SHOWCASE)
    for name in ("README.md", "assets/calibrated_steps_depth.png"):
        wrote(folder / name)
