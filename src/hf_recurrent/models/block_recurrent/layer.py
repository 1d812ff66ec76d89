"""One layer of a Block-Recurrent Transformer: sliding-window attention, and what it reads and updates besides.

Shapes: B rows, n tokens of a stretch, m blocks, Q queries of a block, W tokens of a block, S state vectors, H heads, D
head dim, E width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from ..common.initialization import initialized_linear, truncated_normal
from ..common.layers import Dropout
from ..ops.attention import KeyValue
from .block_layout import Stretch
from .external_memory import ExternalMemory, Slots
from .scaled_attention import HeadScales, PositionBias, ScaledAttention, unit, window_bias
from .state_cell import StateCell


class BlockOutput(NamedTuple):
    """What a layer makes of a stretch.

    `kept` is what it leaves for later calls, under the names of `BlockCache`.
    """

    hidden_states: torch.Tensor  # (B, n, E)
    kept: dict[str, torch.Tensor]
    attentions: torch.Tensor | None  # (B, H, n, 2W), eager attention only
    read_attentions: torch.Tensor | None  # (B, H, n, S), where states are read
    states: list[torch.Tensor]  # (B, S, E) after each block, of recurrent layers
    forgotten: list[torch.Tensor]  # (B, S, E) share of each state unit that a block's update forgets


class WindowAttention(ScaledAttention):
    """Tokens of a block attend to the W tokens before each; some layers also read state vectors.

    Softmax over both is apart; a map of what both found, side by side, is added to the tokens (section 3.1).
    """

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx)
        size, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        reads_states = config.feedback or layer_idx in config.recurrent_indices
        remembers = layer_idx in config.memory_indices
        self.q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.k_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.v_proj = initialized_linear(size, inner, truncated_normal, bias=False)
        self.scales = HeadScales(config)
        self.position_bias = None if remembers and not config.memory_position_bias else PositionBias(config)
        self.memory = ExternalMemory(config) if remembers else None
        self.state_q_proj = self.state_scales = None
        if reads_states:
            self.state_q_proj = initialized_linear(size, inner, truncated_normal, bias=False)
            self.state_scales = HeadScales(config)
        self.o_proj = initialized_linear((1 + reads_states) * inner, size, truncated_normal, bias=False)

    def bias(self) -> torch.Tensor:
        """(H, W, 2W); the learned scale of a head counts for positions too."""
        scales = self.scales()[:, None]
        if self.position_bias is None:
            by_distance = torch.zeros_like(scales).expand(-1, self.config.window_size)
        else:
            by_distance = self.position_bias() * scales
        return window_bias(by_distance)

    def attend_window(
        self, query: torch.Tensor, tokens: KeyValue, stretch: Stretch
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scaled queries (B, n, H, D), tokens (B, (m + 1) W, H, D) -> (B, n, H, D), weights (B * m, H, Q, 2W)."""
        windows = (stretch.windows(states) for states in tokens)
        p = self.config.attention_dropout
        attended, weights = self.attend(stretch.queries(query), *windows, stretch.bias(self.bias()), p)
        return stretch.rows(attended), weights

    def read_states(
        self, hidden: torch.Tensor, views: list[KeyValue], stretch: Stretch
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Tokens (B, n, E) of each block read its own states -> (B, n, H, D), weights (B * m, H, Q, S)."""
        query = self.state_scales.scaled(unit(self.heads(self.state_q_proj(hidden))))
        if len(views) == 1:
            states = views[0]
        else:
            states = KeyValue(*(torch.stack(tensors, dim=1).flatten(0, 1) for tensors in zip(*views, strict=True)))
        attended, weights = self.attend(stretch.queries(query), *states)
        return stretch.rows(attended), weights

    def recall(
        self, attended: torch.Tensor, query: torch.Tensor, tokens: KeyValue, slots: Slots, stretch: Stretch
    ) -> tuple[torch.Tensor, Slots]:
        """Mix in what each block retrieves of the blocks before it; then remember it, if it is complete."""
        pieces, step = [], query.shape[1] // stretch.num_blocks
        for block in range(stretch.num_blocks):
            part = slice(block * step, (block + 1) * step)
            pieces.append(self.memory(attended[:, part], query[:, part], self.scales(), slots))
            if stretch.complete[block]:
                rows = stretch.completed(block)
                rows = torch.ones_like(slots.count, dtype=torch.bool) if rows is None else rows
                window = stretch.window(tokens, block)
                slots = slots.write(*(states[:, stretch.width :] for states in window), rows)
        return torch.cat(pieces, dim=1), slots


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
        stretch: Stretch,
        past: dict[str, torch.Tensor],
        view: KeyValue | None = None,
    ) -> BlockOutput:
        """Args:
        hidden_states: (B, n, E) tokens of the stretch.
        past: what the cache holds of this layer, `previous_key` and `previous_value` at least.
        view: with feedback, what all layers read of the states before the (one) block.
        """
        attention = self.attention
        hidden = self.dropout(self.attention_norm(hidden_states))
        query = unit(attention.heads(attention.q_proj(hidden)))
        new = KeyValue(
            unit(attention.heads(attention.k_proj(hidden))),
            attention.heads(attention.v_proj(hidden)),
        )
        tokens, kept = self.tokens(new, past, stretch)
        attended, weights = attention.attend_window(attention.scales.scaled(query), tokens, stretch)
        if attention.memory is not None:
            attended, kept_memory = self.recall(attended, query, tokens, past, stretch)
            kept |= kept_memory
        views, states, forgotten = [view], [], []
        if self.state_cell is not None:
            views, states, forgotten = self.run_states(tokens, past, view, stretch)
            kept["state"] = states[-1] if states else past["state"]
            if not torch.is_grad_enabled() and not stretch.complete[-1]:
                kept["state_key"], kept["state_value"] = views[-1]
        read_weights = None
        if attention.state_q_proj is not None:
            read, read_weights = attention.read_states(hidden, views, stretch)
            attended = torch.cat((attended, read), dim=2)
        updated = hidden_states + attention.o_proj(attended.flatten(-2))
        inner = self.up_proj(self.feed_forward_norm(updated)).relu()
        updated = updated + self.dropout(self.down_proj(inner))
        weights = [None if w is None else by_token(w, stretch) for w in (weights, read_weights)]
        return BlockOutput(updated, kept, *weights, states, forgotten)

    @staticmethod
    def tokens(
        new: KeyValue, past: dict[str, torch.Tensor], stretch: Stretch
    ) -> tuple[KeyValue, dict[str, torch.Tensor]]:
        """Keys and values (B, (m + 1) W, H, D) of the block before and the stretch, and what is kept of them."""
        tensors, kept = [], {}
        for name, states in zip(("key", "value"), new, strict=True):
            merged = stretch.merged(states, past.get(name))
            previous = past[f"previous_{name}"]
            tensors.append(torch.cat((previous.to(merged.dtype), merged), dim=1))
            last, begun = stretch.last_blocks(tensors[-1])
            kept[f"previous_{name}"] = last
            if begun is not None:
                kept[name] = begun
        return KeyValue(*tensors), kept

    def recall(
        self,
        attended: torch.Tensor,
        query: torch.Tensor,
        tokens: KeyValue,
        past: dict[str, torch.Tensor],
        stretch: Stretch,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        names = ("memory_key", "memory_value", "memory_count")
        slots = Slots(*(past[name] for name in names)) if names[0] in past else None
        slots = Slots.empty(tokens.key.detach(), self.memory_size) if slots is None else slots
        attended, slots = self.attention.recall(attended, query, tokens, slots, stretch)
        return attended, dict(zip(names, slots, strict=True))

    def run_states(
        self, tokens: KeyValue, past: dict[str, torch.Tensor], view: KeyValue | None, stretch: Stretch
    ) -> tuple[list[KeyValue], list[torch.Tensor], list[torch.Tensor]]:
        """What the tokens of each block read, the states after each, and what its update forgot."""
        cell, state = self.state_cell, past["state"]
        if view is None and "state_key" in past and not torch.is_grad_enabled():
            view = KeyValue(past["state_key"], past["state_value"])
        views, states, forgotten = [], [], []
        for block in range(stretch.num_blocks):
            view = cell.keys_values(state) if view is None else view
            views.append(view)
            if stretch.complete[block]:
                updated, kept = cell.update(state, view, stretch.window(tokens, block))
                rows = stretch.completed(block)
                share = (1.0 - kept).expand_as(updated)
                if rows is not None:
                    updated = torch.where(rows[:, None, None], updated, state)
                    share = torch.where(rows[:, None, None], share, 0.0)
                state = updated
                forgotten.append(share)
                states.append(state)
                view = None
        return views, states, forgotten


def by_token(weights: torch.Tensor, stretch: Stretch) -> torch.Tensor:
    """(B * m, H, Q, K) -> (B, H, n, K)."""
    return stretch.rows(weights.transpose(1, 2)).transpose(1, 2)


class Run(NamedTuple):
    """What the layers made of a stretch."""

    hidden_states: list[torch.Tensor]  # L + 1 of (B, n, E), the input first
    layers: list[BlockOutput]


def joined(runs: list[Run]) -> Run:
    """Of one block after the other, what they are together."""
    if len(runs) == 1:
        return runs[0]
    layers = []
    for outputs in zip(*(run.layers for run in runs), strict=True):
        weights = [
            None if pieces[0] is None else torch.cat(pieces, dim=2)
            for pieces in zip(*((o.attentions, o.read_attentions) for o in outputs), strict=True)
        ]
        states, forgotten = ([t for o in outputs for t in getattr(o, name)] for name in ("states", "forgotten"))
        layers.append(BlockOutput(None, None, *weights, states, forgotten))
    hidden = [torch.cat(pieces, dim=1) for pieces in zip(*(run.hidden_states for run in runs), strict=True)]
    return Run(hidden, layers)
