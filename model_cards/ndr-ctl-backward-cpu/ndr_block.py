"""The step that the Neural Data Router and its baselines repeat.

Shapes: B rows, S tokens, E width.
"""

from functools import partial

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .block import BlockOutput
from .dropout import Dropout
from .feed_forward import CopyGate, ReLUFeedForward
from .initialization import torch_default, uniform_between
from .ndr_attention import ATTENTIONS, RoutingContext


class NDRBlock(GradientCheckpointingLayer):
    """Post-norm attention, `a = LN(x + Attention(x))`, and an update of every unit.

    With a copy gate the update is `g f(FFN(a)) + (1 - g) x` (Eq. 1-4 of the paper), without it `LN(a + FFN(a))`.
    """

    def __init__(self, config, layer_idx: int = 0):
        super().__init__()
        width = config.hidden_size
        self.attention = ATTENTIONS[config.attention](config, layer_idx)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        output_initializer = uniform_between
        if config.copy_gate:
            geometric = config.attention == "geometric"
            output_initializer = partial(uniform_between, gain=5 / 3) if geometric else torch_default
        self.feed_forward = ReLUFeedForward(width, config.intermediate_size, config.dropout, output_initializer)
        self.gate = CopyGate(width, config.dropout, config.gate_bias_init) if config.copy_gate else None
        has_norm = not config.copy_gate or config.gated_update == "layer_norm"
        self.update_norm = nn.LayerNorm(width, eps=config.layer_norm_eps) if has_norm else None
        self.dropout = Dropout(config.dropout)
        self.gate_dropout = config.gate_dropout

    def forward(self, hidden_states: torch.Tensor, context: RoutingContext) -> BlockOutput:
        """Of the running state (B, S, E)."""
        attended, weights, key, value = self.attention(hidden_states, context)
        attended = self.attention_norm(hidden_states + self.dropout(attended))
        update = self.feed_forward(attended)
        if self.gate is None:
            return BlockOutput(self.update_norm(attended + self.dropout(update)), weights, None, None, key, value)
        update = update.tanh() if self.update_norm is None else self.update_norm(update)
        gate = self.gate(attended)
        if self.training and self.gate_dropout > 0:
            open_gate = torch.rand(gate.shape[:-1], device=gate.device) >= self.gate_dropout
            gate = gate * open_gate[..., None]
        # under autocast the states can be of another precision than the update, which lerp refuses
        dtype = torch.promote_types(hidden_states.dtype, update.dtype)
        hidden_states = torch.lerp(hidden_states.to(dtype), update.to(dtype), gate.to(dtype))
        return BlockOutput(hidden_states, weights, None, gate, key, value)
