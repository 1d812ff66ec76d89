"""Runs in a process of its own, without this package: what a stranger gets from a checkpoint folder.

    python -I clean_load.py FOLDER AUTO_CLASS FILE

Loads FOLDER by its own code, and writes the output tensors for a fixed batch to FILE.
"""

import sys
from pathlib import Path


def outputs(model, auto_class: str) -> dict:
    """The output tensors for random tokens, the same each time, whose rows are padded by 0, 1 and 2 tokens: (3, 24)."""
    import torch

    rows, length = 3, 24
    ids = torch.randint(0, model.config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(0))
    places = torch.arange(length).expand(rows, length)
    inputs = {"input_ids": ids, "attention_mask": (places < length - torch.arange(rows)[:, None]).long()}
    if model.config.capabilities.siamese or model.config.type_vocab_size > 1:
        inputs["token_type_ids"] = (places >= length // 2).long()
    if auto_class == "AutoModelForSeq2SeqLM":
        # any tokens are a target
        inputs["decoder_input_ids"] = ids[:, : length // 2]
    elif auto_class == "AutoModelForMultipleChoice":
        # each row with itself from the right as the other choice
        inputs = {name: torch.stack((value, value.flip(1)), dim=1) for name, value in inputs.items()}
    with torch.no_grad():
        computed = model.eval()(**inputs)
    return {name: value.contiguous() for name, value in computed.items() if isinstance(value, torch.Tensor)}


def main(folder: str, auto_class: str, file: str) -> None:
    # as if the package were not installed
    sys.modules["hf_recurrent"] = None
    import transformers
    from safetensors.torch import save_file

    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
    if Path(folder, "tokenizer_config.json").is_file():
        # without trust, transformers asks on the terminal whether the config's code may run
        tokens = len(transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
        if tokens > model.config.vocab_size:
            sys.exit(f"the tokenizer has {tokens} tokens, but the model knows {model.config.vocab_size}")
    save_file(outputs(model, auto_class), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
