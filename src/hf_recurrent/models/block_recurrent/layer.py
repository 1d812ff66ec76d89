"""One layer of a Block-Recurrent Transformer: attention to a sliding window, to state vectors and to external memory.

Shapes: B sequences, n places of a span, m blocks, Q queries of a block, W tokens of a block, S state vectors, H heads,
D head dim, E width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..ops.attention import KeyValue
from ..ops.flex_attention import is_flex
from ..ops.initialization import initialized_linear, truncated_normal
from ..ops.layers import Dropout
from ..ops.sharding import touch_all_parameters
from .block_layout import BlockSpan
from .external_memory import KNNAttention, KNNMemory
from .packed_blocks import PackedSpan
from .scaled_attention import HeadScales, PositionBias, ScaledAttention, WindowScores, l2_normalize, window_bias
from .state_cell import StateCell

Span = BlockSpan | PackedSpan


def with_first(tensor: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """(B, ...) with its first rows replaced by (b, ...)."""
    # `len` would fix the batch size of a traced graph
    rows = first.shape[0]
    return first if rows == tensor.shape[0] else torch.cat((first.to(tensor.dtype), tensor[rows:]))


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

    def bias_by_distance(self) -> torch.Tensor:
        """(H, W), of distances 1 to W; the learned scale of a head applies to position biases, too."""
        scales = self.scales()[:, None]
        if self.position_bias is None:
            return torch.zeros_like(scales).expand(-1, self.config.window_size)
        return self.position_bias() * scales

    def attend_window(
        self, query: torch.Tensor, tokens: KeyValue, span: Span
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scaled queries (..., H, D), tokens of `span.extend` -> (..., H, D), weights (B, H, n, 2W)."""
        by_distance = self.bias_by_distance()
        if is_flex(self.config):
            places = torch.arange(by_distance.shape[1], device=query.device)[None, :, None]
            groups = span.window_inputs(query, tokens, places)
            inputs = [(*states, WindowScores(by_distance, queries)) for *states, queries in groups]
        else:
            inputs = span.window_inputs(query, tokens, window_bias(by_distance))
        return self.attend_groups(inputs, span, self.config.attention_dropout)

    def attend_groups(
        self, inputs: list[tuple], span: Span, dropout: float = 0.0
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Arguments of `attend` for each group of blocks -> (..., H, D), weights (B, H, n, K)."""
        attended, weights = zip(*(self.attend(*each, dropout=dropout) for each in inputs), strict=True)
        return span.merge(list(attended)), span.merge_weights(list(weights))

    def attend_memory(
        self, attended: torch.Tensor, query: torch.Tensor, tokens: KeyValue, memory: KNNMemory, span: Span
    ) -> tuple[torch.Tensor, KNNMemory]:
        """Mix in attention to the memory, block by block; complete blocks are then written into it."""
        pieces = []
        for block in range(span.num_blocks):
            groups = [
                self.memory(*states, self.scales(), memory.of(rows))
                for rows, *states in span.memory_inputs(block, (attended, query))
            ]
            pieces.append(span.merge_memory(block, groups))
            if span.any_complete[block]:
                rows, completing = span.completing(block), span.completed_by(block)
                written = memory.of(rows)
                completing = torch.ones_like(written.count, dtype=torch.bool) if completing is None else completing
                window = span.window(tokens, block)
                written = written.write(*(states[:, span.width :] for states in window), completing)
                memory = KNNMemory(*map(with_first, memory, written))
        return torch.cat(pieces, dim=-3), memory


class BlockRecurrentLayer(GradientCheckpointingLayer):
    """`y = x + Wo [window attention; state attention](RMSNorm x); y + W2 ReLU(W1 RMSNorm y)` for tokens, and for the
    states of a recurrent layer `StateCell.update` after each block.

    What else is asked of its states is asked of the layer, whose parameters engines shard together.
    """

    gathered_methods = ("initial_state", "state_keys_values", "state_after")

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
        span: Span,
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
            reach_all = keys_values[-1].key.shape[0] == cached["state"].shape[0]
            if not torch.is_grad_enabled() and not span.any_complete[-1] and reach_all:
                cached["state_key"], cached["state_value"] = keys_values[-1]
        state_weights = None
        if attention.state_q_proj is not None:
            query = l2_normalize(attention.heads(attention.state_q_proj(hidden)))
            inputs = span.state_inputs(attention.state_scales.scale_queries(query), keys_values)
            from_states, state_weights = attention.attend_groups(inputs, span)
            attended = torch.cat((attended, from_states), dim=-2)
        updated = hidden_states + attention.o_proj(attended.flatten(-2))
        inner = self.up_proj(self.feed_forward_norm(updated)).relu()
        updated = updated + self.dropout(self.down_proj(inner))
        if self.state_cell is not None:
            # texts of some ranks may complete no block
            updated = touch_all_parameters(updated, self.state_cell)
        return LayerOutput(updated, cached, weights, state_weights, states, forgotten)

    def initial_state(self, batch_size: int, dtype: torch.dtype) -> torch.Tensor:
        """States (B, S, E) before the first block, which outlive a gathered parameter."""
        return self.state_cell.expand_initial_state(batch_size, dtype).clone()

    def state_keys_values(self, state: torch.Tensor) -> KeyValue:
        """Keys and values (B, S, H, D) of states (B, S, E)."""
        return self.state_cell.keys_values(state)

    def state_after(self, state: torch.Tensor, tokens: KeyValue, token_mask: torch.Tensor) -> torch.Tensor:
        """States (B, S, E) after a block; arguments as for `StateCell.update`."""
        return self.state_cell.update(state, self.state_cell.keys_values(state), tokens, token_mask).state

    @staticmethod
    def extend_window(
        new: KeyValue, past: dict[str, torch.Tensor], span: Span
    ) -> tuple[KeyValue, dict[str, torch.Tensor]]:
        """Keys and values of the previous block and the span, and those to be cached."""
        tensors, cached = [], {}
        for name, states in zip(("key", "value"), new, strict=True):
            extended, kept = span.extend(states, past, name)
            tensors.append(extended)
            cached |= kept
        return KeyValue(*tensors), cached

    def attend_memory(
        self,
        attended: torch.Tensor,
        query: torch.Tensor,
        tokens: KeyValue,
        past: dict[str, torch.Tensor],
        span: Span,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        names = ("memory_key", "memory_value", "memory_count")
        memory = KNNMemory(*(past[name] for name in names)) if names[0] in past else None
        if memory is None:
            memory = KNNMemory.empty(past["previous_key"].to(tokens.key.dtype).detach(), self.memory_size)
        attended, memory = self.attention.attend_memory(attended, query, tokens, memory, span)
        return attended, dict(zip(names, memory, strict=True))

    def run_states(
        self, tokens: KeyValue, past: dict[str, torch.Tensor], feedback: KeyValue | None, span: Span
    ) -> tuple[list[KeyValue], list[torch.Tensor], list[torch.Tensor]]:
        """Keys and values of the states before each block, the states after it, and the share that it overwrites."""
        cell, state, before = self.state_cell, past["state"], feedback
        if before is None and "state_key" in past and not torch.is_grad_enabled():
            before = KeyValue(*(past[name][span.present(0)] for name in ("state_key", "state_value")))
        keys_values, states, forgotten = [], [], []
        for block in range(span.num_blocks):
            before = cell.keys_values(state[span.present(block)]) if before is None else before
            keys_values.append(before)
            if span.any_complete[block]:
                rows, completing = span.completing(block), span.completed_by(block)
                own = KeyValue(*(tensor[rows] for tensor in before))
                updated, retained = cell.update(state[rows], own, span.window(tokens, block))
                share = (1.0 - retained).expand_as(updated)
                if completing is not None:
                    updated = torch.where(completing[:, None, None], updated, state)
                    share = torch.where(completing[:, None, None], share, 0.0)
                state, before = with_first(state, updated), None
                forgotten.append(share)
                states.append(state)
        return keys_values, states, forgotten


# of all layers for one span: L + 1 states (B, n, E), the input first, and the layers' outputs
SpanOutput = tuple[list[torch.Tensor], list[LayerOutput]]


def concatenate_spans(spans: list[SpanOutput]) -> SpanOutput:
    """One output of consecutive spans."""
    if len(spans) == 1:
        return spans[0]
    layers = []
    states_of_spans, layers_of_spans = zip(*spans, strict=True)
    for outputs in zip(*layers_of_spans, strict=True):
        weights = [
            None if pieces[0] is None else torch.cat(pieces, dim=2)
            for pieces in zip(*((o.attentions, o.read_attentions) for o in outputs), strict=True)
        ]
        states, forgotten = ([t for o in outputs for t in getattr(o, name)] for name in ("states", "forgotten"))
        layers.append(LayerOutput(None, None, *weights, states, forgotten))
    return [torch.cat(pieces, dim=-2) for pieces in zip(*states_of_spans, strict=True)], layers
