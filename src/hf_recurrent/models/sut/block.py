"""The block of a Sparse Universal Transformer, which every depth step applies to the tokens that have not halted.

Shapes: B sequences, S new tokens and K keys of a sequence, N tokens present, M tokens whose keys are new, R rows
of Q places that the N tokens are packed into, k experts for each, H heads, D head dim, d width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..common.layers import Dropout
from ..ops.attention import KeyValue, PastKeyValue, place
from .experts import FeedForwardExperts
from .routed_attention import PackedQueries, RoutedAttention
from .routing import Router, RouterStatistics


class SUTContext(NamedTuple):
    """Inputs of a step, besides states."""

    queries: PackedQueries
    visible: torch.Tensor  # (R, 1, Q or 1, K) bool
    shape: tuple[int, int]  # B, S
    fresh: torch.Tensor | None  # (M,) flat places in (B, S), of the tokens with new keys, None for all in order
    frozen: KeyValue | None  # (B * S, H, D) each, of the step before
    past: PastKeyValue | None  # of earlier tokens
    memory: KeyValue | None  # (B, K', H, D) each, of another stack's states
    memory_visible: torch.Tensor | None  # (R, 1, 1, K') bool


class SUTBlockOutput(NamedTuple):
    hidden_states: torch.Tensor  # (N, d)
    frozen: KeyValue  # (B * S, H, D) each
    extended: KeyValue  # (B, K, H, D) each, after those of earlier tokens
    attentions: torch.Tensor | None
    cross_attentions: torch.Tensor | None
    experts: tuple[torch.Tensor, ...]  # (N, k) of each router, in the order of `router_names`
    statistics: tuple[RouterStatistics, ...]


def router_names(block: "SUTBlock") -> tuple[str, ...]:
    """Names of a stack's routers, in the order of their results."""
    across = () if block.cross_attention is None else ("cross_attention",)
    return ("attention", *across, "feed_forward")


class SUTBlock(GradientCheckpointingLayer):
    """Attention by routed heads, in a decoder also to the encoder's states, and a mixture of feed-forward networks.

    Post-norm: `x1 = LN(h + A(h, s)); x2 = LN(x1 + C(x1)); h' = LN(x2 + F(x2))`, where queries come from the states `h`
    and keys and values from the soft states `s`. Pre-norm: the norms come before A (one for both streams), C and F.
    """

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

    def keys_values(self, source: torch.Tensor, context: SUTContext) -> tuple[KeyValue, KeyValue]:
        """Keys and values of all tokens of the batch, and with those of earlier tokens, from new soft states (M, d)."""
        source = self.attention_norm(source) if self.pre_norm else source
        fresh = self.attention.keys_values(source)
        batch, length = context.shape
        frozen = KeyValue(
            *(
                place(new, context.fresh, batch * length, old)
                for new, old in zip(fresh, context.frozen or (None, None), strict=True)
            )
        )
        all_tokens = KeyValue(*(states.unflatten(0, context.shape) for states in frozen))
        if context.past is not None:
            extended = context.past.extended(*(states.transpose(1, 2) for states in all_tokens))
            all_tokens = KeyValue(*(states.transpose(1, 2) for states in extended))
        return frozen, all_tokens

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
        results = [
            self.attention(
                self.attention_norm(hidden_states) if self.pre_norm else hidden_states,
                weights,
                extended,
                context.visible,
                context.queries,
            )
        ]
        states = self.add(hidden_states, results[0].hidden_states, self.attention_norm)
        if self.cross_attention is not None:
            queries = self.cross_attention_norm(states) if self.pre_norm else states
            results.append(
                self.cross_attention(queries, weights, context.memory, context.memory_visible, context.queries)
            )
            states = self.add(states, results[1].hidden_states, self.cross_attention_norm)
        inputs = self.feed_forward_norm(states) if self.pre_norm else states
        routing = self.router(inputs, weights)
        update = self.experts(inputs, routing.index, routing.gates)
        return SUTBlockOutput(
            self.add(states, update, self.feed_forward_norm),
            frozen,
            extended,
            results[0].weights,
            results[1].weights if len(results) > 1 else None,
            (*(result.experts for result in results), routing.index),
            (*(result.statistics for result in results), routing.statistics),
        )

    def add(self, states: torch.Tensor, update: torch.Tensor, norm: nn.LayerNorm) -> torch.Tensor:
        total = states + self.dropout(update)
        return total if self.pre_norm else norm(total)
