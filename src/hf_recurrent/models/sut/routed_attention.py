"""Mixture of multi-head attention: each token's queries are those of a few experts, which share keys and values.

Shapes: B sequences, S new tokens and K keys of a sequence, N query tokens, packed into R rows of Q places, k
experts for a token, E experts, H heads of an expert, D head dim, d width, W relative window.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from ..ops.attention import KeyValue, eager_attention_forward
from ..ops.flex_attention import FlexMask, PositionScores, attention_function, is_flex
from ..ops.graphs import in_graph
from ..ops.initialization import LearnedTensor, attention_input, initialized_linear
from ..ops.layers import computing_dtype
from ..ops.masks import Mask
from ..ops.positions import t5_buckets
from ..ops.row_groups import place
from .experts import Dispatch, ExpertMap
from .routing import Router, RouterStatistics


class Settings(NamedTuple):
    """Choices of a call, which are read from the config once, because each read takes as long as a small product."""

    attention: Callable
    experts: str  # implementation of their products
    statistics: bool  # whether routers sum up their statistics
    flex_queries: int = 0  # of each token, for the masks of flex attention

    def mask(self, visible: torch.Tensor) -> Mask:
        """The mask (R, 1, Q or 1, K) of each token's keys, in flex attention of each expert's."""
        if not self.flex_queries:
            return visible
        return FlexMask(visible.repeat_interleave(self.flex_queries, dim=2) if visible.shape[2] > 1 else visible)

    @classmethod
    def of_config(cls, config, statistics: bool = False) -> "Settings":
        attention = attention_function(config, eager_attention_forward)
        flex_queries = config.attention_experts_per_token if is_flex(config) else 0
        return cls(attention, config._experts_implementation, statistics, flex_queries)


class PackedQueries(NamedTuple):
    """Packed query tokens (N, ...), and their places in a rectangle (R, Q).

    Indices of position biases are (G, n, K), for G groups of n tokens: (1, N, K) or, for all tokens of the batch,
    (B, S, K), and (1, S, K) where sequences share them.
    """

    places: torch.Tensor | None  # (N,) flat places in the rectangle, None if the tokens fill it in order
    num_rows: int  # R
    width: int  # Q
    columns: torch.Tensor  # (R, Q) or (1, Q) column of each among its sequence's keys
    sequences: torch.Tensor | None  # (R,) sequence of each row, None for all of the batch
    index: torch.Tensor | None = None  # (G, n, K) of the keys in the position biases of each token

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

    def distances(self, num_keys: int, positions: torch.Tensor | None = None) -> torch.Tensor:
        """Position of each key minus that of each query, (G, n, K).

        Args:
            positions: (B, K) of the keys, None if those are their columns.
        """
        if positions is None:
            distances = torch.arange(num_keys, device=self.columns.device) - self.columns[..., None]
        else:
            positions = self.select(positions)
            queries = positions.gather(1, self.columns.expand(positions.shape[0], -1))
            distances = positions[:, None] - queries[..., None]
        return distances if self.places is None else self.gather(distances)[None]


class RoutedOutput(NamedTuple):
    hidden_states: torch.Tensor  # (N, d)
    weights: torch.Tensor | None  # (R, H, Q, k, K), eager attention only
    experts: torch.Tensor  # (N, k)
    statistics: RouterStatistics | None


class WindowBias(nn.Module):
    """Products of queries with a learned vector for each distance up to W, shared by all experts."""

    def __init__(self, config):
        super().__init__()
        self.is_causal = config.is_causal
        self.window = config.relative_window
        self.table = LearnedTensor(config.num_attention_heads, config.head_dim, 2 * self.window + 1)

    def reach(self, num_keys: int) -> tuple[int, int]:
        """Largest distances, to earlier and to later keys, that so many keys have vectors for."""
        # a traced graph must not depend on the number
        most = self.window if in_graph() else min(self.window, num_keys - 1)
        return most, 0 if self.is_causal else most

    def index(self, distances: torch.Tensor) -> torch.Tensor:
        """Distances (..., K) as indices of the vectors that so many keys need."""
        before, after = self.reach(distances.shape[-1])
        return distances.clamp(-before, after) + before

    def forward(self, query: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Scaled queries (N, k, H, D), indices of keys (G, n, K) -> (N / n, n, k, H, K)."""
        before, after = self.reach(index.shape[-1])
        table = self.table()[..., self.window - before : self.window + after + 1].to(query.dtype)
        known = torch.einsum("nkhd,hdw->nkhw", query, table).unflatten(0, (-1, index.shape[1]))
        return known.gather(-1, index[:, :, None, None].expand(*known.shape[:-1], -1))

    def scores(self, query: torch.Tensor, index: torch.Tensor) -> PositionScores:
        """Products of the scaled queries (R, Q, k, H, D) with the vectors of keys (R or 1, Q, K), see `PositionScores`.

        The queries of a token's experts are consecutive.
        """
        before, after = self.reach(index.shape[-1])
        table = self.table()[..., self.window - before : self.window + after + 1].to(query.dtype)
        known, num_experts = torch.einsum("rqkhd,hdw->rqkhw", query, table), query.shape[2]

        def scores(sequence, head, query_index, key):
            token, row = query_index // num_experts, sequence if index.shape[0] > 1 else 0
            return known[sequence, token, query_index % num_experts, head, index[row, token, key]]

        return scores


