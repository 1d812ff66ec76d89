"""Masks of the keys that queries may attend to, in the form that the attention implementation takes.

Shapes: B sequences, S tokens, P cached tokens, R rows, W columns, Q queries, K keys.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_causal_mask,
    create_sliding_window_causal_mask,
    eager_mask,
)

from ..config.cache_name import CACHE_NAME
from .flex_attention import FlexMask, is_flex

# of the keys that queries may attend to, in the form that the implementation takes
Mask = torch.Tensor | FlexMask


def mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`function` of the tensors of a mask, or of nested tuples, in the same form; None stays."""
    if value is None:
        return None
    if isinstance(value, tuple):
        found = (mapped(each, function) for each in value)
        return type(value)(*found) if hasattr(value, "_fields") else tuple(found)
    return value.map(function) if isinstance(value, FlexMask) else function(value)


def rows_of(value: Any, rows: torch.Tensor) -> Any:
    """The `rows` (n,) of tensors (B, ...), or all of (1, ...) that they share, see `mapped`."""
    return mapped(value, lambda tensor: tensor if tensor.shape[0] == 1 else tensor.index_select(0, rows))


def part_of_mask(mask: Mask | None, rows: torch.Tensor, columns: slice) -> Mask | None:
    """The mask of some `rows` (n,), in some columns of its keys, and of its queries if it has several."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        several = tensor.dim() == 4 and tensor.shape[2] > 1
        return (tensor[:, :, columns] if several else tensor)[..., columns]

    return mapped(rows_of(mask, rows), part)


def key_mask(config, states: torch.Tensor, mask: torch.Tensor) -> Mask | None:
    """The implementation's padding mask over keys, for any number of queries: (R, W, E), (R, W) -> (R, 1, 1, W)."""
    if is_flex(config):
        return FlexMask(mask[:, None, None].bool())
    return create_bidirectional_mask(
        config=config, inputs_embeds=states[:, :1], encoder_hidden_states=states, attention_mask=mask
    )


def visible_keys(
    config, states: torch.Tensor, mask: torch.Tensor | None, cache: Cache | None = None, window: int | None = None
) -> Mask | None:
    """The implementation's mask of the keys that each token may attend to.

    Args:
        states: (B, S, E), of the new tokens.
        mask: (B, P + S) bool, also of the P tokens in the cache, which only causal models have; None, only for them
            and without a cache: padding comes after every token.
        window: so many keys, its own included, that a token of a causal model sees at most; the config's
            `sliding_window`.
    """
    if not config.is_causal:
        return key_mask(config, states, mask)
    if cache is not None and cache.in_graph:
        return cache.visible_keys(config, states, mask, window)
    if is_flex(config):
        num_queries = states.shape[1]
        num_keys = num_queries if mask is None else mask.shape[1]
        columns = causal_columns(num_queries, num_keys, states.device)
        if window is not None:
            columns = columns & ~causal_columns(num_queries, num_keys, states.device, shift=window)
        return FlexMask(columns if mask is None else columns & mask[:, None, None])
    create_mask = create_causal_mask if window is None else create_sliding_window_causal_mask
    return create_mask(config=config, inputs_embeds=states, attention_mask=mask, **{CACHE_NAME: cache})


def is_flash(config) -> bool:
    return "flash" in config._attn_implementation


def causal_columns(num_queries: int, num_keys: int, device: torch.device, shift: int = 0) -> torch.Tensor:
    """Which columns the tokens of the last ones see, their own and those before: (1, 1, Q, K) bool.

    With a shift, those at least so far before theirs.
    """
    column = torch.arange(num_keys, device=device)
    return (column <= column[num_keys - num_queries :, None] - shift)[None, None]


def aligned_mask(config, mask: torch.Tensor) -> Mask | None:
    """The implementation's mask of keys of rows (R, W) without a cache, which begin with their tokens."""
    if not config.is_causal or is_flash(config):
        return valid_keys(config, mask)
    # causal tokens see no padding after them
    if config._attn_implementation == "sdpa":
        return None
    return as_implemented(config, causal_columns(mask.shape[1], mask.shape[1], mask.device), torch.float32)


def valid_keys(config, mask: torch.Tensor) -> Mask | None:
    """The implementation's padding mask over the keys of rows (R, W), for any number of queries."""
    if config._attn_implementation in ("sdpa", "eager", "flex_attention"):
        # transformers' helpers take as long as the attention of a small model
        return None if bool(mask.all()) else as_implemented(config, mask[:, None, None], torch.float32)
    shape_only = mask.new_empty((), dtype=torch.float32).expand(*mask.shape, 1)
    return key_mask(config, shape_only, mask)


def as_implemented(config, visible: torch.Tensor, dtype: torch.dtype) -> Mask:
    """A bool mask (B, 1, Q, K) of the visible keys, in the form that the implementation takes."""
    if is_flex(config):
        return FlexMask(visible)
    name = config._attn_implementation
    # an implementation that a user has registered may take the form of "eager", too
    if name == "sdpa" or (name != "eager" and ALL_MASK_ATTENTION_FUNCTIONS.get(name) is not eager_mask):
        return visible
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)
