"""Mixture of multi-head attention: each token has the queries of a few experts, which share keys and values.

Shapes: B sequences, S new tokens and K keys of a sequence, N query tokens, packed into R rows of Q places, k
experts for a token, E experts, H heads of an expert, D head dim, d width, w entries of a table of position biases.
"""

from functools import partial

import torch
from torch import nn

from ..ops.attention import KeyValue, attention_function, eager_attention_forward
from ..ops.flex_attention import FlexMask, PositionScores
from ..ops.graphs import in_graph
from ..ops.initialization import LearnedTensor, attention_input, initialized_linear
from ..ops.masks import Mask
from ..ops.positions import t5_buckets
from .depth import SparseLayout, packed
from .experts import Dispatch, ExpertMap
from .routing import Router, RouterStatistics


class PositionBias(nn.Module):
    """Biases of scores by the distance from query to key, shared by all experts: entries of a table.

    "window" has a learned vector for each distance up to W, whose product with the query is the bias. "t5" has a number
    for each head and bucket of distances, for both directions unless the stack is causal.
    """

    def __init__(self, config, kind: str):
        super().__init__()
        self.config, self.window = config, config.relative_window if kind == "window" else None
        heads, number = config.num_attention_heads, config.relative_attention_num_buckets
        if self.window is None:
            self.table = LearnedTensor(heads, number, std=config.hidden_size**-0.5)
        else:
            self.table = LearnedTensor(heads, config.head_dim, 2 * self.window + 1)

    def index(self, distances: torch.Tensor) -> tuple[torch.Tensor, slice]:
        """The entry of each distance (..., K) from query to key, among those of a part of the table, and that part."""
        config = self.config
        if self.window is not None:
            # so many keys need no others; a traced graph must not depend on their number
            most = self.window if in_graph() else min(self.window, distances.shape[-1] - 1)
            after = 0 if config.is_causal else most
            return distances.clamp(-most, after) + most, slice(self.window - most, self.window + after + 1)
        number, largest = config.relative_attention_num_buckets, config.relative_attention_max_distance
        if config.is_causal:
            return t5_buckets((-distances).clamp_min(0), number, largest), slice(None)
        return t5_buckets(distances.abs(), number // 2, largest) + number // 2 * (distances > 0), slice(None)

    def forward(self, query: torch.Tensor, layout: SparseLayout) -> torch.Tensor:
        """Biases of the scaled queries (N, k, H, D) by entry: (R, Q, k, H, w), or (1, 1, 1, H, w) that all share."""
        table = self.table()[..., layout.entries].to(query.dtype)
        if self.window is None:
            return table[None, None, None]
        return layout.unpack(torch.einsum("nkhd,hdw->nkhw", query, table))


def indexed_scores(biases: torch.Tensor, index: torch.Tensor, num_experts: int) -> PositionScores:
    """The biases (R or 1, Q or 1, k or 1, H, w) of scores at the entries (R or 1, Q, K) for queries (R, Q * k)."""

    def scores(sequence, head, query, key):
        token = query // num_experts
        own = zip((sequence, token, query % num_experts), biases.shape, strict=False)
        entry = index[sequence if index.shape[0] > 1 else 0, token, key]
        return biases[(*(number if size > 1 else 0 for number, size in own), head, entry)]

    return scores


class RoutedAttention(nn.Module):
    """Attention from packed tokens to the keys of their sequences.

    Args:
        positions: kind of position bias, `config.relative_positions` within a stack and "none" across stacks.
    """

    is_causal = False

    def __init__(self, config, positions: str):
        super().__init__()
        self.config, self.shape = config, (config.num_attention_heads, config.head_dim)
        width, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        num_experts, per_token = config.attention_experts, config.attention_experts_per_token
        self.router = Router(width, num_experts, per_token, config.router_dropout, config.attention_router_samples)
        self.query_map = ExpertMap(num_experts, width, inner)
        self.output_map = ExpertMap(num_experts, inner, width)
        self.k_proj = initialized_linear(width, inner, attention_input, bias=False)
        self.v_proj = initialized_linear(width, inner, attention_input, bias=False)
        self.position_bias = PositionBias(config, positions) if positions != "none" else None

    def keys_values(self, source: torch.Tensor) -> KeyValue:
        """(..., d) -> (..., H, D) each."""
        return KeyValue(*(project(source).unflatten(-1, self.shape) for project in (self.k_proj, self.v_proj)))

    def forward(
        self, states: torch.Tensor, weights: torch.Tensor, key_value: KeyValue, visible: Mask, layout: SparseLayout
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, RouterStatistics | None]:
        """Attend to the keys of each token's sequence.

        Args:
            states: (N, d).
            weights: (N,) probability of not having halted; tokens of weight 0 get zeros.
            key_value: (R, H, K, D) each.
            visible: which of them queries see, in the form of the layout.

        Returns:
            (N, d), attention weights (R, H, Q, k, K) of eager attention, and the experts (N, k) and statistics of the
            router.
        """
        experts, gates, statistics = self.router(states, weights, layout.statistics is not None)
        implementation = self.config._experts_implementation
        dispatch = Dispatch.of_tokens(experts, self.query_map.weight, implementation)
        query = self.query_map(states, dispatch, implementation) * self.shape[1] ** -0.5
        query = query.unflatten(-1, self.shape)
        function = attention_function(self.config, eager_attention_forward)
        if not isinstance(visible, FlexMask):
            visible = self.bias(query, visible, layout)
        elif self.position_bias is not None:
            scores = indexed_scores(self.position_bias(query, layout), layout.index, query.shape[1])
            function = partial(function, bias=scores)
        # the experts of a token are consecutive queries, which share keys and values without copies
        attended, attention = function(
            self,
            layout.unpack(query).flatten(1, 2).transpose(1, 2),
            *(each.to(query.dtype) for each in key_value),
            visible,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=1.0,
            is_causal=False,
        )
        by_query = layout.rectangle[1], -1
        attended = packed(attended.flatten(2).unflatten(1, by_query), layout.places)
        mixed = self.output_map(attended, dispatch, implementation, gates)
        return mixed, None if attention is None else attention.unflatten(2, by_query), experts, statistics

    def bias(self, query: torch.Tensor, masked: torch.Tensor, layout: SparseLayout) -> torch.Tensor:
        """Biases (R, H or 1, Q * k or 1, K) of the scores of scaled queries (N, k, H, D), with those of the mask."""
        if self.position_bias is None:
            return masked.to(query.dtype)
        entries, index = self.position_bias(query, layout), layout.index[:, None, :, None]
        # R, H, Q, k, K, or 1 where those share a bias
        entries = entries.permute(0, 3, 1, 2, 4)
        shape = torch.broadcast_tensors(entries[..., 0], index[..., 0])[0].shape
        bias = entries.expand(*shape, -1).gather(-1, index.expand(*shape, -1)) + masked[:, :, :, None]
        return bias.to(query.dtype).expand(-1, -1, -1, query.shape[1], -1).flatten(2, 3)
