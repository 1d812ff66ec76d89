"""Attention between normalised queries and keys, with a learned scale for each head.

Shapes: B sequences, Q queries, K keys, H heads, D head dim, W tokens of a window.
"""

from functools import partial

import torch
from torch import nn

from ..ops.attention import attention_function
from ..ops.flex_attention import FlexMask, PositionScores, is_flex
from ..ops.initialization import LearnedTensor, initialized_linear, truncated_normal
from ..ops.layers import at_least_float32, dropout

# added to a sum of squares before the root
NORM_EPS = 1e-6

unbiased_linear = partial(initialized_linear, initializer=truncated_normal, bias=False)


def window_bias(by_distance: torch.Tensor, num_queries: int) -> tuple[torch.Tensor]:
    """Bias of the scores of Q successive queries against W keys before them and Q of their own, -inf at masked ones.

    Args:
        by_distance: (H, W) bias of keys at distance 1, 2, ... W.

    Returns:
        (1, H, Q, W + Q): query i attends to the W keys from i on.
    """
    heads, width = by_distance.shape
    masked = by_distance.new_full((heads, num_queries + 1), -torch.inf)
    row = torch.cat((by_distance.flip(-1), masked), dim=-1)
    num_keys = width + num_queries
    # reading rows of one number more as rows of W + Q shifts each of them one further to the right
    skewed = row[:, None].expand(-1, num_queries, -1).reshape(heads, -1)[:, : num_queries * num_keys]
    return (skewed.view(1, heads, num_queries, num_keys),)


def window_scores(by_distance: torch.Tensor, num_queries: int) -> tuple[FlexMask, PositionScores]:
    """`window_bias` as flex attention takes it: a mask, and the bias of scores, at masked keys any."""
    width = by_distance.shape[1]
    query = torch.arange(num_queries, device=by_distance.device)[:, None]
    key = torch.arange(width + num_queries, device=by_distance.device)

    def bias(sequence: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return by_distance[head, (query + width - 1 - key).clamp(0, width - 1)]

    return FlexMask(((key >= query) & (key < query + width))[None, None]), bias


def scaled_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, for queries that are scaled: (B, H, Q, D) x (B, H, K, D) -> (B, Q, H, D), (B, H, Q, K).

    The dropout mask of a head is shared by all sequences and windows, as in the reference implementation.
    """
    scores = torch.matmul(query, key.transpose(-1, -2))
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32 if scores.dtype.itemsize < 4 else None)
    weights = weights.to(query.dtype)
    if kwargs["dropout"] > 0.0:
        weights = weights * dropout(weights.new_ones(weights.shape[1:]), kwargs["dropout"], True)
    return torch.matmul(weights, value).transpose(1, 2), weights


class ScaledAttention(nn.Module):
    """Dispatch to the configured implementation; scores are the products of keys and of scaled queries."""

    is_causal = False

    def __init__(self, config, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim

    def new_scales(self) -> LearnedTensor:
        """Learned factors of scores, one for each head."""
        return LearnedTensor(self.config.num_attention_heads, value=self.config.attention_scale_init)

    def factors(self, scales: LearnedTensor) -> torch.Tensor:
        """-> (H,)."""
        return scales() if self.config.attention_scale == "signed" else scales().abs()

    def heads(self, projected: torch.Tensor) -> torch.Tensor:
        """(..., H * D) -> (..., H, D)."""
        return projected.unflatten(-1, (-1, self.head_dim))

    def unit(self, projection: nn.Module, states: torch.Tensor, scales: LearnedTensor | None = None) -> torch.Tensor:
        """Projected heads (..., H, D) of length one: queries, with `scales` scaled ones, or keys of states (..., E)."""
        heads = self.heads(projection(states))
        precise = at_least_float32(heads)
        unit = (precise * torch.rsqrt(precise.square().sum(-1, keepdim=True) + NORM_EPS)).to(heads.dtype)
        return unit if scales is None else unit * self.factors(scales)[:, None].to(unit.dtype)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | FlexMask | None = None,
        bias: PositionScores | None = None,
        dropout: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(B, Q, H, D), (B, K, H, D), bias of scores (1 or B, H, Q, K) -> (B, Q, H, D), weights (B, H, Q, K).

        The bias is `mask`, if it is not of bools; flex attention takes a mask and `bias`.
        """
        p = dropout if self.training else 0.0
        attention = attention_function(self.config, scaled_attention_forward)
        if p > 0.0 and query.device.type == "cpu" and not is_flex(self.config):
            # on a CPU the kernels write attention out, too, and draw a number for every weight
            attention = scaled_attention_forward
        # keys may be cached from a call in another precision
        key, value = key.to(query.dtype), value.to(query.dtype)
        if isinstance(mask, torch.Tensor) and mask.is_floating_point():
            mask = mask.to(query.dtype)
        inputs = (states.transpose(1, 2) for states in (query, key, value))
        return attention(self, *inputs, mask, scaling=1.0, is_causal=False, dropout=p, bias=bias)
