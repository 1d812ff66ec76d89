"""Memory slots, the recurrent state from chunk to chunk, with the attention to them and their update.

Shapes: B sequences, S tokens, M memory slots, H heads, D head dim, E width.
"""

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import Attention, KeyValue, PackedContext, Packing, PaddedContext
from .feed_forward import FeedForward
from .initialization import torch_default
from .layers import Dropout
from .masks import Mask
from .row_groups import Spread
from .transformer_block import TransformerBlock


class CrossAttention(Attention):
    """`x + Dropout(Attention(LN x, LN' source))` with two layer norms and without positions."""

    def __init__(self, config, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.query_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.source_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def project(self, source: torch.Tensor) -> KeyValue:
        """(B, K, E) -> keys and values (B, K, H, D)."""
        source = self.source_norm(source)
        return KeyValue(self.heads(self.k_proj(source)), self.heads(self.v_proj(source)))

    def forward(
        self,
        hidden_states: torch.Tensor,
        source: KeyValue,
        attention_mask: Mask | None = None,
        packing: Packing | None = None,
        queries: Spread | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(B, Q, E), or (N, E) packed at the places of `queries` -> the same shape.

        Unless they are packed, also weights (B, H, Q, K) of eager attention.
        """
        query, weights = self.heads(self.q_proj(self.query_norm(hidden_states))), None
        # a cache may come from a call in another precision
        source = KeyValue(*(states.to(query.dtype) for states in source))
        if packing is not None:
            attended = self.attend_packed(query, *source, packing, False)
        else:
            # only the query of a token is spread
            query = query if queries is None else queries.unpack(query)
            heads = (states.transpose(1, 2) for states in (query, *source))
            attended, weights = self.attend(*heads, attention_mask)
        if queries is not None:
            attended, weights = queries.gather(attended), None
        return hidden_states + self.dropout(self.o_proj(attended.flatten(-2))), weights

    def attend_memory(
        self, hidden_states: torch.Tensor, context: PaddedContext | PackedContext
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attention of a chunk's tokens to all memory slots of their sequence, as of `forward`."""
        memory = context.memory
        if isinstance(memory, torch.Tensor):
            memory = self.project(memory)
        return self(hidden_states, memory, queries=context.queries if isinstance(context, PackedContext) else None)


class MemoryBlock(TransformerBlock):
    """A block whose tokens attend to the memory slots after attending to each other (Algorithm 2)."""

    gathered_methods = ("keys_values", "project_memory")
    # as in the reference implementation
    initializer_of_maps = staticmethod(torch_default)

    def build_read(self, config, layer_idx: int) -> CrossAttention:
        return CrossAttention(config, layer_idx)

    def project_memory(self, memory: torch.Tensor) -> KeyValue:
        """Keys and values of memory slots: (B, M, E) -> (B, M, H, D) each."""
        return self.memory_read.project(memory)


class MemoryUpdate(GradientCheckpointingLayer):
    """Update of the memory after a chunk: `A = M + Attention(LN M, LN chunk); A + FFN(LN A)`.

    The inner width of the feed-forward network is E, as in the reference implementation.
    """

    def __init__(self, config, layer_idx: int = 0):
        super().__init__()
        self.attention = CrossAttention(config, layer_idx)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config.hidden_size, config.hidden_size, config.dropout, torch_default)

    def forward(
        self,
        memory: torch.Tensor,
        chunk: torch.Tensor,
        attention_mask: Mask | None = None,
        packing: Packing | None = None,
    ) -> torch.Tensor:
        """Slots (B, M, E) and the final states of a chunk (B, S, E) -> slots (B, M, E)."""
        attended, _ = self.attention(memory, self.attention.project(chunk), attention_mask, packing)
        return attended + self.feed_forward(self.feed_forward_norm(attended))
