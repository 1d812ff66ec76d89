"""One layer of a Block-Recurrent Transformer: attention to a sliding window, to state vectors and to external memory.

Shapes: B sequences, n places of a span, m blocks, Q queries of a block, W tokens of a block, S state vectors, H heads,
D head dim, E width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..common.initialization import initialized_linear, truncated_normal
from ..common.layers import Dropout
from ..ops.attention import KeyValue
from .block_layout import BlockSpan
from .external_memory import KNNAttention, KNNMemory
from .scaled_attention import HeadScales, PositionBias, ScaledAttention, l2_normalize, window_bias
from .state_cell import StateCell


class LayerOutput(NamedTuple):
    """Output of a layer for one span."""

    hidden_states: torch.Tensor  # (B, n, E)
    cached: dict[str, torch.Tensor]  # for later calls, under the names of `BlockCache`
    attentions: torch.Tensor | None  # (B, H, n, 2W), eager attention only
    read_attentions: torch.Tensor | None  # (B, H, n, S) attention to states, eager attention only
    states: list[torch.Tensor]  # (B, S, E) after each block, of recurrent layers
    forgotten: list[torch.Tensor]  # (B, S, E) share of each state unit that a block's update overwrites


class WindowAttention(ScaledAttention):
    """Each token of a block attends to the W tokens before it, in some layers also to state vectors.

    Each has a softmax of its own; the results are concatenated and projected (section 3.1).
    """

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        attends_to_states = config.feedback or layer_idx in config.recurrent_indices
        has_memory = layer_idx in config.memory_indices
        self.q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.k_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.v_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.scales = HeadScales(config)
        self.position_bias = None if has_memory and not config.memory_position_bias else PositionBias(config)
        self.memory = KNNAttention(config) if has_memory else None
        self.state_q_proj = self.state_scales = None
        if attends_to_states:
            self.state_q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
            self.state_scales = HeadScales(config)
        self.o_proj = initialized_linear((1 + attends_to_states) * inner, size, truncated_normal, bias=False)

    def bias(self) -> torch.Tensor:
        """(H, W, 2W); the learned scale of a head applies to position biases, too."""
        scales = self.scales()[:, None]
        if self.position_bias is None:
            by_distance = torch.zeros_like(scales).expand(-1, self.config.window_size)
        else:
            by_distance = self.position_bias() * scales
        return window_bias(by_distance)

    def attend_window(
        self, query: torch.Tensor, tokens: KeyValue, span: BlockSpan
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scaled queries (B, n, H, D), tokens (B, (m + 1) W, H, D) -> (B, n, H, D), weights (B * m, H, Q, 2W)."""
        windows = (span.windows(states) for states in tokens)
        p = self.config.attention_dropout
        attended, weights = self.attend(span.split_blocks(query), *windows, span.query_bias(self.bias()), p)
        return span.merge_blocks(attended), weights

    def attend_states(
        self, hidden: torch.Tensor, states: list[KeyValue], span: BlockSpan
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens (B, n, E) attend to the states before their block -> (B, n, H, D), weights (B * m, H, Q, S)."""
        query = self.state_scales.scale_queries(l2_normalize(self.heads(self.state_q_proj(hidden))))
        if len(states) == 1:
            keys_values = states[0]
        else:
            by_block = (torch.stack(tensors, dim=1).flatten(0, 1) for tensors in zip(*states, strict=True))
            keys_values = KeyValue(*by_block)
        attended, weights = self.attend(span.split_blocks(query), *keys_values)
        return span.merge_blocks(attended), weights

    def attend_memory(
        self, attended: torch.Tensor, query: torch.Tensor, tokens: KeyValue, memory: KNNMemory, span: BlockSpan
    ) -> tuple[torch.Tensor, KNNMemory]:
        """Mix in attention to the memory, block by block; complete blocks are then written into it."""
        pieces, step = [], query.shape[1] // span.num_blocks
        for block in range(span.num_blocks):
            part = slice(block * step, (block + 1) * step)
            pieces.append(self.memory(attended[:, part], query[:, part], self.scales(), memory))
            if span.any_complete[block]:
                completing = span.completed_by(block)
                completing = torch.ones_like(memory.count, dtype=torch.bool) if completing is None else completing
                window = span.window(tokens, block)
                memory = memory.write(*(states[:, span.width :] for states in window), completing)
        return torch.cat(pieces, dim=1), memory


class BlockRecurrentLayer(GradientCheckpointingLayer):
    """`y = x + Wo [window attention; state attention](RMSNorm x); y + W2 ReLU(W1 RMSNorm y)` for tokens, and for the
    states of a recurrent layer `StateCell.update` after each block.
    """

    def __init__(self, config, layer_idx: int):
        super().__init__()
        size = config.hidden_size
        self.memory_size = config.memory_size
        self.attention_norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.attention = WindowAttention(config, layer_idx)
        self.feed_forward_norm = nn.RMSNorm(size, eps=config.layer_norm_eps)
        self.up_proj = initialized_linear(size, config.intermediate_size, truncated_normal, bias=False)
        self.down_proj = initialized_linear(config.intermediate_size, size, truncated_normal, bias=False)
        self.dropout = Dropout(config.dropout)
        self.state_cell = StateCell(config, layer_idx) if layer_idx in config.recurrent_indices else None

    def forward(
        self,
        hidden_states: torch.Tensor,
        span: BlockSpan,
        past: dict[str, torch.Tensor],
        feedback: KeyValue | None = None,
    ) -> LayerOutput:
        """Apply the layer to a span of blocks.

        Args:
            hidden_states: (B, n, E) tokens of the span.
            past: cached tensors of this layer, `previous_key` and `previous_value` at least.
            feedback: in models with feedback the keys and values of the states before the (one) block.
        """
        attention = self.attention
        hidden = self.dropout(self.attention_norm(hidden_states))
        query = l2_normalize(attention.heads(attention.q_proj(hidden)))
        new = KeyValue(
            l2_normalize(attention.heads(attention.k_proj(hidden))),
            attention.heads(attention.v_proj(hidden)),
        )
        tokens, cached = self.extend_window(new, past, span)
        attended, weights = attention.attend_window(attention.scales.scale_queries(query), tokens, span)
        if attention.memory is not None:
            attended, cached_memory = self.attend_memory(attended, query, tokens, past, span)
            cached |= cached_memory
        keys_values, states, forgotten = [feedback], [], []
        if self.state_cell is not None:
            keys_values, states, forgotten = self.run_states(tokens, past, feedback, span)
            cached["state"] = states[-1] if states else past["state"]
            if not torch.is_grad_enabled() and not span.any_complete[-1]:
                cached["state_key"], cached["state_value"] = keys_values[-1]
        state_weights = None
        if attention.state_q_proj is not None:
            from_states, state_weights = attention.attend_states(hidden, keys_values, span)
            attended = torch.cat((attended, from_states), dim=2)
        updated = hidden_states + attention.o_proj(attended.flatten(-2))
        inner = self.up_proj(self.feed_forward_norm(updated)).relu()
        updated = updated + self.dropout(self.down_proj(inner))
        weights = [None if w is None else merge_weights(w, span) for w in (weights, state_weights)]
        return LayerOutput(updated, cached, *weights, states, forgotten)

    @staticmethod
    def extend_window(
        new: KeyValue, past: dict[str, torch.Tensor], span: BlockSpan
    ) -> tuple[KeyValue, dict[str, torch.Tensor]]:
        """Keys and values (B, (m + 1) W, H, D) of the previous block and the span, and those to be cached."""
        tensors, cached = [], {}
        for name, states in zip(("key", "value"), new, strict=True):
            merged = span.insert_cached(states, past.get(name))
            previous = past[f"previous_{name}"]
            tensors.append(torch.cat((previous.to(merged.dtype), merged), dim=1))
            cached[f"previous_{name}"], incomplete = span.last_blocks(tensors[-1])
            if incomplete is not None:
                cached[name] = incomplete
        return KeyValue(*tensors), cached

    def attend_memory(
        self,
        attended: torch.Tensor,
        query: torch.Tensor,
        tokens: KeyValue,
        past: dict[str, torch.Tensor],
        span: BlockSpan,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        names = ("memory_key", "memory_value", "memory_count")
        memory = KNNMemory(*(past[name] for name in names)) if names[0] in past else None
        memory = KNNMemory.empty(tokens.key.detach(), self.memory_size) if memory is None else memory
        attended, memory = self.attention.attend_memory(attended, query, tokens, memory, span)
        return attended, dict(zip(names, memory, strict=True))

    def run_states(
        self, tokens: KeyValue, past: dict[str, torch.Tensor], feedback: KeyValue | None, span: BlockSpan
    ) -> tuple[list[KeyValue], list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of the states before each block, the states after it, and the share that it overwrites."""
        cell, state, before = self.state_cell, past["state"], feedback
        if before is None and "state_key" in past and not torch.is_grad_enabled():
            before = KeyValue(past["state_key"], past["state_value"])
        keys_values, states, forgotten = [], [], []
        for block in range(span.num_blocks):
            before = cell.keys_values(state) if before is None else before
            keys_values.append(before)
            if span.any_complete[block]:
                updated, retained = cell.update(state, before, span.window(tokens, block))
                completing = span.completed_by(block)
                share = (1.0 - retained).expand_as(updated)
                if completing is not None:
                    updated = torch.where(completing[:, None, None], updated, state)
                    share = torch.where(completing[:, None, None], share, 0.0)
                state, before = updated, None
                forgotten.append(share)
                states.append(state)
        return keys_values, states, forgotten


def merge_weights(weights: torch.Tensor, span: BlockSpan) -> torch.Tensor:
    """(B * m, H, Q, K) -> (B, H, n, K)."""
    return span.merge_blocks(weights.transpose(1, 2)).transpose(1, 2)


class SpanOutput(NamedTuple):
    """Output of all layers for one span."""

    hidden_states: list[torch.Tensor]  # L + 1 of (B, n, E), the input first
    layers: list[LayerOutput]


def concatenate_spans(spans: list[SpanOutput]) -> SpanOutput:
    """One output of consecutive spans."""
    if len(spans) == 1:
        return spans[0]
    layers = []
    for outputs in zip(*(span.layers for span in spans), strict=True):
        weights = [
            None if pieces[0] is None else torch.cat(pieces, dim=2)
            for pieces in zip(*((o.attentions, o.read_attentions) for o in outputs), strict=True)
        ]
        states, forgotten = ([t for o in outputs for t in getattr(o, name)] for name in ("states", "forgotten"))
        layers.append(LayerOutput(None, None, *weights, states, forgotten))
    hidden = [torch.cat(pieces, dim=1) for pieces in zip(*(span.hidden_states for span in spans), strict=True)]
    return SpanOutput(hidden, layers)
