"""Self-attention behind the `attn_implementation` switch, for padded batches and for packed live tokens.

Shapes: B batch rows, S tokens, Q queries per row, N packed tokens, H heads, D head dim, E width.
"""

from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .initialization import attention_input, initialized_linear, xavier
from .position import rotate


class PaddedContext(NamedTuple):
    """Where attention happens when queries and keys are the same padded (B, S) rectangle."""

    attention_mask: torch.Tensor | None  # as transformers' mask helpers build it for the implementation
    query_rotation: torch.Tensor  # (B, S, 1, h) complex
    key_rotation: torch.Tensor


class PackedContext(NamedTuple):
    """Where attention happens when only live tokens ask and some keys are frozen.

    `num_rows` rows of `key_width` columns hold the keys; queries are packed (N, E) and spread over
    `num_rows` x `query_width` slots for the kernel. Slots are flat indices, row-major.
    """

    attention_mask: torch.Tensor | None
    query_rotation: torch.Tensor  # (N, 1, h) complex
    key_rotation: torch.Tensor  # (M, 1, h) for the M tokens whose keys are new
    query_slots: torch.Tensor  # (N,)
    key_slots: torch.Tensor | None  # (M,), None when every slot has a new key and they are in order
    num_rows: int
    query_width: int
    key_width: int
    frozen_key: torch.Tensor | None  # (num_rows * key_width, H, D), None before the first step
    frozen_value: torch.Tensor | None
    varlen: dict[str, torch.Tensor | int] | None  # cumulative lengths for FlashAttention's packed kernels
    valid_keys: torch.Tensor | None  # flat indices of unpadded keys, for the same kernels


class AttentionOutput(NamedTuple):
    hidden_states: torch.Tensor
    weights: torch.Tensor | None
    key: torch.Tensor | None  # the key and value buffers to carry to the next step, packed contexts only
    value: torch.Tensor | None


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention written out: (B, H, Q, D) x (B, H, S, D) -> (B, Q, H, D) and weights (B, H, Q, S)."""
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def place(
    packed: torch.Tensor, slots: torch.Tensor | None, num_slots: int, base: torch.Tensor | None = None
) -> torch.Tensor:
    """Write packed (N, ...) into `num_slots` slots, over `base` or zeros; without `slots` they fill all, in order."""
    if slots is None:
        return packed
    if base is None:
        base = packed.new_zeros((num_slots, *packed.shape[1:]))
    return base.to(packed.dtype).index_copy(0, slots, packed)


class SelfAttention(nn.Module):
    """Multi-head attention without biases, positions by xPos; head dims need not multiply up to the width.

    Keys and values may come from another stream of the same tokens than the queries: the Universal Transformer
    attends to the halting-weighted soft state (Algorithm 1).
    """

    is_causal = False

    def __init__(self, config, layer_idx: int = 0):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        inner_size = config.num_attention_heads * config.head_dim
        self.q_proj = initialized_linear(config.hidden_size, inner_size, attention_input, bias=False)
        self.k_proj = initialized_linear(config.hidden_size, inner_size, attention_input, bias=False)
        self.v_proj = initialized_linear(config.hidden_size, inner_size, attention_input, bias=False)
        self.o_proj = initialized_linear(inner_size, config.hidden_size, xavier, bias=False)

    def heads(self, projected: torch.Tensor) -> torch.Tensor:
        """(..., H * D) -> (..., H, D)."""
        return projected.unflatten(-1, (-1, self.head_dim))

    def forward(
        self, queries: torch.Tensor, source: torch.Tensor, context: PaddedContext | PackedContext
    ) -> AttentionOutput:
        query = rotate(self.heads(self.q_proj(queries)), context.query_rotation)
        key = rotate(self.heads(self.k_proj(source)), context.key_rotation)
        value = self.heads(self.v_proj(source))
        if isinstance(context, PaddedContext):
            attended, weights = self.attend(query, key, value, context.attention_mask)
            return AttentionOutput(self.o_proj(attended.flatten(-2)), weights, None, None)

        num_keys = context.num_rows * context.key_width
        key = place(key, context.key_slots, num_keys, context.frozen_key)
        value = place(value, context.key_slots, num_keys, context.frozen_value)
        if context.varlen is not None:
            packed = (
                query,
                key.index_select(0, context.valid_keys),
                value.index_select(0, context.valid_keys),
            )
            attended, _ = self.attend(*(states.unsqueeze(0) for states in packed), None, **context.varlen)
            attended = attended.squeeze(0)
        else:
            num_queries = context.num_rows * context.query_width
            # queries are in order: as many as there are slots fill them as they are
            in_order = query.shape[0] == num_queries
            padded = place(query, None if in_order else context.query_slots, num_queries)
            rows = (states.unflatten(0, (context.num_rows, -1)) for states in (padded, key, value))
            attended, _ = self.attend(*rows, context.attention_mask)
            attended = attended.flatten(0, 1)
            if not in_order:
                attended = attended.index_select(0, context.query_slots)
        return AttentionOutput(self.o_proj(attended.flatten(-2)), None, key, value)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Dispatch (B, Q, H, D) queries and (B, S, H, D) keys to the configured kernel -> (B, Q, H, D)."""
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        return attention(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attention_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            is_causal=False,
            **kwargs,
        )
