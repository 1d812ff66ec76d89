"""Checks of a model's inputs that would otherwise surface as a wrong answer or an obscure index error."""

import torch


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    vocab_size: int,
) -> torch.Tensor:
    """Validate and return the (B, S) bool mask of tokens, all True if `attention_mask` is None.

    Raises:
        ValueError: neither or both inputs, a mask of another shape, a row of padding only, an id out of range.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of `input_ids` and `inputs_embeds`")
    reference = inputs_embeds if input_ids is None else input_ids
    shape = reference.shape[:2]
    if input_ids is not None and input_ids.dim() != 2:
        raise ValueError(f"`input_ids` has shape {tuple(input_ids.shape)}: expected (batch, tokens)")
    if attention_mask is None:
        mask = torch.ones(shape, dtype=torch.bool, device=reference.device)
    elif attention_mask.shape != shape:
        raise ValueError(
            f"`attention_mask` has shape {tuple(attention_mask.shape)} but the inputs have {tuple(shape)}: "
            "pass one 0 or 1 per token"
        )
    else:
        mask = attention_mask.bool()
    if torch.compiler.is_compiling():
        return mask
    if 0 in shape:
        raise ValueError(f"the inputs have shape {tuple(shape)}: pass at least one row and one token")
    out_of_range = mask.new_zeros(())
    if input_ids is not None:
        out_of_range = ((input_ids < 0) | (input_ids >= vocab_size)).any()
    # one transfer for both checks
    padding_only, out_of_range = torch.stack(((~mask).all(-1).any(), out_of_range)).tolist()
    if padding_only:
        row = int((~mask).all(-1).nonzero()[0])
        raise ValueError(f"`attention_mask` row {row} is all padding: drop the row or give it a token")
    if out_of_range:
        raise ValueError(
            f"`input_ids` holds ids from {int(input_ids.min())} to {int(input_ids.max())} but `config.vocab_size` is "
            f"{vocab_size}: was the text encoded with another model's tokenizer?"
        )
    return mask
