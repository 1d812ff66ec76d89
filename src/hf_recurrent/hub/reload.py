"""The check before publishing: a staged checkpoint computes the same in a process without this package."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import one_line, write_json
from ..registry import ARCHITECTURES
from . import clean_load
from .checkpoint import load_whole
from .errors import PublishError
from .results import read_results
from .staging import TOKENIZER_CONFIG, read_config
from .tasks import GENERATION, MULTIPLE_CHOICE, TRANSLATION, auto_class_of, task_for

if TYPE_CHECKING:
    import torch

ROWS, LENGTH = 3, 24
TIMEOUT = 600  # seconds
# of an output's largest value: sums may be taken in another order where a tensor lies elsewhere in memory
TOLERANCE = 1e-6


def check_reload(source: Path, staged: Path) -> None:
    """Compare the model in `source`, loaded by this package, with `staged`, loaded in a process without it.

    On a padded batch of random tokens every floating-point output must be within
    `TOLERANCE` of its largest value, and every other output the same; a language model must go on with the same tokens
    after prompts of several lengths, an encoder-decoder model must write the same for sources of several lengths, and
    the tokenizer, if there is one, must give the same tokens for the card's example.

    Raises:
        PublishError: one of them does not load, or they differ: what, and by how much.
    """
    import torch

    config = read_config(source)
    model = load_source(source, config)
    expected, inputs = run(model, config)
    results = read_results(staged)
    shown = [] if results is None else [results["example"][name] for name in ("text", "text_pair")]
    example = [text for text in shown if text is not None]
    expected |= tokens(source, example, model.config.vocab_size)
    inputs["num_threads"] = torch.tensor(torch.get_num_threads())
    problems = list(different_outputs(expected, run_without_package(staged, inputs, example)))
    if problems:
        raise PublishError(
            f"{source} gives other results without this package: {'; '.join(problems)}. Publish again from a new "
            "process; if they differ again, the code in the checkpoint is not what this package computes: report it"
        )


def different_outputs(expected: dict[str, "torch.Tensor"], found: dict[str, "torch.Tensor"]) -> Iterator[str]:
    """The outputs that are not the same, and by how much they differ."""
    import torch

    for name in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(name), found.get(name)
        if ours is None or theirs is None:
            yield f"{name} is given {'without' if ours is None else 'with'} the package only"
        elif (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            yield f"{name} is {theirs.dtype} {tuple(theirs.shape)} instead of {ours.dtype} {tuple(ours.shape)}"
        elif torch.equal(ours, theirs):
            continue
        elif not ours.is_floating_point() or not ours.isfinite().all() or not theirs.isfinite().all():
            yield f"{name} differs in {int((ours != theirs).sum())} of {ours.numel()} values"
        else:
            share = float((ours.double() - theirs.double()).abs().max() / ours.double().abs().max())
            # types of 16 bits cannot be as close
            allowed = max(TOLERANCE, 4 * torch.finfo(ours.dtype).eps)
            if not share <= allowed:
                yield f"{name} differs by {share:.1e} of its largest value (allowed: {allowed:.0e})"


def run_without_package(
    staged: Path, inputs: dict[str, "torch.Tensor"], example: list[str]
) -> dict[str, "torch.Tensor"]:
    """Outputs of `staged` in a process that has neither this package nor anything cached."""
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as exchange:
        save_file(inputs, f"{exchange}/inputs.safetensors")
        write_json(f"{exchange}/example.json", example)
        private = {"HF_HOME": f"{exchange}/home", "HF_HUB_OFFLINE": "1"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        try:
            done = subprocess.run(
                [sys.executable, "-I", clean_load.__file__, str(staged.resolve()), exchange],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                env=inherited | private,
                check=False,
                cwd=exchange,
            )
        except subprocess.TimeoutExpired as error:
            raise PublishError(f"{staged} did not load without this package within {TIMEOUT} seconds") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PublishError(f"the checkpoint does not load without this package: {reason}")
        return load_file(f"{exchange}/outputs.safetensors")


def tokens(source: Path, example: list[str], vocab_size: int) -> dict[str, "torch.Tensor"]:
    """The token ids of the example, if the checkpoint has a tokenizer."""
    if not (source / TOKENIZER_CONFIG).is_file():
        return {}
    import torch
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    # a damaged file makes the loader fail in whatever way it happens to
    except Exception as error:
        raise PublishError(f"the tokenizer of {source} does not load: {one_line(error)}") from error
    if len(tokenizer) > vocab_size:
        raise PublishError(f"{source}: the tokenizer has {len(tokenizer)} tokens, but the model knows {vocab_size}")
    if not example:
        return {}
    return {"token_ids": torch.tensor(tokenizer(*example)["input_ids"])}


def load_source(folder: Path, config: dict):
    """The model in `folder`, loaded by this package."""
    try:
        return load_whole(ARCHITECTURES[config["model_type"]].model_class(auto_class_of(config)), folder).eval()
    except ValueError as error:
        raise PublishError(str(error)) from error


def run(model, config: dict) -> tuple[dict[str, "torch.Tensor"], dict[str, "torch.Tensor"]]:
    """Outputs of a model, and the inputs that it was given."""
    import torch

    inputs, task = make_inputs(model.config), task_for(auto_class_of(config))
    if task == GENERATION:
        # generation wants the padding on the left
        inputs |= {clean_load.PROMPT + name: value.flip(1).contiguous() for name, value in inputs.items()}
    elif task == TRANSLATION:
        sources = {clean_load.PROMPT + name: value.clone() for name, value in inputs.items()}
        # any tokens are a target
        inputs |= {"decoder_input_ids": inputs["input_ids"][:, : LENGTH // 2].contiguous(), **sources}
    elif task == MULTIPLE_CHOICE:
        # each row with itself from the right as the other choice
        inputs = {name: torch.stack((value, value.flip(1)), dim=1) for name, value in inputs.items()}
    return clean_load.answers(model, inputs), inputs


def make_inputs(config) -> dict[str, "torch.Tensor"]:
    """A batch of random tokens, the same each time, whose rows are padded by 0, 1, ... tokens: (3, 24)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (ROWS, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < LENGTH - torch.arange(ROWS)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.capabilities.siamese or config.type_vocab_size > 1:
        inputs["token_type_ids"] = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(ROWS, LENGTH).contiguous()
    return inputs
