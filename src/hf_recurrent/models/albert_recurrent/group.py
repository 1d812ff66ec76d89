"""A depth step of ALBERT: a group of layers that steps share.

Shapes: E width; tensors are (B, S, E) in a padded context and (N, E) in a packed one.
"""

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.attention import PaddedContext, SelfAttention
from ..ops.feed_forward import FeedForward
from ..ops.layers import Dropout
from ..ops.transformer_block import BlockOutput


def activation_function(name: str) -> nn.Module:
    """The activation that transformers calls by this name."""
    # which writes this one out, operator by operator
    return ACT2FN["gelu_pytorch_tanh" if name == "gelu_new" else name]


class AlbertLayer(nn.Module):
    """Post-norm attention, `a = LN(x + Attention(x))`, and `LN(a + FFN(a))`."""

    def __init__(self, config, layer_idx: int):
        super().__init__()
        width = config.hidden_size
        self.attention = SelfAttention(config, layer_idx, bias=True, initializers=(None, None))
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(
            width, config.intermediate_size, 0.0, None, activation_function(config.hidden_act)
        )
        self.feed_forward_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden_states: torch.Tensor, context: PaddedContext) -> BlockOutput:
        attended, weights, key, value = self.attention(hidden_states, hidden_states, context)
        attended = self.attention_norm(hidden_states + self.dropout(attended))
        updated = self.feed_forward_norm(attended + self.feed_forward(attended))
        return BlockOutput(updated, weights, None, None, key, value)


class AlbertGroup(GradientCheckpointingLayer):
    """The layers of a group, one after another."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([AlbertLayer(config, number) for number in range(config.inner_group_num)])

    def forward(self, hidden_states: torch.Tensor, context: PaddedContext) -> BlockOutput:
        """Apply one step; attention weights are those of the layers' heads, layer by layer."""
        weights = []
        for layer in self.layers:
            output = layer(hidden_states, context)
            hidden_states = output.hidden_states
            weights.append(output.attentions)
        return output if weights[0] is None else output._replace(attentions=torch.cat(weights, dim=1))
