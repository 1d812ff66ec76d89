"""The check before publishing: a staged checkpoint computes the same in a process without this package."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..registry import ARCHITECTURES
from ..utils import read_json
from . import clean_load
from .card import auto_class_of
from .checkpoint import load_whole

# of an output's largest value: sums may be taken in another order
TOLERANCE = 1e-5


def check_reload(source: Path, staged: Path) -> None:
    """Compare the model in `source`, loaded by this package, with `staged`, loaded in a process without it.

    On a padded batch of random tokens every output must be within `TOLERANCE` of its largest value.

    Raises:
        ValueError: one of them does not load, their outputs differ, or the tokenizer has tokens that the model has not.
    """
    config = read_json(source / "config.json")
    auto_class: Any = auto_class_of(config)
    model = load_whole(ARCHITECTURES[config["model_type"]].model_class(auto_class), source)
    ours, theirs = clean_load.outputs(model, auto_class), run_without_package(staged, auto_class)
    if wrong := [name for name in sorted(ours.keys() | theirs.keys()) if not same(ours.get(name), theirs.get(name))]:
        raise ValueError(
            f"{source} gives other results without this package, in {', '.join(wrong)}. Publish again from a new "
            "process; if they differ again, the code in the checkpoint is not what this package computes: report it"
        )


def same(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Whether an output is the same with this package and without it."""
    if ours is None or theirs is None or (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    # types of 16 bits cannot be as close
    share = max(TOLERANCE, 4 * torch.finfo(ours.dtype).eps) if ours.is_floating_point() else 0
    ours, theirs = ours.double(), theirs.double()
    return torch.allclose(ours, theirs, rtol=0, atol=share * float(ours.abs().max()))


def run_without_package(staged: Path, auto_class: str) -> dict[str, torch.Tensor]:
    """Outputs of `staged` in a process that has neither this package nor anything cached."""
    with tempfile.TemporaryDirectory() as place:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        environment |= {"HF_HOME": f"{place}/home", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-I", clean_load.__file__, str(staged.resolve()), auto_class, f"{place}/outputs"]
        # the standard input belongs to the next command
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, **pipes, env=environment, check=False, cwd=place)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"the checkpoint does not load without this package: {reason}")
        return load_file(f"{place}/outputs")
