"""The check before publishing: a staged checkpoint computes the same in a process without this package."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import one_line
from ..registry import ARCHITECTURES
from . import clean_load
from .checkpoint import load_whole
from .errors import PublishError
from .staging import TOKENIZER_CONFIG, read_config
from .tasks import MULTIPLE_CHOICE, TRANSLATION, auto_class_of, task_for

if TYPE_CHECKING:
    import torch

ROWS, LENGTH = 3, 24
TIMEOUT = 600  # seconds
# of an output's largest value: sums may be taken in another order
TOLERANCE = 1e-5


def check_reload(source: Path, staged: Path) -> None:
    """Compare the model in `source`, loaded by this package, with `staged`, loaded in a process without it.

    On a padded batch of random tokens every floating-point output must be within `TOLERANCE` of its largest value, and
    every other output the same.

    Raises:
        PublishError: one of them does not load, their outputs differ, or the tokenizer has tokens that the model has
            not.
    """
    config = read_config(source)
    auto_class = auto_class_of(config)
    try:
        model = load_whole(ARCHITECTURES[config["model_type"]].model_class(auto_class), source)
    except ValueError as error:
        raise PublishError(str(error)) from error
    check_tokenizer(source, model.config.vocab_size)
    inputs = make_inputs(model.config, task_for(auto_class))
    expected, found = clean_load.outputs(model, inputs), run_without_package(staged, inputs)
    wrong = [name for name in sorted(expected.keys() | found.keys()) if not same(expected.get(name), found.get(name))]
    if wrong:
        raise PublishError(
            f"{source} gives other results without this package, in {', '.join(wrong)}. Publish again from a new "
            "process; if they differ again, the code in the checkpoint is not what this package computes: report it"
        )


def same(ours: "torch.Tensor | None", theirs: "torch.Tensor | None") -> bool:
    """Whether an output is the same with this package and without it."""
    import torch

    if ours is None or theirs is None or (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    # types of 16 bits cannot be as close
    share = max(TOLERANCE, 4 * torch.finfo(ours.dtype).eps)
    return torch.allclose(ours, theirs, rtol=0, atol=share * float(ours.abs().max()))


def run_without_package(staged: Path, inputs: dict[str, "torch.Tensor"]) -> dict[str, "torch.Tensor"]:
    """Outputs of `staged` in a process that has neither this package nor anything cached."""
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as exchange:
        save_file(inputs, f"{exchange}/inputs.safetensors")
        private = {"HF_HOME": f"{exchange}/home", "HF_HUB_OFFLINE": "1"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        command = [sys.executable, "-I", clean_load.__file__, str(staged.resolve()), exchange]
        # the standard input belongs to the next command
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        try:
            done = subprocess.run(command, **pipes, timeout=TIMEOUT, env=inherited | private, check=False, cwd=exchange)
        except subprocess.TimeoutExpired as error:
            raise PublishError(f"{staged} did not load without this package within {TIMEOUT} seconds") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PublishError(f"the checkpoint does not load without this package: {reason}")
        return load_file(f"{exchange}/outputs.safetensors")


def check_tokenizer(source: Path, vocab_size: int) -> None:
    """Raise a PublishError for a tokenizer that does not load, or has tokens that the model does not know."""
    if not (source / TOKENIZER_CONFIG).is_file():
        return
    from transformers import AutoTokenizer

    try:
        size = len(AutoTokenizer.from_pretrained(source))
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise PublishError(f"the tokenizer of {source} does not load: {one_line(error)}") from error
    if size > vocab_size:
        raise PublishError(f"{source}: the tokenizer has {size} tokens, but the model knows {vocab_size}")


def make_inputs(config, task: str | None) -> dict[str, "torch.Tensor"]:
    """A batch of random tokens, the same each time, whose rows are padded by 0, 1, ... tokens: (3, 24)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (ROWS, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < LENGTH - torch.arange(ROWS)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.capabilities.siamese or config.type_vocab_size > 1:
        inputs["token_type_ids"] = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(ROWS, LENGTH).contiguous()
    if task == TRANSLATION:
        # any tokens are a target
        inputs["decoder_input_ids"] = ids[:, : LENGTH // 2].contiguous()
    elif task == MULTIPLE_CHOICE:
        # each row with itself from the right as the other choice
        inputs = {name: torch.stack((value, value.flip(1)), dim=1) for name, value in inputs.items()}
    return inputs