class BucketBias(nn.Module):
    """T5's biases: one number for each head and bucket of distances; both directions unless the stack is causal."""

    def __init__(self, config):
        super().__init__()
        self.is_causal = config.is_causal
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.table = LearnedTensor(config.num_attention_heads, self.num_buckets, std=config.hidden_size**-0.5)

    def index(self, distances: torch.Tensor) -> torch.Tensor:
        """The bucket of each distance."""
        if self.is_causal:
            return t5_buckets((-distances).clamp_min(0), self.num_buckets, self.max_distance)
        half = self.num_buckets // 2
        return t5_buckets(distances.abs(), half, self.max_distance) + half * (distances > 0)

    def forward(self, query: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Biases (G, n, 1, H, K), as `WindowBias.forward`, but independent of the values of the queries."""
        return self.table().to(query.dtype)[:, index].permute(1, 2, 0, 3)[:, :, None]

    def scores(self, query: torch.Tensor, index: torch.Tensor) -> PositionScores:
        """As `WindowBias.scores`, but of the numbers."""
        table, num_experts = self.table().to(query.dtype), query.shape[2]

        def scores(sequence, head, query_index, key):
            row = sequence if index.shape[0] > 1 else 0
            return table[head, index[row, query_index // num_experts, key]]

        return scores


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
        key_value: KeyValue | None,
        visible: Mask | None,
        packing: PackedQueries,
        settings: Settings,
    ) -> RoutedOutput:
        """Attend to the keys of each token's sequence.

        Args:
            queries: (N, d).
            weights: (N,) probability of not having halted; tokens of weight 0 get zeros.
            key_value: (B, K, H, D) each.
            visible: (R, 1, Q or 1, K) bool, True at visible keys, in the form of `Settings.mask`.
        """
        routing = self.router(queries, weights, statistics=settings.statistics)
        dispatch = Dispatch.from_index(routing.index, self.num_experts)
        query = dispatch.to_tokens(self.query_map(dispatch.to_experts(queries), dispatch, settings.experts))
        query = (query * self.head_dim**-0.5).unflatten(-1, (self.heads, self.head_dim))
        attended, attention = self.attend_rows(query, key_value, visible, packing, settings.attention)
        results = dispatch.to_tokens(self.output_map(dispatch.sort(attended), dispatch, settings.experts))
        mixed = (results * routing.gates[..., None]).sum(1)
        return RoutedOutput(mixed, attention, routing.index, routing.statistics)

    def attend_rows(
        self,
        query: torch.Tensor,
        key_value: KeyValue,
        visible: Mask,
        packing: PackedQueries,
        function: Callable,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attention of scaled queries (N, k, H, D) to the keys of their rows -> (N, k, H * D), and weights."""
        rows = packing.unpack(query)
        if isinstance(visible, FlexMask):
            bias, function = visible, partial(function, bias=self.position_scores(rows, packing))
        else:
            bias = self.bias(query, visible, packing)
        key, value = (packing.select(states) for states in key_value)
        # the experts of a token are consecutive queries, so that they share keys and values without copies
        attended, attention = self.attend(rows.flatten(1, 2), key, value, bias, function)
        attended = packing.gather(attended.flatten(2).unflatten(1, (packing.width, -1)))
        return attended, None if attention is None else attention.unflatten(2, (packing.width, -1))

    def position_scores(self, query: torch.Tensor, packing: PackedQueries) -> PositionScores | None:
        """Biases of the scores of scaled queries (R, Q, k, H, D), None without any."""
        if self.position_bias is None:
            return None
        index = packing.index if packing.places is None else packing.unpack(packing.index.squeeze(0))
        return self.position_bias.scores(query, index)

    def bias(self, query: torch.Tensor, visible: torch.Tensor, packing: PackedQueries) -> torch.Tensor:
        """Biases (R, H or 1, Q * k or 1, K) of the scores of scaled queries (N, k, H, D); see `forward`."""
        # R, Q, k, H, K, or 1 where those share a bias
        hidden = ~visible.transpose(1, 2)[:, :, None]
        if self.position_bias is None:
            bias = query.new_zeros(hidden.shape)
        else:
            bias = self.position_bias(query, packing.index).to(query.dtype)
            bias = bias if packing.places is None else packing.unpack(bias.squeeze(0))
        # half of the lowest finite number, so that its sum with a score is not infinite
        bias = bias.masked_fill(hidden, torch.finfo(computing_dtype(query)).min / 2)
        if bias.shape[1] > 1:
            bias = bias.expand(-1, -1, query.shape[1], -1, -1)
        return bias.permute(0, 3, 1, 2, 4).flatten(2, 3)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: Mask, function: Callable
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scaled queries (R, Q * k, H, D) and keys (R, K, H, D) -> (R, Q * k, H, D), and weights (R, H, Q * k, K)."""
        query = query.transpose(1, 2)
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
