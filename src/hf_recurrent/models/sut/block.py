"""The block of a Sparse Universal Transformer, which every depth step applies to the tokens that have not halted.

Shapes: B sequences, S new tokens and K keys of a sequence, N tokens present, n of them that experts serve, M tokens
whose keys are new, R rows of Q places that the n tokens are packed into, k experts for each, H heads, D head dim, d
width.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.attention import KeyValue
from ..ops.layers import Dropout
from ..ops.masks import Mask
from ..ops.row_groups import place
from .experts import FeedForwardExperts
from .routed_attention import PackedQueries, RoutedAttention, RoutedOutput, Settings
from .routing import Router, RouterStatistics


class SUTContext(NamedTuple):
    """Inputs of a step, besides states."""

    settings: Settings
    queries: PackedQueries
    visible: Mask | None = None  # (R, 1, Q or 1, K) bool
    shape: tuple[int, int] | None = None  # B, S
    served: torch.Tensor | None = None  # (n,) indices of the tokens that attend and have experts, None for all present
    fresh: torch.Tensor | None = None  # (M,) flat places in (B, S), of the tokens with new keys, None for all in order
    frozen: KeyValue | None = None  # (B * S, H, D) each, of the step before
    past: tuple | None = None  # of earlier tokens
    memory: KeyValue | None = None  # (B, K', H, D) each, of another stack's states
    memory_visible: Mask | None = None  # (R, 1, 1, K') bool


class SUTBlockOutput(NamedTuple):
    hidden_states: torch.Tensor  # (N, d)
    frozen: KeyValue  # (B * S, H, D) each
    extended: KeyValue  # (B, K, H, D) each, after those of earlier tokens
    attentions: torch.Tensor | None
    cross_attentions: torch.Tensor | None
    experts: tuple[torch.Tensor, ...]  # (n, k) of each router, in the order of `router_names`; none if n is 0
    statistics: tuple[RouterStatistics, ...] | None


def router_names(block: "SUTBlock") -> tuple[str, ...]:
    """Names of a stack's routers, in the order of their results."""
    across = () if block.cross_attention is None else ("cross_attention",)
    return ("attention", *across, "feed_forward")


class SUTBlock(GradientCheckpointingLayer):
    """Attention by routed heads, in a decoder also to the encoder's states, and a mixture of feed-forward networks.

    Post-norm: `x1 = LN(h + A(h, s)); x2 = LN(x1 + C(x1)); h' = LN(x2 + F(x2))`, where queries come from the states `h`
    and keys and values from the soft states `s`. Pre-norm: the norms come before A (one for both streams), C and F.
    """

    gathered_methods = ("written_keys_values", "source_keys_values")

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
        if context.frozen is not None and context.fresh is not None and context.fresh.numel() == 0:
            frozen = context.frozen
        else:
            fresh = self.attention.keys_values(self.attention_norm(source) if self.pre_norm else source)
            batch, length = context.shape
            pairs = zip(fresh, context.frozen or (None, None), strict=True)
            frozen = KeyValue(*(place(new, context.fresh, batch * length, old) for new, old in pairs))
        all_tokens = KeyValue(*(states.unflatten(0, context.shape) for states in frozen))
        if context.past is not None:
            extended = context.past.extended(*(states.transpose(1, 2) for states in all_tokens))
            all_tokens = KeyValue(*(states.transpose(1, 2) for states in extended))
        return frozen, all_tokens

    def written_keys_values(self, source: torch.Tensor, context: SUTContext) -> tuple[KeyValue, KeyValue]:
        """`keys_values`, for callers other than the block."""
        return self.keys_values(source, context)

    def source_keys_values(self, states: torch.Tensor) -> KeyValue:
        """Keys and values of the other stack's states: (M, d) -> (M, H, D) each."""
        return self.cross_attention.keys_values(states)

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
        results: list[RoutedOutput] = []
        weights = weights if context.served is None else weights.index_select(0, context.served)
        settings = context.settings

        def updated(states: torch.Tensor, norm: nn.LayerNorm, layer: Callable) -> torch.Tensor:
            return self.updated(states, norm, layer, context.served, results)

        def attend(inputs: torch.Tensor) -> RoutedOutput:
            return self.attention(inputs, weights, extended, context.visible, context.queries, settings)

        def attend_across(inputs: torch.Tensor) -> RoutedOutput:
            memory, visible = context.memory, context.memory_visible
            return self.cross_attention(inputs, weights, memory, visible, context.queries, settings)

        def feed_forward(inputs: torch.Tensor) -> RoutedOutput:
            routing = self.router(inputs, weights, statistics=settings.statistics)
            update = self.experts(inputs, routing.index, routing.gates)
            return RoutedOutput(update, None, routing.index, routing.statistics)

        states = updated(hidden_states, self.attention_norm, attend)
        if self.cross_attention is not None:
            states = updated(states, self.cross_attention_norm, attend_across)
        states = updated(states, self.feed_forward_norm, feed_forward)
        return SUTBlockOutput(
            states,
            frozen,
            extended,
            results[0].weights if results else None,
            results[1].weights if len(results) > 2 else None,
            tuple(result.experts for result in results),
            tuple(result.statistics for result in results) if settings.statistics and results else None,
        )

    def updated(
        self,
        states: torch.Tensor,
        norm: nn.LayerNorm,
        layer: Callable[[torch.Tensor], RoutedOutput],
        served: torch.Tensor | None,
        results: list[RoutedOutput],
    ) -> torch.Tensor:
        """States (N, d) with the residual update of `layer` where it serves; its output is appended to `results`."""
        if served is None:
            results.append(layer(norm(states) if self.pre_norm else states))
            total = states + self.dropout(results[-1].hidden_states)
        elif served.numel() == 0:
            total = states
        else:
            inputs = states.index_select(0, served)
            results.append(layer(norm(inputs) if self.pre_norm else inputs))
            update = self.dropout(results[-1].hidden_states)
            total = states.index_add(0, served, update.to(states.dtype))
        return total if self.pre_norm else norm(total)
