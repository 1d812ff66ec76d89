"""The block of a Sparse Universal Transformer, which every depth step applies to the tokens that have not halted.

Shapes: B sequences, S new tokens and K keys of a sequence, N tokens present, n of them that experts serve, M tokens
whose keys are new, R rows of Q places that the n tokens are packed into, k experts for each, H heads, D head dim, d
width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.attention import KeyValue
from ..ops.layers import Dropout
from ..ops.row_groups import place
from .experts import FeedForwardExperts
from .routed_attention import RoutedAttention, SUTContext
from .routing import Router, RouterStatistics


class SUTBlockOutput(NamedTuple):
    hidden_states: torch.Tensor  # (N, d)
    frozen: KeyValue  # (B * S, H, D) each
    extended: KeyValue  # (B, H, K, D) each, after those of earlier tokens
    attentions: torch.Tensor | None
    cross_attentions: torch.Tensor | None
    experts: tuple[torch.Tensor, ...]  # (n, k) of each router, in the order of `routers`; none if n is 0
    statistics: tuple[RouterStatistics | None, ...]  # of each router; none if n is 0


class SUTBlock(GradientCheckpointingLayer):
    """Attention by routed heads, in a decoder also to the encoder's states, and a mixture of feed-forward networks.

    Post-norm: `x1 = LN(h + A(h, s)); x2 = LN(x1 + C(x1)); h' = LN(x2 + F(x2))`, where queries come from the states `h`
    and keys and values from the soft states `s`. Pre-norm: the norms come before A (one for both streams), C and F.
    """

    gathered_methods = ("source_keys_values",)

    def __init__(self, config, attends_to_source: bool = False):
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.pre_norm = config.layer_norm == "pre"
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.attention = RoutedAttention(config, config.relative_positions)
        self.cross_attention_norm = nn.LayerNorm(width, eps=eps) if attends_to_source else None
        self.cross_attention = RoutedAttention(config, "none") if attends_to_source else None
        self.feed_forward_norm = nn.LayerNorm(width, eps=eps)
        self.router = Router(
            width, config.feed_forward_experts, config.feed_forward_experts_per_token, config.router_dropout
        )
        self.experts = FeedForwardExperts(config)
        self.dropout = Dropout(config.dropout)
        self.routers = ("attention", *(("cross_attention",) if attends_to_source else ()), "feed_forward")

    def keys_values(self, source: torch.Tensor, context: SUTContext) -> tuple[KeyValue, KeyValue]:
        """Keys and values of all tokens of the batch, and with those of earlier tokens, from new soft states (M, d)."""
        frozen, fresh = context.frozen, context.fresh
        if frozen is None or fresh is None or fresh.numel() > 0:
            new = self.attention.keys_values(self.attention_norm(source) if self.pre_norm else source)
            num_places = context.shape[0] * context.shape[1]
            pairs = zip(new, frozen or (None, None), strict=True)
            frozen = KeyValue(*(place(states, fresh, num_places, old) for states, old in pairs))
        key_value = KeyValue(*(states.unflatten(0, context.shape).transpose(1, 2) for states in frozen))
        return frozen, key_value if context.past is None else KeyValue(*context.past.extended(*key_value))

    def source_keys_values(self, states: torch.Tensor) -> KeyValue:
        """Keys and values of the other stack's states: (M, d) -> (M, H, D) each."""
        return self.cross_attention.keys_values(states)

    def feed_forward(
        self, states: torch.Tensor, weights: torch.Tensor, statistics: bool
    ) -> tuple[torch.Tensor, None, torch.Tensor, RouterStatistics | None]:
        """The mixture of feed-forward networks, with the results of `RoutedAttention`."""
        experts, gates, sums = self.router(states, weights, statistics)
        return self.experts(states, experts, gates), None, experts, sums

    def forward(
        self, hidden_states: torch.Tensor, weights: torch.Tensor, context: SUTContext, source: torch.Tensor
    ) -> SUTBlockOutput:
        """Apply one step.

        Args:
            hidden_states: (N, d).
            weights: (N,) probability of not having halted, 0 for halted tokens.
            source: (M, d) soft states of the tokens whose keys are new.
        """
        frozen, extended = self.keys_values(source, context)
        layers = [(self.attention_norm, self.attention, (extended, context.visible, context))]
        if self.cross_attention is not None:
            memory = (context.memory, context.memory_visible, context)
            layers.append((self.cross_attention_norm, self.cross_attention, memory))
        layers.append((self.feed_forward_norm, self.feed_forward, (context.statistics,)))
        states, served, results = hidden_states, context.served, []
        weights = weights if served is None else weights.index_select(0, served)
        for norm, layer, arguments in layers:
            if served is None or served.numel() > 0:
                inputs = states if served is None else states.index_select(0, served)
                results.append(layer(norm(inputs) if self.pre_norm else inputs, weights, *arguments))
                update = self.dropout(results[-1][0])
                states = states + update if served is None else states.index_add(0, served, update.to(states.dtype))
            states = states if self.pre_norm else norm(states)
        _, attentions, experts, statistics = zip(*results, strict=True) if results else ((), (None,) * 3, (), ())
        across = attentions[1] if self.cross_attention is not None else None
        return SUTBlockOutput(states, frozen, extended, attentions[0], across, experts, statistics)
