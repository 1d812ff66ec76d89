"""Does a staged checkpoint give a stranger what it gave its maker?"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..metrics.serialize import write_json
from ..registry import ARCHITECTURES
from . import clean_load
from .card import read_card
from .checkpoint import load_whole, one_line
from .errors import PublishError
from .lint import CARD_FILE
from .staging import TOKENIZER_CONFIG, read_config
from .tasks import GENERATION, TRANSLATION, auto_class_of, task_of

if TYPE_CHECKING:
    import torch

ROWS, LENGTH = 3, 24
TIMEOUT = 600  # seconds


def check_reload(source: Path, staged: Path) -> None:
    """Compare the model in `source`, loaded by this package, with `staged`, loaded in a process without it.

    Every output tensor must be equal bit for bit on a padded batch of random tokens, a language model must go on with
    the same tokens after prompts of several lengths, an encoder-decoder model must write the same for sources of
    several lengths, and the tokenizer, if there is one, must give the same tokens for the card's example.

    Raises:
        PublishError: one of them does not load, or they differ.
    """
    import torch

    expected, inputs = run(source, read_config(source))
    example = example_of(staged)
    expected |= tokens(source, example, inputs.pop("vocab_size"))
    inputs["num_threads"] = torch.tensor(torch.get_num_threads())
    found = run_without_package(staged, inputs, example)
    different = [name for name in expected if name not in found or not torch.equal(expected[name], found[name])]
    if different or expected.keys() != found.keys():
        names = ", ".join(different or sorted(found.keys() ^ expected.keys()))
        raise PublishError(f"{source} gives other results without this package: {names} differ")


def run_without_package(
    staged: Path, inputs: dict[str, "torch.Tensor"], example: list[str]
) -> dict[str, "torch.Tensor"]:
    """What a process makes of `staged` that has neither this package nor anything cached."""
    from safetensors.torch import load_file, save_file

    with tempfile.TemporaryDirectory() as exchange:
        save_file(inputs, f"{exchange}/inputs.safetensors")
        write_json(f"{exchange}/example.json", example)
        private = {"HF_HOME": f"{exchange}/home", "HF_HUB_OFFLINE": "1"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        try:
            done = subprocess.run(
                [sys.executable, "-I", clean_load.__file__, str(staged.resolve()), exchange],
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


def example_of(staged: Path) -> list[str]:
    """The texts of the card's example; none where the card was not rendered from data."""
    if not (staged / CARD_FILE).is_file():
        return []
    example = read_card(staged).example
    return [text for text in (example.text, example.text_pair) if text is not None]


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
    ids = tokenizer(*example)["input_ids"]
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        raise PublishError(f"{source}: the tokenizer does not know all words of the card's example {example}")
    return {"token_ids": torch.tensor(ids)}


def run(folder: Path, config: dict) -> tuple[dict[str, "torch.Tensor"], dict[str, "torch.Tensor"]]:
    """Outputs and inputs of the checkpoint in `folder`, loaded by this package."""
    try:
        model = load_whole(ARCHITECTURES[config["model_type"]].model_class(auto_class_of(config)), folder).eval()
    except ValueError as error:
        raise PublishError(str(error)) from error
    inputs = make_inputs(model.config)
    if task_of(config) == GENERATION:
        inputs |= make_prompts(model.config)
    elif task_of(config) == TRANSLATION:
        sources = {clean_load.PROMPT + name: value.clone() for name, value in inputs.items()}
        # any tokens are a target
        inputs |= {"decoder_input_ids": inputs["input_ids"][:, : LENGTH // 2].contiguous(), **sources}
    return clean_load.answers(model, inputs), inputs | {"vocab_size": model.config.vocab_size}


def make_inputs(config) -> dict[str, "torch.Tensor"]:
    """A batch of random tokens, the same each time, whose rows are padded by 0, 1, ... tokens: (3, 24)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (ROWS, LENGTH), generator=generator)
    mask = (torch.arange(LENGTH) < LENGTH - torch.arange(ROWS)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "pair_encoding", "joint") == "siamese":
        inputs["token_type_ids"] = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(ROWS, LENGTH).contiguous()
    return inputs


def make_prompts(config) -> dict[str, "torch.Tensor"]:
    """Prompts of random tokens, padded by 0, 1, ... tokens on the left as generation wants it: (3, 24)."""
    inputs = make_inputs(config)
    return {clean_load.PROMPT + name: value.flip(1).contiguous() for name, value in inputs.items()}
