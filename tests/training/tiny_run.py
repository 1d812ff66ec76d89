"""Runs of seconds, where the scripts and the recipes are, and how runs are killed and looked at."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from hf_recurrent.hub import lint_card, read_results
from hf_recurrent.recipes import FOLDER
from hf_recurrent.training.documents import DocumentRun
from hf_recurrent.training.run import run
from hf_recurrent.training.trainer import RecurrentTrainer
from support.own_data import flags

ROOT = Path(__file__).parents[2]
DOCUMENT_RECIPES = sorted(FOLDER.rglob("long_documents_*.yaml"))
SEQ2SEQ_RECIPES = sorted(
    path
    for benchmark in ("logical_inference_translation", "cfq", "wmt14_en_de")
    for path in FOLDER.rglob(f"{benchmark}_*.yaml")
)
# those that begin with a checkpoint
GLUE_RECIPES = sorted(FOLDER.glob("glue/*.yaml"))
RECIPES = sorted({*FOLDER.rglob("*.yaml")} - {*DOCUMENT_RECIPES, *SEQ2SEQ_RECIPES, *GLUE_RECIPES})
# whose steps are learned, for one state or for each token
GLOBAL, TOKEN = ({"halting": kind, "depth_objective": "mixture"} for kind in ("global", "token"))
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
QUIET = {"use_cpu": True, "disable_tqdm": True}
# evaluations and checkpoints on the way
CHOSEN = {"eval_strategy": "steps", "save_strategy": "steps", "load_best_model_at_end": True}
# with dropout and halting that moves
TINY = {
    **QUIET,
    **CHOSEN,
    "model_type": "gut",
    "config": {**SIZES, **GLOBAL},
    "benchmark": "listops",
    "benchmark_params": {"num_train": 64, "num_validation": 16, "num_test": 24, "max_depth": 3},
    "learning_rate": 0.05,
    "lr_schedule": "rootwarmup",
    "warmup_steps": 4,
    "ponder_warmup_steps": 6,
    "per_device_train_batch_size": 8,
    "max_steps": 12,
    "eval_steps": 4,
    "save_steps": 4,
    "logging_steps": 2,
    "metric_for_best_model": "accuracy",
}


def write_recipe(path: Path, recipe: dict[str, Any]) -> str:
    """Write a recipe without the keys that are None -> its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({name: value for name, value in recipe.items() if value is not None}))
    return str(path)


def train(folder: Path, recipe: dict[str, Any], task: str | None = None, **changes: Any) -> Path:
    """Run a recipe with changes, of which None removes a key -> the folder, which can be published."""
    path = write_recipe(folder.with_name(f"{folder.name}.yaml"), {**recipe, **changes})
    run([path, *flags({"output_dir": folder})], task)
    lint_card(folder)
    # nobody else has the folders of this machine
    assert str(folder.parent) not in (folder / "README.md").read_text() + (folder / "recipe.yaml").read_text()
    return folder


def weights(folder: Path) -> dict[str, Any]:
    return load_file(folder / "model.safetensors")


def table_of(folder: Path, split: str) -> dict[str, Any]:
    return tables_of(folder)[split]


def tables_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The tables of splits that a run has left."""
    return read_results(folder)["splits"]


def predictions_of(folder: Path, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions" / f"{split}.jsonl").read_text().splitlines()]


def json_of(path: Path) -> Any:
    return json.loads(path.read_text())


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


@contextmanager
def killed(place: str | None = None, step: int | None = None) -> Iterator[None]:
    """Runs within are killed: at `place`, or before they take an optimiser step after so many."""

    def dies(*args: Any, **kwargs: Any) -> None:
        raise Killed

    training, documents = RecurrentTrainer.training_step, DocumentRun.take_step
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        if place is not None:
            patch.setattr(place, dies)
        else:
            patch.setattr(
                *(RecurrentTrainer, "training_step"),
                lambda self, *args: dies() if self.state.global_step == step else training(self, *args),
            )
            patch.setattr(
                *(DocumentRun, "take_step"),
                lambda self: dies() if self.progress.steps == step else documents(self),
            )
        yield
