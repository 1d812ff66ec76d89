"""Attention of the Neural Data Router and its baselines: by nearest match, or softmax over content and positions.

Shapes: B sequences, Q new tokens, K tokens in all (the new ones last), H heads, D head dim, E width. "The paper" is
"The Neural Data Router", "the reference" its authors' implementation.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache

from ..ops.attention import Attention, AttentionOutput
from ..ops.graphs import in_graph
from ..ops.initialization import initialized_linear, torch_default, uniform_between
from ..ops.layers import dropout
from ..ops.masks import Mask, aligned_mask, part_of_mask, rows_of
from ..ops.row_groups import GroupedRows, Spread, grouped_rows
from .geometric import attend_nearest
from .kernels import geometric_attention_triton, kernel_available


class RoutingContext(NamedTuple):
    """Inputs of attention besides states."""

    # softmax: as transformers' mask helpers build it; geometric: see `tokens_mask`
    attention_mask: Mask | None
    position_keys: torch.Tensor | None = None  # of 1 - N to N - 1, for at least as many keys: (H, 2N - 1, D)
    places: torch.Tensor | None = None  # (B, K) position of each key in its sequence, None if it is its column
    past: tuple | None = None

    def select(self, rows: torch.Tensor, columns: slice = slice(None)) -> "RoutingContext":
        """The context of some `rows` (n,) and columns of tokens, which without a cache are those of the keys."""
        return self._replace(
            attention_mask=part_of_mask(self.attention_mask, rows, columns),
            places=rows_of(self.places, rows),
        )

    def pack_tokens(self, config, spread: Spread, mask: torch.Tensor, tokens: torch.Tensor) -> GroupedRows:
        """Groups of rows of packed tokens alone, which are spread over the mask (R, W) without gaps."""
        mask_of = tokens_mask if config.attention == "geometric" else aligned_mask
        return grouped_rows(
            mask, spread.places, lambda seen, _: RoutingContext(mask_of(config, seen), self.position_keys)
        )


def tokens_mask(config, mask: torch.Tensor, cache: Cache | None = None) -> torch.Tensor | None:
    """The mask (B, K) bool of the kernel, or terms (B, 1, 1, K) of scores; None if there is nothing to hide."""
    # causal attention never sees padding after a sequence's tokens
    if (config.is_causal and cache is None) or (not in_graph() and bool(mask.all())):
        return None
    return mask if config._attn_implementation == "triton" else torch.where(mask, 0.0, -torch.inf)[:, None, None]


class RoutingAttention(Attention):
    """Softmax over content alone ("absolute"); positions are in the embeddings. Subclasses attend in other ways."""

    def __init__(self, config):
        # the reference draws keys and values as one matrix
        fans = (config.hidden_size, 2 * config.num_attention_heads * config.head_dim)
        super().__init__(config, initializers=(partial(uniform_between, fans=fans), torch_default))
        self.q_proj.initializer = uniform_between

    def dropped(self, keys: torch.Tensor) -> torch.Tensor:
        """Keys with dropout; softmax over content drops probabilities instead."""
        config = self.config
        return keys if config.attention == "absolute" else dropout(keys, config.attention_dropout, self.training)

    def terms(self, states: torch.Tensor) -> list[torch.Tensor]:
        """Further inputs of scores from states (..., E), (..., T) each."""
        return []

    def compute_attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, context: RoutingContext, *terms: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Queries (B, H, Q, D), keys and values (B, H, K, D), terms (B, Q, T) -> (B, Q, H, D), and weights if any."""
        return self.attend(query, key, value, context.attention_mask, self.config.is_causal)

    def forward(self, states: torch.Tensor, context) -> AttentionOutput:
        """One step of states (B, Q, E) in a `RoutingContext`, or of packed tokens (N, E) in its `GroupedRows`.

        Its result is (B * Q or N, E).
        """
        tokens, shape = states.flatten(0, -2), (*states.shape[:-1], -1, self.head_dim)
        query, key, value = (project(tokens).view(shape) for project in (self.q_proj, self.k_proj, self.v_proj))
        terms = self.terms(states)
        if isinstance(context, RoutingContext):
            query, key, value = (projected.transpose(1, 2) for projected in (query, key, value))
            if context.past is not None:
                key, value = context.past.extended(key, value)
            attended, weights = self.compute_attention(query, self.dropped(key), value, context, *terms)
        else:
            attended, weights = self.attend_groups((query, self.dropped(key), value, *terms), context), None
        return AttentionOutput(self.o_proj(attended.reshape(tokens.shape[0], -1)), weights, key, value)

    # between graphs, as `PackedContext.attend`
    @torch.compiler.disable
    def attend_groups(self, projected: tuple[torch.Tensor, ...], grouped) -> torch.Tensor:
        """Attention of packed projections (N, ...) -> (N, H, D)."""
        rows = []
        for group in grouped.groups:
            query, key, value, *terms = (grouped.spread(states, group) for states in projected)
            heads = (states.transpose(1, 2) for states in (query, key, value))
            rows.append(self.compute_attention(*heads, group.context, *terms)[0])
        return grouped.gather(rows)


