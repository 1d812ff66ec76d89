"""Attention between normalised queries and keys, with a learned scale for each head.

Shapes: B sequences, Q queries, K keys, H heads, D head dim, W tokens of a window.
"""

from typing import NamedTuple

import torch
from torch import nn

from ..ops.flex_attention import FlexMask, attention_function, is_flex
from ..ops.initialization import LearnedTensor
from ..ops.layers import dropout
from ..ops.positions import t5_buckets

# added to a sum of squares before the root
NORM_EPS = 1e-6


def l2_normalize(states: torch.Tensor) -> torch.Tensor:
    """Vectors of length one, in float32 at least: (..., D) -> (..., D)."""
    precise = states if states.dtype is torch.float64 else states.float()
    return (precise * torch.rsqrt(precise.square().sum(-1, keepdim=True) + NORM_EPS)).to(states.dtype)


def window_bias(by_distance: torch.Tensor) -> torch.Tensor:
    """Bias of the scores of a block's queries, -inf at masked keys.

    Args:
        by_distance: (H, W) bias of keys at distance 1, 2, ... W.

    Returns:
        (H, W, 2W): query p of the block attends to the previous block from p on, and to its own block before p.
    """
    heads, width = by_distance.shape
    row = torch.cat((by_distance.flip(-1), by_distance.new_full((heads, width + 1), -torch.inf)), dim=-1)
    # reading rows of 2W + 1 numbers as rows of 2W shifts each of them one further to the right
    skewed = row[:, None].expand(-1, width, -1).reshape(heads, -1)[:, : 2 * width * width]
    return skewed.view(heads, width, 2 * width)


class WindowScores(NamedTuple):
    """`window_bias` as flex attention takes it."""

    by_distance: torch.Tensor  # (H, W) bias of keys at distance 1, 2, ... W
    places: torch.Tensor  # (1 or B, 1, Q, 1) of the queries in their block

    def mask(self, num_keys: int) -> FlexMask:
        column = torch.arange(num_keys, device=self.places.device)
        return FlexMask((column >= self.places) & (column < self.places + self.by_distance.shape[1]))

    def bias(self, sequence: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """The bias of the scores at these indices, at masked keys any."""
        places, width = self.places[:, 0, :, 0], self.by_distance.shape[1]
        place = places[0, query] if places.shape[0] == 1 else places[sequence, query]
        return self.by_distance[head, (place + width - 1 - key).clamp(0, width - 1)]


def scaled_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    p: float = 0.0,
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
    if p > 0.0:
        weights = weights * dropout(weights.new_ones(weights.shape[1:]), p, True)
    return torch.matmul(weights, value).transpose(1, 2), weights


class HeadScales(LearnedTensor):
    """Learned factors of scores, one for each head."""

    def __init__(self, config):
        super().__init__(config.num_attention_heads, value=config.attention_scale_init)
        self.signed = config.attention_scale == "signed"

    def forward(self) -> torch.Tensor:
        return self.weight if self.signed else self.weight.abs()

    def scale_queries(self, query: torch.Tensor) -> torch.Tensor:
        """(B, Q, H, D) queries whose products with keys are the scores."""
        return query * self()[:, None].to(query.dtype)


class PositionBias(nn.Module):
    """T5's position biases of one layer (Raffel et al. 2020), for the distances of a window."""

    def __init__(self, config):
        super().__init__()
        self.window_size = config.window_size
        self.max_distance = config.relative_attention_max_distance
        num_buckets = config.relative_attention_num_buckets
        self.table = LearnedTensor(config.num_attention_heads, num_buckets, std=num_buckets**-0.5)

    def forward(self) -> torch.Tensor:
        """-> (H, W), of distances 1 to W."""
        table = self.table()
        distances = torch.arange(1, self.window_size + 1, device=table.device)
        return table[:, t5_buckets(distances, table.shape[1], self.max_distance)]


class ScaledAttention(nn.Module):
    """Dispatch to the configured implementation; scores are the products of keys and queries scaled by `HeadScales`."""

    is_causal = False

    def __init__(self, config, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim

    def heads(self, projected: torch.Tensor) -> torch.Tensor:
        """(..., H * D) -> (..., H, D)."""
        return projected.unflatten(-1, (-1, self.head_dim))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        bias: torch.Tensor | WindowScores | FlexMask | None = None,
        dropout: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(B, Q, H, D), (B, K, H, D), bias of scores (1 or B, H, Q, K) -> (B, Q, H, D), weights (B, H, Q, K).

        The bias of flex attention is that of a window, or a mask alone.
        """
        p = dropout if self.training else 0.0
        attention = attention_function(self.config, scaled_attention_forward)
        if p > 0.0 and query.device.type == "cpu" and not is_flex(self.config):
            # on a CPU the kernels write attention out, too, and draw a number for every weight
            attention = scaled_attention_forward
        # keys may be cached from a call in another precision
        key, value = key.to(query.dtype), value.to(query.dtype)
        options: dict = {"p": p} if attention is scaled_attention_forward else {"dropout": p}
        if isinstance(bias, WindowScores):
            bias, options["bias"] = bias.mask(key.shape[1]), bias.bias
        elif isinstance(bias, torch.Tensor):
            bias = bias.to(query.dtype)
        return attention(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            bias,
            scaling=1.0,
            is_causal=False,
            **options,
        )
