"""Recipes of the papers' sizes, trained in slices by the trainer of `hf-recurrent train`, from prepared files.

A slice ends where its time does, with a checkpoint that the next one goes on from. What it has learned so far is scored
on the test splits and saved beside the score; a card is made by `hf-recurrent train`, where `datasets` is installed.
"""

import functools
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from hf_recurrent.deploy.cuda_graphs import ARCHITECTURES
from hf_recurrent.hub.checkpoint import save_checkpoint
from hf_recurrent.tasks.base import Splits
from hf_recurrent.training.run import chosen_task
from hf_recurrent.training.run_folder import last_complete_checkpoint
from hf_recurrent.training.stages import Run
from perf.core import Table

from . import plan, prepare
from .checks import Check, NotHereError, OutOfTimeError, Setting
from .device import GIB, free_bytes

# of a slice, for its evaluation and what else comes after training
AFTERWARDS = 25.0
LEAST_SECONDS = 20.0
TOY_CONFIG = {"hidden_size": 16, "num_attention_heads": 1, "head_dim": 16, "intermediate_size": 16}
TOY = {
    "max_steps": 4,
    "eval_steps": 2,
    "save_steps": 2,
    "logging_steps": 2,
    "per_device_train_batch_size": 4,
    "bf16": False,
    "use_cpu": True,
}


class Deadline(TrainerCallback):
    """Saves and stops at the end of the time, or after some steps of this process.

    It stops once that is saved, so that the checkpoint does not say that training has ended.
    """

    def __init__(self, until: float, most_steps: int | None = None):
        self.until, self.steps_left, self.over = until, most_steps, False

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
        if time.time() > self.until or self.steps_left == 0:
            control.should_save = self.over = True

    def on_save(self, args, state, control, **kwargs) -> None:
        if self.over:
            control.should_training_stop = True


class Slice(Run):
    """A run on prepared files that stops when its time is over."""

    def __init__(self, argv: list[str], data: dict[str, prepare.Examples], deadline: Deadline):
        super().__init__(argv, chosen_task(argv))
        self.data, self.deadline = data, deadline
        validation = {name: split for name, split in data.items() if name.startswith("validation")}
        self.task.load_splits = lambda tokenizer: Splits(data["train"], validation, evaluation=[])

    def learn(self) -> dict[str, Any]:
        """Train until the deadline -> where training is, and scores of the test splits."""
        self.check()
        self.prepare()
        self.trainer.add_callback(self.deadline)
        before = 0 if self.checkpoint is None else self.trainer_step()
        start = time.time()
        self.train()
        seconds = time.time() - start
        step = self.trainer_step()
        scores = {
            name: self.trainer.evaluate(split, metric_key_prefix="test")
            for name, split in self.data.items()
            if name.startswith("test")
        }
        save_checkpoint(
            self.trainer.accelerator.unwrap_model(self.trainer.model), self.folder / "learned", self.tokenizer
        )
        shown = {
            name: score.get("test_accuracy", score.get("test_last_read_accuracy")) for name, score in scores.items()
        }
        return {
            "step": step,
            # recipes may count epochs, and stop early
            "of": step if self.has_ended() else self.trainer.state.max_steps,
            "ms a step": 1e3 * seconds / max(1, step - before),
            **{name: value for name, value in shown.items() if value is not None},
        }

    def trainer_step(self) -> int:
        found = last_complete_checkpoint(self.folder)
        return 0 if found is None else int(found.name.rpartition("-")[2])


def flags(settings: dict[str, Any]) -> list[str]:
    values = (
        (f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)) for name, value in settings.items()
    )
    return [word for pair in values for word in pair]


def interrupted(folder: Path) -> str | None:
    """What an interrupted slice has left, in one line; None where there is nothing to go on from."""
    found = last_complete_checkpoint(folder) if folder.is_dir() else None
    return None if found is None else f"goes on from step {found.name.rpartition('-')[2]} of an earlier slice"


def one_slice(setting: Setting, name: str, most_steps: int | None = None) -> list[Table]:
    data = prepared_data(setting, name)
    left = setting.seconds_left - AFTERWARDS
    if left < LEAST_SECONDS and not setting.toy:
        raise OutOfTimeError(f"{max(0.0, left):.0f} s are left for training: a slice needs {LEAST_SECONDS:.0f} s")
    folder = Path(setting.folder) / "learned" / name
    changes = {"output_dir": str(folder), "disable_tqdm": True, "report_to": "none", "save_total_limit": 1}
    if setting.toy:
        config = plan.model_of(recipe_of(name), 64).config
        heads = {key: value for key, value in TOY_CONFIG.items() if hasattr(config, key)}
        changes |= {**TOY, "config": {**heads, "num_hidden_layers": 2}}
    else:
        changes["cuda_graphs"] = recipe_of(name)["model_type"] in ARCHITECTURES
        room, batch = free_bytes(setting.device), recipe_of(name).get("per_device_train_batch_size")
        fits = plan.fitting_batch(name, room)
        if batch is not None and fits < batch:
            raise NotHereError(
                f"a batch of {batch} needs {plan.estimate(name).bytes / GIB:.1f} GiB, {room / GIB:.1f} GiB are free: "
                f"{fits} rows would fit"
            )
    before = interrupted(folder)
    # slices of the recipes that are left share the time
    share = left / max(1, len(remaining(setting)))
    run = Slice([name, *flags(changes)], data, Deadline(time.time() + max(share, LEAST_SECONDS), most_steps))
    row = {"recipe": name, **run.learn()}
    (folder / "slice.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    note = "" if before is None else f"{name} {before}."
    return [Table("What the papers' recipes have learned so far", [row], note)]


def recipe_of(name: str) -> dict[str, Any]:
    return prepare.read_mapping(prepare.find_recipe(name))


def remaining(setting: Setting) -> list[str]:
    """Recipes without a slice of today."""
    from .checks import read_results

    done = read_results(setting.results)["checks"]
    return [name for name in prepare.RECIPES if f"a slice of {name}" not in done]


def prepared_data(setting: Setting, name: str) -> dict[str, prepare.Examples]:
    folder = Path(setting.folder) / "toy-data" if setting.toy else Path(setting.data)
    if setting.toy:
        list(prepare.prepare((name,), folder, 0.02))
    try:
        return prepare.load_splits(folder, name)
    except FileNotFoundError as error:
        raise NotHereError(str(error)) from error


def resumed(setting: Setting, name: str) -> list[Table]:
    """Two slices of two steps each end where one of four does."""
    shutil.rmtree(Path(setting.folder) / "learned" / name, ignore_errors=True)
    (first,), (second,) = (one_slice(setting, name, most_steps=2)[0].rows for _ in range(2))
    assert (first["step"], second["step"]) == (2, 4), (first, second)
    return []


def checks(setting: Setting) -> Iterator[Check]:
    if setting.toy:
        for name in ("compositional_table_lookup_ndr", "flip_flop_tlb"):
            yield Check(f"two slices of {name}", functools.partial(resumed, setting, name))
        return
    for name in prepare.RECIPES:
        yield Check(f"a slice of {name}", functools.partial(one_slice, setting, name))
