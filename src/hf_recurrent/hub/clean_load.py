"""Runs in a process of its own, without this package: what a stranger gets from a checkpoint folder.

    python -I clean_load.py FOLDER AUTO_CLASS EXCHANGE

Loads FOLDER by its own code, and writes the output tensors for EXCHANGE/inputs.safetensors to
EXCHANGE/outputs.safetensors.
"""

import sys
from pathlib import Path


def outputs(model, inputs: dict) -> dict:
    """The output tensors of a call of `model`."""
    import torch

    with torch.no_grad():
        computed = model.eval()(**inputs)
    return {name: value.contiguous() for name, value in computed.items() if isinstance(value, torch.Tensor)}


def main(folder: str, auto_class: str, exchange: str) -> None:
    # as if the package were not installed
    sys.modules["hf_recurrent"] = None
    import transformers
    from safetensors.torch import load_file, save_file

    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
    if Path(folder, "tokenizer_config.json").is_file():
        # without trust, transformers asks on the terminal whether the config's code may run
        tokens = len(transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
        if tokens > model.config.vocab_size:
            sys.exit(f"the tokenizer has {tokens} tokens, but the model knows {model.config.vocab_size}")
    save_file(outputs(model, load_file(f"{exchange}/inputs.safetensors")), f"{exchange}/outputs.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:])
