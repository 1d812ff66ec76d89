"""The block of a Sparse Universal Transformer, which every depth step applies to the tokens that have not halted.

Shapes: B sequences, S new tokens and K keys of a sequence, n tokens present, m of them that experts serve, M tokens
whose keys are new, k experts for each token, H heads, D head dim, d width.
"""

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.attention import KeyValue
from ..ops.graphs import in_graph
from ..ops.layers import Dropout
from ..ops.row_groups import place
from ..ops.transformer_block import BlockOutput
from .depth import SparseLayout
from .experts import FeedForwardExperts
from .routed_attention import RoutedAttention
from .routing import Router, RouterStatistics


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

    def keys_values(self, source: torch.Tensor, layout: SparseLayout) -> tuple[KeyValue, KeyValue]:
        """Keys and values of all tokens of the batch, and with those of earlier tokens, from new soft states (M, d)."""
        frozen, fresh, past = layout.frozen, layout.fresh, layout.past
        if frozen is None or fresh is None or fresh.numel() > 0:
            new = self.attention.keys_values(self.attention_norm(source) if self.pre_norm else source)
            num_places = layout.shape[0] * layout.shape[1]
            pairs = zip(new, frozen or (None, None), strict=True)
            # keys of earlier steps are read again for gradients, and are in caches
            over = layout.cache is None and not (torch.is_grad_enabled() or in_graph())
            frozen = KeyValue(*(place(states, fresh, num_places, old, overwrite=over) for states, old in pairs))
        key_value = KeyValue(*(states.unflatten(0, layout.shape).transpose(1, 2) for states in frozen))
        return frozen, key_value if past is None else KeyValue(*past.extended(*key_value))

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
        self, hidden_states: torch.Tensor, weights: torch.Tensor, layout: SparseLayout, source: torch.Tensor
    ) -> tuple[BlockOutput, KeyValue, list[tuple[torch.Tensor, RouterStatistics | None]]]:
        """Apply one step.

        Args:
            hidden_states: (n, d).
            weights: (n,) probability of not having halted, 0 for halted tokens.
            source: (M, d) soft states of the tokens whose keys are new.

        Returns:
            The states (n, d), with keys and values (B, H, K, D) of all tokens, earlier ones included, and as
            `read_attentions` the attention to another stack; keys and values (B * S, H, D) of the new tokens; and the
            experts (m, k) and statistics of each router, in the order of `routers`, of none if m is 0.
        """
        frozen, extended = self.keys_values(source, layout)
        own = (layout.select(extended), layout.visible, layout)
        parts = [(self.attention_norm, self.attention, own)]
        if self.cross_attention is not None:
            parts.append((self.cross_attention_norm, self.cross_attention, (*layout.read, layout)))
        parts.append((self.feed_forward_norm, self.feed_forward, (layout.statistics is not None,)))
        states, served, maps, routed = hidden_states, layout.served, [], []
        weights = weights if served is None else weights.index_select(0, served)
        for norm, part, arguments in parts:
            if served is None or served.numel() > 0:
                inputs = states if served is None else states.index_select(0, served)
                update, attention, *chosen = part(norm(inputs) if self.pre_norm else inputs, weights, *arguments)
                maps.append(attention)
                routed.append(chosen)
                update = self.dropout(update)
                states = states + update if served is None else states.index_add(0, served, update.to(states.dtype))
            states = states if self.pre_norm else norm(states)
        # without another stack the second is of the feed-forward networks, and None
        attentions, across = maps[:2] or (None, None)
        return BlockOutput(states, attentions, across, None, *extended), frozen, routed
