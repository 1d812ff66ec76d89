"""The pre-norm Transformer block that every depth-recurrent family iterates.

Shapes: E width; tensors are (B, S, E) in a padded context and (N, E) in a packed one.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import PackedContext, PaddedContext, SelfAttention
from .feed_forward import FeedForward, UpdateGate


class BlockOutput(NamedTuple):
    hidden_states: torch.Tensor
    attentions: torch.Tensor | None  # (B, H, S, S), eager attention only
    gate: torch.Tensor | None  # like hidden_states, gated blocks only
    key: torch.Tensor | None  # key and value buffers of a packed context
    value: torch.Tensor | None


class TransformerBlock(GradientCheckpointingLayer):
    """`a = x + Attention(LN x, LN source); y = a + FFN(LN a)`, optionally gated: `g y + (1 - g) x`.

    The gate (Eq. 9-11 of the dynamic-halt paper) carries over the block's raw input `x`, not the attention
    residual `a`. The two attention streams share one layer norm, as in the reference implementation.
    """

    def __init__(self, config, gated: bool = False, layer_idx: int = 0):
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = SelfAttention(config, layer_idx)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config.hidden_size, config.intermediate_size, config.dropout)
        self.gate = UpdateGate(config.hidden_size, config.gate_intermediate_size, config.dropout) if gated else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: PaddedContext | PackedContext,
        source: torch.Tensor | None = None,
    ) -> BlockOutput:
        """Args:
        hidden_states: the running state, (B, S, E) or packed (N, E).
        source: where keys and values come from, (B, S, E) or packed (M, E); `hidden_states` if None.
        """
        queries = self.attention_norm(hidden_states)
        source = queries if source is None else self.attention_norm(source)
        attended, weights, key, value = self.attention(queries, source, context)
        attended = hidden_states + self.dropout(attended)
        normed = self.feed_forward_norm(attended)
        updated = attended + self.feed_forward(normed)
        if self.gate is None:
            return BlockOutput(updated, weights, None, key, value)
        gate = self.gate(normed)
        # under autocast the gate is half precision and the residual stream is not, which lerp refuses
        return BlockOutput(torch.lerp(hidden_states, updated, gate.to(updated.dtype)), weights, gate, key, value)
