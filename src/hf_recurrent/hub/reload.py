"""Does a staged checkpoint give a stranger what it gave its maker?"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..registry import FAMILIES
from . import clean_load
from .errors import PublishError
from .staging import read_config

if TYPE_CHECKING:
    import torch

ROWS, LENGTH = 3, 24
TIMEOUT = 600  # seconds


def check_reload(source: Path, staged: Path) -> None:
    """Compare the model in `source`, loaded by this package, with `staged`, loaded in a process without it.

    Every output tensor must be equal bit for bit on a padded batch of random tokens.

    Raises:
        PublishError: `staged` does not load there, or answers differently.
    """
    import torch
    from safetensors.torch import load_file, save_file

    config = read_config(source)
    expected, inputs = run(source, config)
    with tempfile.TemporaryDirectory() as exchange:
        save_file(inputs | {"num_threads": torch.tensor(torch.get_num_threads())}, f"{exchange}/inputs.safetensors")
        # a home of its own: code and files of an earlier version must not come from a cache
        private = {"HF_HOME": f"{exchange}/home", "HF_HUB_OFFLINE": "1"}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
        done = subprocess.run(
            [sys.executable, "-I", clean_load.__file__, str(staged.resolve()), exchange],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=inherited | private,
            check=False,
            cwd=exchange,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise PublishError(f"{source} does not load without this package: {reason}")
        found = load_file(f"{exchange}/outputs.safetensors")
    different = [name for name in expected if name not in found or not torch.equal(expected[name], found[name])]
    if different or expected.keys() != found.keys():
        names = ", ".join(different or sorted(found.keys() ^ expected.keys()))
        raise PublishError(f"{source} gives other results without this package: {names} differ")


def run(folder: Path, config: dict) -> tuple[dict[str, "torch.Tensor"], dict[str, "torch.Tensor"]]:
    """Outputs and inputs of the checkpoint in `folder`, loaded by this package."""
    import torch

    family = FAMILIES[config["model_type"]]
    (name,) = config["architectures"]
    auto_class = next(auto for auto, suffix in family.heads.items() if family.prefix + suffix == name)
    model, report = family.model_class(auto_class).from_pretrained(folder, output_loading_info=True)
    for problem, keys in report.items():
        if keys:
            raise PublishError(
                f"{folder}: the weights do not fit {name}: {problem.replace('_', ' ')} {sorted(keys)[:5]}"
            )
    inputs = make_inputs(model.config)
    with torch.no_grad():
        outputs = {key: value for key, value in model.eval()(**inputs).items() if isinstance(value, torch.Tensor)}
    return outputs, inputs


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
