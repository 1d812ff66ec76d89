"""Assisted decoding: a language model that guesses for another one, or for itself with fewer steps.

Shapes: B sequences, S tokens.
"""

import torch

from ..config.fields import check_whole


def check_guessing(model, name: str, value: object, said: str, max_depth: object) -> None:
    """Raise a ValueError unless an option of assisted decoding has a value that works; `said` begins its message."""
    if name == "assistant_model":
        if not hasattr(value, "generate") or not hasattr(value, "config"):
            raise ValueError(f"{said}: pass a language model with the same tokenizer")
        if getattr(value, "_is_stateful", False):
            raise ValueError(
                f"{said}: its cache is of constant size, so it cannot take back what it guessed wrong; pass an "
                "assistant whose cache grows"
            )
    if name == "assistant_early_exit":
        if not model.config.capabilities.shared_block:
            raise ValueError(
                f"{said}: layers of this model are not shared, its depth is fixed; pass an assistant_model"
            )
        check_whole(max_depth, "max_depth")
        # a source is encoded with all steps in any case
        writer = model.model.decoder if model.config.is_encoder_decoder else model.model
        most, limit = max_depth, ", which is max_depth"
        if max_depth is None:
            most, limit = writer.config.num_hidden_layers, ""
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= most:
            raise ValueError(f"{said}: pass a whole number of steps from 1 to {most}{limit}")


def assistant_arguments(model, kwargs: dict, prompts: torch.Tensor, chosen: dict) -> dict:
    """Arguments of `generate` for prompts (B, S) as a model reads those of a model that it guesses for.

    They have a mask, and no `position_ids` that are counted by the mask, as models count.
    """
    mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
    if mask is None and chosen.get("is_assistant"):
        # of all but the padding before a text: a token that is generated may be called as padding is
        pad = model.config.pad_token_id
        mask = ((prompts != (-1 if pad is None else pad)).cumsum(-1) > 0).long()
        kwargs = {**kwargs, "attention_mask": mask}
    mask = torch.ones_like(prompts) if mask is None else mask
    known = "position_ids" in model.model.model_arguments
    if known or not all(isinstance(each, torch.Tensor) and each.dim() == 2 for each in (positions, mask)):
        return kwargs
    fits = positions.shape in (mask.shape, (1, mask.shape[1]))
    if not fits or bool(((positions != mask.cumsum(-1) - 1) & mask.bool()).any()):
        return kwargs
    return {name: value for name, value in kwargs.items() if name != "position_ids"}
