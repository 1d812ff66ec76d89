"""Assisted decoding: which models can check the tokens that an assistant guesses, and which can guess."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..config.exit_criteria import check_whole
from ..config.fields import shown

# options of `generate` by which tokens are guessed first, and those that are wrong taken back
ASSISTED = ("assistant_model", "assistant_early_exit", "prompt_lookup_num_tokens")


def check_assistance(model, chosen: dict, prompts: object) -> None:
    """Check the options of a call of `generate` for assisted decoding.

    Args:
        model: the language model.
        chosen: options of the call.
        prompts: ids (B, S), or None.

    Raises:
        ValueError: the model or the assistant cannot take tokens back, there are several prompts, or an option is none.
    """
    for name in ASSISTED:
        value = chosen.get(name)
        if value is None:
            continue
        said = f"{name} is {type(value).__name__ if isinstance(value, torch.nn.Module) else shown(value)}"
        if model._is_stateful:
            raise ValueError(
                f"{said}, but assisted generation is not supported with stateful models: guessed tokens that are wrong "
                "have to be taken back, which a cache of constant size cannot; leave it out, or use an architecture "
                "whose cache grows, such as gut"
            )
        if isinstance(prompts, torch.Tensor) and prompts.dim() == 2 and prompts.shape[0] > 1:
            raise ValueError(f"{said}, but there are {prompts.shape[0]} prompts: pass them one by one, or leave it out")
        if name == "assistant_model":
            check_assistant(value, said)
        elif name == "assistant_early_exit":
            check_early_exit(model, value, chosen.get("max_depth"), said)


def check_assistant(assistant: object, said: str) -> None:
    """Raise a ValueError unless an assistant is a language model that can take tokens back."""
    if not hasattr(assistant, "generate") or not hasattr(assistant, "config"):
        raise ValueError(f"{said}: pass a language model with the same tokenizer")
    if getattr(assistant, "_is_stateful", False):
        raise ValueError(
            f"{said}: its cache is of constant size, so it cannot take back what it guessed wrong; pass an assistant "
            "whose cache grows"
        )


def check_early_exit(model, steps: object, max_depth: object, said: str) -> None:
    """Raise a ValueError unless a model may guess with so many of its own steps, at most those of the call."""
    if not model.config.capabilities.shared_block:
        raise ValueError(f"{said}: layers of this model are not shared, its depth is fixed; pass an assistant_model")
    check_whole(max_depth, "max_depth")
    # a source is encoded with all steps in any case
    writer = model.model.decoder if model.config.is_encoder_decoder else model.model
    most, limit = (writer.config.num_hidden_layers, "") if max_depth is None else (max_depth, ", which is max_depth")
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    if not whole or not 1 <= steps <= most:
        raise ValueError(f"{said}: pass a whole number of steps from 1 to {most}{limit}")


@contextmanager
def depth_restored(config) -> Iterator[None]:
    """Restore the depth, which transformers changes while a model guesses with few steps, also after an error."""
    depth = config.num_hidden_layers
    try:
        yield
    finally:
        config.num_hidden_layers = depth
