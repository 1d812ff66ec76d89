"""torch's flex attention: masks as block masks, position biases as functions of indices.

Shapes: B sequences, Q queries and K keys per sequence, H heads, D head dim.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from transformers.integrations.flex_attention import compile_friendly_flex_attention

# of devices whose kernels have a backward pass; a CPU's have none, and are compiled anew for sizes that halting changes
FUSED_DEVICES = ["cuda", "xpu"]

# index tensors of sequence, head, query and key, which broadcast -> numbers that are added to scores
PositionScores = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class FlexMask:
    """A mask of the keys that queries may attend to, (B or 1, 1, Q or 1, K) bool.

    Its block mask is made at the first attention and serves all later ones, of other steps and layers.
    """

    def __init__(self, visible: torch.Tensor):
        self.visible = visible
        self.made: dict[tuple[int, int], BlockMask] = {}

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "FlexMask":
        """The mask that a function makes of this one."""
        changed = function(self.visible)
        return self if changed is self.visible else FlexMask(changed)

    def block_mask(self, batch_size: int, num_queries: int) -> BlockMask:
        """The block mask of B sequences with Q queries."""
        size = batch_size, num_queries
        if size not in self.made:
            num_keys = self.visible.shape[-1]
            visible = self.visible.expand(batch_size, 1, num_queries, num_keys)

            def is_visible(sequence, head, query, key):
                return visible[sequence, 0, query, key]

            device = self.visible.device
            self.made[size] = create_block_mask(is_visible, batch_size, None, num_queries, num_keys, device=device)
        return self.made[size]


def tensor_scores(biases: torch.Tensor) -> PositionScores:
    """The entries of biases (B or 1, H or 1, Q, K)."""

    def entries(sequence, head, query, key):
        first, second = (index if size > 1 else 0 for index, size in zip((sequence, head), biases.shape, strict=False))
        return biases[first, second, query, key]

    return entries


def is_flex(config) -> bool:
    return config._attn_implementation == "flex_attention"


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: FlexMask | None,
    scaling: float,
    bias: PositionScores | None,
    training: bool,
) -> torch.Tensor:
    """Attention by the kernel that torch compiles: (B, H, Q, D) x (B, H, K, D) -> (B, H, Q, D)."""
    add_bias = None
    if bias is not None:

        def add_bias(score, sequence, head, query_index, key_index):
            return score + bias(sequence, head, query_index, key_index)

    blocks = None if mask is None else mask.block_mask(query.shape[0], query.shape[2])
    return compile_friendly_flex_attention(
        query, key, value, training=training, score_mod=add_bias, block_mask=blocks, scale=scaling
    )


def written_out_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: FlexMask | None,
    scaling: float,
    bias: PositionScores | None,
) -> torch.Tensor:
    """`fused_attention` by a kernel that takes masks and biases as tensors."""
    scores = None if mask is None else mask.visible
    if bias is not None:
        sequence, head, row, column = (
            torch.arange(size, device=query.device) for size in (*query.shape[:3], key.shape[2])
        )
        scores = bias(sequence[:, None, None, None], head[:, None, None], row[:, None], column).to(query.dtype)
        if mask is not None:
            scores = scores.masked_fill(~mask.visible, -torch.inf)
    return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=scores, scale=scaling)


def flex_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: FlexMask | torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    bias: PositionScores | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Attention by flex attention, on a CPU written out: (B, H, Q, D) x (B, H, K, D) -> (B, Q, H, D) and None.

    Args:
        attention_mask: a mask; or biases of scores (B or 1, H or 1, Q, K), -inf at masked keys, instead of `bias`.

    Raises:
        ValueError: dropout of attention weights, which the kernel has not.
    """
    if dropout > 0.0:
        raise ValueError(
            f"attention_dropout is {dropout} but flex attention has no dropout: train with attention_dropout=0.0 in "
            "the config, or with attn_implementation='sdpa'"
        )
    if isinstance(attention_mask, torch.Tensor):
        attention_mask, bias = None, tensor_scores(attention_mask)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    if query.device.type in FUSED_DEVICES:
        attended = fused_attention(query, key, value, attention_mask, scaling, bias, module.training)
    else:
        attended = written_out_attention(query, key, value, attention_mask, scaling, bias)
    return attended.transpose(1, 2).contiguous(), None