class GeometricAttention(RoutingAttention):
    """Every token attends to its nearest match (section 2.2); the preference for a side is learned.

    Matches are sigmoids of content and direction scores, see `geometric`.
    """

    def __init__(self, config):
        super().__init__(config)
        width, head_dim = config.hidden_size, config.head_dim
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.o_proj):
            # the reference initialises each head as a map of its own
            projection.initializer = partial(uniform_between, fans=(width, head_dim))
        self.direction = initialized_linear(width, 2 * config.num_attention_heads, torch_default)
        self.content_bias = nn.Parameter(torch.empty(config.num_attention_heads, head_dim))
        self.scale, self.direction_scale, self.match_bias = (nn.Parameter(torch.empty(1)) for _ in range(3))
        self.initializer = initialize_scores

    def terms(self, states: torch.Tensor) -> list[torch.Tensor]:
        return [torch.addcmul(self.match_bias, self.direction_scale, self.direction(states))]

    def compute_attention(self, query, key, value, context, terms):
        left, right = terms.view(*terms.shape[:-1], -1, 2).permute(3, 0, 2, 1).unbind()
        query = torch.addcmul(self.scale * self.content_bias[:, None], self.scale, query).to(key.dtype)
        options = context.attention_mask, self.config.is_causal, self.config.normalize_attention
        # a model created on a machine with a GPU may still run on the CPU
        if self.config._attn_implementation == "triton" and kernel_available(query.device):
            return geometric_attention_triton(query, key, value, left, right, *options).transpose(1, 2), None
        attended, weights = attend_nearest(query @ key.mT, value, left, right, *options)
        return attended.transpose(1, 2), weights


class RelativeAttention(RoutingAttention):
    """Softmax over content and distance (Transformer-XL), with one learned temperature for all heads.

    In "absolute_relative" attention every head gates, for each token, distances and absolute positions (appendix B).
    """

    def __init__(self, config):
        super().__init__(config)
        num_heads = config.num_attention_heads
        self.content_bias, self.position_bias = (
            nn.Parameter(torch.empty(num_heads, config.head_dim)) for _ in range(2)
        )
        self.scale = nn.Parameter(torch.empty(1))
        self.initializer, self.distance_gate = initialize_scores, None
        if config.attention == "absolute_relative":
            self.distance_gate = initialized_linear(config.hidden_size, num_heads, torch_default)

    def terms(self, states: torch.Tensor) -> list[torch.Tensor]:
        return [] if self.distance_gate is None else [self.distance_gate(states).sigmoid()]

    def compute_attention(self, query, key, value, context, terms=None):
        # scaled before the product, which could overflow in half precision
        biases = (self.content_bias, self.position_bias)
        content_query, position_query = (self.scale * (query + bias[:, None]) for bias in biases)
        num_keys, longest = key.shape[2], context.position_keys.shape[1] // 2 + 1
        last = longest - 1 + (query.shape[2] if terms is None else num_keys)
        position_keys = self.dropped(context.position_keys[:, longest - num_keys : last].to(query.dtype))
        # as one matrix of queries for each head
        by_offset = torch.bmm(position_query.transpose(0, 1).flatten(1, 2), position_keys.mT)
        by_offset = by_offset.unflatten(1, query.shape[::2]).transpose(0, 1)
        positions = by_distance(by_offset, num_keys)
        if terms is not None:
            by_place = by_offset[..., num_keys - 1 :]
            if context.places is not None:
                by_place = by_place.take_along_dim(context.places[:, None, None], -1)
            positions = torch.lerp(by_place, positions, terms.transpose(1, 2)[..., None].to(by_place.dtype))
        scores = content_query @ key.mT + positions
        if context.attention_mask is not None:
            scores = scores + context.attention_mask
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
        return (weights @ value).transpose(1, 2), weights


ATTENTIONS = {
    "absolute": RoutingAttention,
    "relative": RelativeAttention,
    "absolute_relative": RelativeAttention,
    "geometric": GeometricAttention,
}


def initialize_scores(attention: nn.Module) -> None:
    """Initialise biases of scores to zero, and their scales to those of plain attention."""
    scales = {"scale": attention.scaling, "direction_scale": 1.0}
    for name, parameter in attention.named_parameters(recurse=False):
        init.constant_(parameter, scales.get(name, 0.0))


def by_distance(scores: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Scores against K keys (B, H, Q, K), from those against the keys of offsets `j - i` from 1 - K on (B, H, Q, P)."""
    num_queries = scores.shape[2]
    # the last query sees offsets 1 - K to 0, the first one Q - K to Q - 1
    if num_queries > 1:
        if in_graph():
            # of two tokens the rows below would be read whole, and a graph be tied to whether there are two
            scores = nn.functional.pad(scores, (0, 1))
        width = scores.shape[-1]
        # row i starts Q - 1 - i columns later: reading rows one column shorter aligns all starts
        shifted = scores.flatten(-2)[..., num_queries - 1 : num_queries * width - 1]
        scores = shifted.unflatten(-1, (num_queries, width - 1))
    return scores[..., :num_keys]
