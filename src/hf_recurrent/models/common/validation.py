"""Checks of a model's inputs that would otherwise cause a wrong result or an obscure index error."""

import torch


def check_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    vocab_size: int,
    past_length: int | None = None,
) -> torch.Tensor:
    """Validate and return the bool mask of tokens, all True if `attention_mask` is None.

    It has the shape (B, S) of the inputs. With a cache of `past_length` columns P it may also have (B, P + S), and
    sequences of padding only.

    Raises:
        ValueError: neither or both inputs, a mask of another shape, a sequence of padding only, an id out of range.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("pass exactly one of `input_ids` and `inputs_embeds`")
    reference = inputs_embeds if input_ids is None else input_ids
    if input_ids is not None and input_ids.dim() != 2:
        raise ValueError(f"`input_ids` has shape {tuple(input_ids.shape)}: expected (batch, tokens)")
    shape = reference.shape[:2]
    all_columns = (shape[0], shape[1] + (past_length or 0))
    if attention_mask is None:
        mask = torch.ones(all_columns, dtype=torch.bool, device=reference.device)
    elif tuple(attention_mask.shape) not in (tuple(shape), all_columns):
        raise ValueError(
            f"`attention_mask` has shape {tuple(attention_mask.shape)} but the inputs have {tuple(shape)}"
            f"{f', after {past_length} columns in the cache' if past_length else ''}: pass one 0 or 1 per token"
        )
    else:
        mask = attention_mask.bool()
    if torch.compiler.is_compiling():
        return mask
    if 0 in shape:
        raise ValueError(f"the inputs have shape {tuple(shape)}: pass at least one sequence and one token")
    out_of_range = mask.new_zeros(())
    if input_ids is not None:
        out_of_range = ((input_ids < 0) | (input_ids >= vocab_size)).any()
    # one transfer for both checks
    padding_only, out_of_range = torch.stack(((~mask).all(-1).any(), out_of_range)).tolist()
    if padding_only and past_length is None:
        row = int((~mask).all(-1).nonzero()[0])
        raise ValueError(f"`attention_mask` row {row} is all padding: drop the row or give it a token")
    if out_of_range:
        raise ValueError(
            f"`input_ids` holds ids from {int(input_ids.min())} to {int(input_ids.max())} but `config.vocab_size` is "
            f"{vocab_size}: was the text encoded with another model's tokenizer?"
        )
    return mask


def has_gaps(mask: torch.Tensor) -> bool:
    """Whether any sequence of (B, S) has padding between its tokens."""
    beginnings = (mask[:, 1:] & ~mask[:, :-1]).sum(-1) + mask[:, 0]
    return bool((beginnings > 1).any())


def check_memory(
    states: torch.Tensor | None, mask: torch.Tensor | None, batch_size: int, width: int, cached: tuple | None
) -> torch.Tensor:
    """Check an encoder's states (B, S', E), or their `cached` keys and values -> the bool mask (B, S') of the source.

    Raises:
        ValueError: no states, states or a mask of another shape, states of another source than the cached one, or a
            source that is all padding.
    """
    if states is None and cached is None:
        raise ValueError("`encoder_hidden_states` is missing: this decoder reads an encoder, pass its final states")
    shape = tuple(states.shape[:2] if cached is None else cached[0].shape[:2])
    if shape[0] != batch_size or (states is not None and states.shape[-1] != width):
        raise ValueError(
            f"the encoder's states have {shape[0]} sequences"
            f"{'' if states is None else f' of width {states.shape[-1]}'}, but the target has {batch_size} of width "
            f"{width}"
        )
    if states is not None and states.shape[1] != shape[1]:
        raise ValueError(
            f"the encoder's states have {states.shape[1]} tokens but `past_key_values` was filled from a source of "
            f"{shape[1]}: start a new cache for another source"
        )
    if mask is None:
        device = states.device if cached is None else cached[0].device
        return torch.ones(shape, dtype=torch.bool, device=device)
    if tuple(mask.shape) != shape:
        raise ValueError(
            f"`encoder_attention_mask` has shape {tuple(mask.shape)} but the encoder's states have {shape}: pass one 0 "
            "or 1 per source token"
        )
    mask = mask.bool()
    if not torch.compiler.is_compiling() and bool((~mask).all(-1).any()):
        row = int((~mask).all(-1).nonzero()[0])
        raise ValueError(f"`encoder_attention_mask` row {row} is all padding: drop the row or give it a source")
    return mask


def check_not_nan(subject: str, tensor: torch.Tensor) -> None:
    """Raise a ValueError that names the tensor, such as "the states are", if it holds NaN."""
    if not torch.compiler.is_compiling() and tensor.isnan().any():
        raise ValueError(
            f"{subject} NaN: the weights or the inputs hold NaN or infinite values; check them (e.g. `all("
            "p.isfinite().all() for p in model.parameters())`) before running the model"
        )
