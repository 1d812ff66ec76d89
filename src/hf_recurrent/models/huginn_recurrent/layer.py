"""Huginn's layer, whose projections are fused, and its depth step.

Shapes: B sequences, S tokens, N packed tokens, E width, H heads, D head dim.
"""

import math
from functools import partial

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from ..base.stacked_depth import SandwichLayer, apply_layers
from ..ops.attention import PaddedContext, Rotations, SelfAttention
from ..ops.feed_forward import GatedLinearUnit
from ..ops.initialization import Initializer, LearnedTensor, initialized_linear
from ..ops.transformer_block import BlockOutput


def cut_normal(linear: nn.Linear, std: float) -> None:
    """Normal weights, cut at three deviations; a bias of zero."""
    init.trunc_normal_(linear.weight, std=std, a=-3 * std, b=3 * std)
    if linear.bias is not None:
        init.zeros_(linear.bias)


def initializers(config) -> tuple[Initializer, Initializer]:
    """Of most maps, and of those that write into states, by the layers that a state goes through (section 3.4)."""
    std = config.initializer_range
    num_layers = config.prelude_layers + config.layers_per_step * config.num_hidden_layers + config.coda_layers
    return partial(cut_normal, std=std), partial(cut_normal, std=std / math.sqrt(2 * num_layers))


class FusedAttention(SelfAttention):
    """`SelfAttention` with one projection to queries, keys and values, and biases of queries and keys."""

    def build_projections(
        self, inner_size: int, key_value_size: int, bias: bool, initializers: tuple[Initializer, Initializer]
    ) -> None:
        config, (of_input, of_output) = self.config, initializers
        width = config.hidden_size
        self.qkv_proj = initialized_linear(width, inner_size + 2 * key_value_size, of_input, bias)
        self.o_proj = initialized_linear(inner_size, width, of_output, bias)
        self.qk_bias = LearnedTensor(2, 1, config.num_attention_heads, config.head_dim) if config.qk_bias else None

    def projected(
        self, queries: torch.Tensor, source: torch.Tensor, rotations: Rotations
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values (..., H, D) of tokens, whose `source` is the same states."""
        query, key, value = (self.heads(each) for each in self.qkv_proj(queries).chunk(3, dim=-1))
        if self.qk_bias is not None:
            query_bias, key_bias = self.qk_bias().squeeze(1).to(query.dtype)
            query, key = query + query_bias, key + key_bias
        return self.rotate(query, rotations.query), self.rotate(key, rotations.key), value


def build_layer(kind: type[SandwichLayer], config, layer_idx: int) -> SandwichLayer:
    """A layer of the core, or of the prelude or the coda (section 3.2)."""
    attention = FusedAttention(config, layer_idx, initializers=initializers(config))
    feed_forward = GatedLinearUnit(config, nn.functional.silu, initializers(config), fused=True)
    return kind(config, attention, feed_forward, norms_sums=True)


class HuginnBlock(GradientCheckpointingLayer):
    """A depth step: a map of the state and the embedded input, and the layers of the core.

    Running states are both side by side, (B, S, 2 E) or (N, 2 E). The step replaces the first half.
    """

    def __init__(self, config):
        super().__init__()
        of_input, _ = initializers(config)
        width = config.hidden_size
        self.adapter = initialized_linear(2 * width, width, of_input, config.adapter_bias)
        self.layers = nn.ModuleList(
            [build_layer(SandwichLayer, config, number) for number in range(config.layers_per_step)]
        )

    def forward(
        self,
        hidden_states: torch.Tensor,
        context: PaddedContext,
        source: torch.Tensor | None = None,
    ) -> BlockOutput:
        """Apply one step; a `source` of keys and values is the running state itself."""
        output = apply_layers(self.layers, self.adapter(hidden_states), context)
        # later steps pass gradients to the embedded input even if this one passes none
        with torch.set_grad_enabled(torch.is_grad_enabled() or hidden_states.requires_grad):
            embedded = hidden_states.chunk(2, dim=-1)[1]
            states = torch.cat((output.hidden_states, embedded), dim=-1)
        return output._replace(hidden_states=states)
