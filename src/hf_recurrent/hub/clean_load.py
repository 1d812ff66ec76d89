"""Runs in a process of its own, without this package: what a stranger gets from a checkpoint folder.

    python -I clean_load.py FOLDER EXCHANGE

Loads FOLDER by its own code, with the Auto class that `auto_map` gives its architecture, and writes the output tensors
for EXCHANGE/inputs.safetensors to EXCHANGE/outputs.safetensors.
"""

import importlib.abc
import json
import sys
from pathlib import Path

PACKAGE = "hf_recurrent"


class Absent(importlib.abc.MetaPathFinder):
    """Makes the package look as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def outputs(model, inputs: dict) -> dict:
    """The output tensors of a call of `model`."""
    import torch

    with torch.no_grad():
        found = model.eval()(**inputs)
    return {name: value.contiguous() for name, value in found.items() if isinstance(value, torch.Tensor)}


def main(folder: str, exchange: str) -> None:
    sys.meta_path.insert(0, Absent())
    import transformers
    from safetensors.torch import load_file, save_file

    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    (saved,) = config["architectures"]
    auto_class = next(name for name, place in config["auto_map"].items() if place.rpartition(".")[2] == saved)
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
    if (Path(folder) / "tokenizer_config.json").is_file():
        # or transformers asks on the terminal whether the config's code may run
        transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    save_file(outputs(model, load_file(Path(exchange) / "inputs.safetensors")), Path(exchange) / "outputs.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
