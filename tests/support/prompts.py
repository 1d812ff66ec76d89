"""Texts of `PromptBatcher`, beside those that `generate` makes of each prompt alone."""

import numpy as np
import torch

from hf_recurrent.inference import Generated, PromptBatcher

from .families import VOCAB_SIZE

LENGTHS = (3, 9, 1, 6, 12, 4, 7)
NEW_TOKENS = (5, 1, 8, 3, 6, 2, 4)


def make_prompts(model, lengths=LENGTHS, new_tokens=NEW_TOKENS, seed=0) -> list[dict]:
    generator = np.random.default_rng(seed)
    prompts = []
    for length, number in zip(lengths, new_tokens, strict=True):
        prompt = {"input_ids": generator.integers(4, VOCAB_SIZE, length), "max_new_tokens": number}
        if model.config.type_vocab_size > 0:
            prompt["token_type_ids"] = np.arange(length) % 2
        prompts.append(prompt)
    return prompts


def alone(model, prompt: dict, **options) -> tuple[list[int], list[int] | None]:
    """Tokens and steps of `generate` for one prompt."""
    number = prompt["max_new_tokens"]
    inputs = {name: torch.as_tensor(values)[None] for name, values in prompt.items() if name != "max_new_tokens"}
    output = model.generate(
        **inputs, max_new_tokens=number, do_sample=False, return_dict_in_generate=True, pad_token_id=0, **options
    )
    steps = output.get("ponder_steps")
    tokens = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    return tokens, None if steps is None else steps[0].tolist()


def assert_as_alone(model, prompts: list[dict], batch_size: int, **options) -> list[Generated]:
    """Also the steps; -> the texts."""
    texts = list(PromptBatcher(model, batch_size=batch_size, **options)(iter(prompts)))
    assert len(texts) == len(prompts)
    for text, prompt in zip(texts, prompts, strict=True):
        tokens, steps = alone(model, prompt, **options)
        assert text.token_ids.tolist() == tokens
        assert (None if text.ponder_steps is None else text.ponder_steps.tolist()) == steps
    return texts
