"""The pre-norm Transformer block that architectures apply or iterate.

Shapes: E width; tensors are (B, S, E) in a padded context and (N, E) in a packed one.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import KeyValue, PaddedContext, SelfAttention
from .feed_forward import FeedForward
from .initialization import Initializer, xavier
from .layers import Dropout


class BlockOutput(NamedTuple):
    hidden_states: torch.Tensor
    attentions: torch.Tensor | None  # (B, H, S, S), eager attention only
    read_attentions: torch.Tensor | None  # (B, H, S, M) attention to memory slots, eager attention only
    gate: torch.Tensor | None  # like hidden_states, gated blocks only
    # keys and values for later steps or calls, see `AttentionOutput`; of each layer, where a step has several
    key: torch.Tensor | tuple[torch.Tensor, ...]
    value: torch.Tensor | tuple[torch.Tensor, ...]


class TransformerBlock(GradientCheckpointingLayer):
    """`a = x + Attention(LN x, LN source); y = a + FFN(LN a)`, optionally gated: `g y + (1 - g) x`.

    The gate (Eq. 9-11 of the dynamic-halt paper) carries over the block's raw input `x`, not the attention
    residual `a`. The two attention streams share one layer norm, as in the reference implementation.
    """

    gathered_methods = ("keys_values",)
    initializer_of_maps: Initializer = staticmethod(xavier)

    def __init__(self, config, gated: bool = False, layer_idx: int = 0):
        super().__init__()
        width, initializer = config.hidden_size, self.initializer_of_maps
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.attention = SelfAttention(config, layer_idx)
        self.memory_read = self.build_read(config, layer_idx)
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(width, config.intermediate_size, config.dropout, initializer)
        self.gate = FeedForward(width, config.gate_intermediate_size, config.dropout, initializer) if gated else None
        self.dropout = Dropout(config.dropout)

    def build_read(self, config, layer_idx: int) -> nn.Module | None:
        """Attention to a memory, after the attention of tokens to each other; None without."""
        return None

    def keys_values(self, source: torch.Tensor, context: PaddedContext) -> KeyValue:
        """Keys and values of tokens in these states: (B, S, E) -> (B, S, H, D) each."""
        return self.attention.keys_values(self.attention_norm(source), context.rotations.key)

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: PaddedContext,
        source: torch.Tensor | None = None,
    ) -> BlockOutput:
        """Apply one step.

        Args:
            hidden_states: the running state, (B, S, E) or packed (N, E).
            source: states that keys and values are computed from, (B, S, E) or packed (M, E); `hidden_states` if None.
        """
        queries = self.attention_norm(hidden_states)
        source = queries if source is None else self.attention_norm(source)
        attended, weights, key, value = self.attention(queries, source, context)
        attended = hidden_states + self.dropout(attended)
        read_weights = None
        if self.memory_read is not None:
            attended, read_weights = self.memory_read.attend_memory(attended, context)
        normed = self.feed_forward_norm(attended)
        updated = attended + self.feed_forward(normed)
        # how much of each unit is overwritten (Eq. 10); dropout comes before both non-linearities, as in the reference
        gate = None if self.gate is None else self.gate(normed).sigmoid()
        if gate is not None:
            # under autocast the gate is half precision and the residual stream is not, but lerp needs one dtype
            updated = torch.lerp(hidden_states, updated, gate.to(updated.dtype))
        return BlockOutput(updated, weights, read_weights, gate, key, value)
