"""Mixture of multi-head attention: each token's queries are those of a few experts, which share keys and values.

Shapes: B sequences, S new tokens and K keys of a sequence, N query tokens, packed into R rows of Q places, k
experts for a token, E experts, H heads of an expert, D head dim, d width, W relative window.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..common.initialization import LearnedTensor, attention_input, initialized_linear
from ..common.layers import computing_dtype
from ..ops.attention import KeyValue, eager_attention_forward, place
from ..ops.positions import t5_buckets
from .experts import Dispatch, ExpertMap
from .routing import Router, RouterStatistics


class PackedQueries(NamedTuple):
    """Packed query tokens (N, ...), and their places in a rectangle (R, Q)."""

    places: torch.Tensor | None  # (N,) flat places in the rectangle, None if the tokens fill it in order
    num_rows: int  # R
    width: int  # Q
    columns: torch.Tensor  # (R, Q) or (1, Q) column of each among its sequence's keys
    sequences: torch.Tensor | None  # (R,) sequence of each row, None for all of the batch
    positions: torch.Tensor | None = None  # (R, K) positions of the keys, None if those are their columns

    def unpack(self, packed: torch.Tensor) -> torch.Tensor:
        """(N, ...) -> (R, Q, ...), zeros where there is no query."""
        return place(packed, self.places, self.num_rows * self.width).unflatten(0, (self.num_rows, self.width))

    def gather(self, rectangle: torch.Tensor) -> torch.Tensor:
        """(R, Q, ...) -> (N, ...)."""
        flat = rectangle.flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def select(self, tensor: torch.Tensor) -> torch.Tensor:
        """(B, ...) -> (R, ...)."""
        return tensor if self.sequences is None or tensor.shape[0] == 1 else tensor.index_select(0, self.sequences)

    def distances(self, num_keys: int) -> torch.Tensor:
        """Position of each key minus that of each query, (R or 1, Q, K)."""
        if self.positions is None:
            return torch.arange(num_keys, device=self.columns.device) - self.columns[..., None]
        queries = self.positions.gather(1, self.columns.expand(self.positions.shape[0], -1))
        return self.positions[:, None] - queries[..., None]


class RoutedOutput(NamedTuple):
    hidden_states: torch.Tensor  # (N, d)
    weights: torch.Tensor | None  # (R, H, Q, k, K), eager attention only
    experts: torch.Tensor  # (N, k)
    statistics: RouterStatistics


class WindowBias(nn.Module):
    """Products of queries with a learned vector for each distance up to W, shared by all experts."""

    def __init__(self, config):
        super().__init__()
        self.window = config.relative_window
        self.table = LearnedTensor(config.num_attention_heads, config.head_dim, 2 * self.window + 1)

    def forward(self, query: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """Scaled queries (R, H, Q * k, D), distances of keys (R, Q, K) -> (R, H, Q * k, K)."""
        known = query @ self.table().to(query.dtype)
        index = (distances.clamp(-self.window, self.window) + self.window).repeat_interleave(
            query.shape[2] // distances.shape[1], dim=1
        )
        return known.gather(-1, index[:, None].expand(*query.shape[:3], -1))


class BucketBias(nn.Module):
    """T5's biases: one number for each head and bucket of distances; both directions unless the stack is causal."""

    def __init__(self, config):
        super().__init__()
        self.is_causal = config.is_causal
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.table = LearnedTensor(config.num_attention_heads, self.num_buckets, std=config.hidden_size**-0.5)

    def forward(self, query: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
        """Biases (R, H, Q * k, K), as `WindowBias.forward`, but independent of the values of the queries."""
        if self.is_causal:
            buckets = t5_buckets((-distances).clamp_min(0), self.num_buckets, self.max_distance)
        else:
            half = self.num_buckets // 2
            buckets = t5_buckets(distances.abs(), half, self.max_distance) + half * (distances > 0)
        bias = self.table().to(query.dtype)[:, buckets].transpose(0, 1)
        return bias.repeat_interleave(query.shape[2] // distances.shape[1], dim=2)


POSITION_BIASES = {"window": WindowBias, "t5": BucketBias}


class RoutedAttention(nn.Module):
    """Attention from packed tokens to the keys of their sequences.

    Args:
        positions: kind of position bias, `config.relative_positions` within a stack and "none" across stacks.
    """

    is_causal = False

    def __init__(self, config, positions: str):
        super().__init__()
        self.config = config
        self.heads, self.head_dim = config.num_attention_heads, config.head_dim
        width, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        self.num_experts = config.attention_experts
        self.router = Router(
            width,
            self.num_experts,
            config.attention_experts_per_token,
            config.router_dropout,
            config.attention_router_samples,
        )
        self.query_map = ExpertMap(self.num_experts, width, inner)
        self.output_map = ExpertMap(self.num_experts, inner, width)
        self.k_proj = initialized_linear(width, inner, attention_input, bias=False)
        self.v_proj = initialized_linear(width, inner, attention_input, bias=False)
        self.position_bias = POSITION_BIASES[positions](config) if positions != "none" else None

    def keys_values(self, source: torch.Tensor) -> KeyValue:
        """(..., d) -> (..., H, D) each."""
        shape = (self.heads, self.head_dim)
        return KeyValue(self.k_proj(source).unflatten(-1, shape), self.v_proj(source).unflatten(-1, shape))

    def forward(
        self,
        queries: torch.Tensor,
        weights: torch.Tensor,
        key_value: KeyValue,
        visible: torch.Tensor,
        packing: PackedQueries,
    ) -> RoutedOutput:
        """Attend to the keys of each token's sequence.

        Args:
            queries: (N, d).
            weights: (N,) probability of not having halted; tokens of weight 0 get zeros.
            key_value: (B, K, H, D) each.
            visible: (R, 1, Q or 1, K) bool, True at visible keys.
        """
        routing = self.router(queries, weights)
        dispatch = Dispatch.from_index(routing.index, self.num_experts)
        implementation = self.config._experts_implementation
        query = dispatch.to_tokens(self.query_map(dispatch.to_experts(queries), dispatch, implementation))
        query = packing.unpack(query * self.head_dim**-0.5).unflatten(-1, (self.heads, self.head_dim))
        # the experts of a token are consecutive queries, so that they share keys and values without copies
        rows = query.flatten(1, 2)
        key, value = (packing.select(states) for states in key_value)
        attended, attention = self.attend(rows, key, value, visible, packing)
        attended = packing.gather(attended.flatten(2).unflatten(1, (packing.width, -1)))
        results = dispatch.to_tokens(self.output_map(dispatch.sort(attended), dispatch, implementation))
        mixed = (results * routing.gates[..., None]).sum(1)
        if attention is not None:
            attention = attention.unflatten(2, (packing.width, -1))
        return RoutedOutput(mixed, attention, routing.index, routing.statistics)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, packing: PackedQueries
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scaled queries (R, Q * k, H, D) and keys (R, K, H, D) -> (R, Q * k, H, D), and weights (R, H, Q * k, K)."""
        query = query.transpose(1, 2)
        if visible.shape[2] > 1:
            visible = visible.repeat_interleave(query.shape[2] // packing.width, dim=2)
        if self.position_bias is None:
            bias = query.new_zeros(visible.shape)
        else:
            bias = self.position_bias(query, packing.distances(key.shape[1])).to(query.dtype)
        # half of the lowest finite number, so that its sum with a score is not infinite
        bias = bias.masked_fill(~visible, torch.finfo(computing_dtype(query)).min / 2)
        function = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        return function(
            self,
            query,
            key.transpose(1, 2).to(query.dtype),
            value.transpose(1, 2).to(query.dtype),
            bias,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=1.0,
            is_causal=False,
        )
