"""Runs in a process of its own, without this package: what a stranger gets from a checkpoint folder.

    python -I clean_load.py FOLDER EXCHANGE

Reads EXCHANGE/inputs.safetensors and the texts in EXCHANGE/example.json, loads FOLDER by its own code with the Auto
class that `auto_map` gives its architecture, and writes the output tensors, the texts' tokens and what a language model
makes of the inputs whose names start with "prompt." to EXCHANGE/outputs.safetensors.
"""

import importlib.abc
import json
import sys
from pathlib import Path

PACKAGE = "hf_recurrent"
PROMPT = "prompt."
# four tokens, whatever they are and whatever the checkpoint's own settings for generation say
GREEDY = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "num_beams": 1}


class Absent(importlib.abc.MetaPathFinder):
    """Makes the package look as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def auto_class(config: dict) -> str:
    """The Auto class that loads the architecture which was saved."""
    (architecture,) = config["architectures"]
    return next(name for name, place in config["auto_map"].items() if place.rpartition(".")[2] == architecture)


def answers(model, inputs: dict) -> dict:
    """The output tensors of a call of `model`, and the tokens with which a language model goes on."""
    import torch

    prompt = {name.removeprefix(PROMPT): value for name, value in inputs.items() if name.startswith(PROMPT)}
    rest = {name: value for name, value in inputs.items() if not name.startswith(PROMPT)}
    with torch.no_grad():
        outputs = model(**rest)
        found = {name: value.contiguous() for name, value in outputs.items() if isinstance(value, torch.Tensor)}
        if prompt:
            use_cache = model.config.capabilities.resumable
            found["generated"] = model.generate(**prompt, **GREEDY, use_cache=use_cache).contiguous()
    return found


def main(folder: str, exchange: str) -> None:
    sys.meta_path.insert(0, Absent())
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    inputs = load_file(Path(exchange) / "inputs.safetensors")
    torch.set_num_threads(int(inputs.pop("num_threads")))
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    loader = getattr(transformers, auto_class(config))
    model = loader.from_pretrained(folder, trust_remote_code=True).eval()
    found = answers(model, inputs)
    example = json.loads((Path(exchange) / "example.json").read_text(encoding="utf-8"))
    if (Path(folder) / "tokenizer_config.json").is_file():
        # or transformers asks on the terminal whether the config's code may run
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        if example:
            found["token_ids"] = torch.tensor(tokenizer(*example)["input_ids"])
    save_file(found, Path(exchange) / "outputs.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
