"""Attention behind the `attn_implementation` switch, for padded batches, cached tokens and packed live tokens.

Shapes: B sequences, S tokens, Q queries per sequence, K keys per sequence, N packed tokens, H heads, D head dim,
E width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn

from .flex_attention import attention_function
from .initialization import Initializer, attention_input, initialized_linear, xavier
from .masks import Mask, aligned_mask, is_flash, key_mask, mapped, rows_of
from .positions import rotate, rotate_halves
from .row_groups import GroupedRows, Spread, grouped_rows, place


class KeyValue(NamedTuple):
    """Projected keys and values, (B, K, H, D) each."""

    key: torch.Tensor
    value: torch.Tensor

    def select(self, rows: torch.Tensor) -> "KeyValue":
        return KeyValue(*(states.index_select(0, rows) for states in self))


class Rotations(NamedTuple):
    """Tables of queries and keys, (B, S, 1, h) complex each, or (1, S, 1, h) if all sequences share them.

    None where attention has no rotations.
    """

    query: torch.Tensor | None
    key: torch.Tensor | None

    def select(self, rows: torch.Tensor, start: int, stop: int) -> "Rotations":
        """Keep `rows` (n,) and the columns `start:stop`."""
        if self.query is None:
            return self
        shared = self.query.shape[0] == 1
        columns = (table[:, start:stop] for table in self)
        return Rotations(*(table if shared else table.index_select(0, rows) for table in columns))

    def of_tokens(self, units: torch.Tensor) -> "Rotations":
        """Tables (N, 1, h) of the tokens with these numbers (N,)."""
        if self.query is None:
            return self
        shared, length = self.query.shape[0] == 1, self.query.shape[1]
        index = units % length if shared else units
        return Rotations(*(table.flatten(0, 1).index_select(0, index) for table in self))


NO_ROTATIONS = Rotations(None, None)


class KeptKeyValue(NamedTuple):
    """Keys and values (B, H, Q, D) of an earlier step, which tokens that have stopped keep.

    `kept` (B, Q) bool says which tokens have.
    """

    kept: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    def over(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """New keys and values (B, H, Q, D), but for tokens that keep theirs."""
        kept = self.kept[:, None, :, None]
        return torch.where(kept, self.key.to(key.dtype), key), torch.where(kept, self.value.to(value.dtype), value)


class Packing(NamedTuple):
    """Sequences without their padding, end to end, for FlashAttention's packed kernels."""

    queries: torch.Tensor  # flat indices of valid queries in (B, Q)
    keys: torch.Tensor  # flat indices of valid keys in (B, K)
    arguments: dict[str, torch.Tensor | int]


class PaddedContext(NamedTuple):
    """Inputs of attention, besides states, if queries and keys are padded rectangles."""

    attention_mask: Mask | None  # as transformers' mask helpers build it for the implementation
    rotations: Rotations
    # keys and values of earlier tokens; of each layer, where a step has several
    past: tuple | None = None
    key_scale: torch.Tensor | None = None  # (P + Q, D) xPos decay of all keys, where cached keys are rotated only
    packing: Packing | None = None
    memory: "KeyValue | torch.Tensor | None" = None  # (B, M, E) memory slots, or their projection
    # of tokens that have stopped; of each layer
    kept: KeptKeyValue | tuple[KeptKeyValue, ...] | None = None
    window_mask: Mask | None = None  # of layers that see a window of keys

    @property
    def spreads_queries(self) -> bool:
        """Whether queries of some rows can be among keys of all."""
        return True

    def of_layer(self, number: int, num_layers: int) -> "PaddedContext":
        """The context of one of the layers of a step, of which each has keys of its own."""
        past = self.past if self.past is None or num_layers == 1 else self.past[number]
        return self._replace(past=past, kept=None if self.kept is None else self.kept[number])

    def select(
        self, config, states: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor, start: int, stop: int
    ) -> "PaddedContext":
        """The context of `rows` (n,) and the columns `start:stop`, whose states are (n, W, E) and mask (n, W)."""
        return self._replace(
            attention_mask=key_mask(config, states, mask),
            rotations=self.rotations.select(rows, start, stop),
            memory=select_memory(self.memory, rows),
        )

    def of_rows(self, rows: torch.Tensor) -> "PaddedContext":
        """The context of `rows` (n,) in all columns, with the same mask."""
        return self._replace(
            attention_mask=rows_of(self.attention_mask, rows),
            rotations=Rotations(*(rows_of(table, rows) for table in self.rotations)),
            memory=select_memory(self.memory, rows),
        )

    def packed(self, config, mask: torch.Tensor, places: torch.Tensor) -> "PackedContext":
        """The context of the tokens alone, which are at `places` (N,) of the mask (R, W)."""
        rotations = self.rotations.of_tokens(places)
        queries = Spread.at(places, *mask.shape)
        scale = None if self.key_scale is None else self.key_scale[places % mask.shape[1]][:, None]
        context = PackedContext(rotations.query, rotations.key, queries, memory=self.memory, key_scale=scale)
        if is_flash(config):
            lengths = mask.sum(-1)
            return replace(context, varlen=varlen_arguments(lengths, lengths))
        return replace(context, grouped=grouped_rows(mask, places, lambda seen, _: aligned_mask(config, seen)))


@dataclass(frozen=True)
class PackedContext:
    """Inputs of attention, besides states, if only live tokens are queries and keys of others may be frozen.

    Queries are packed (N, E), and spread for the kernels. Keys are those of the same tokens, or are kept in a buffer of
    places, row-major. With gradients, each step makes a buffer of new keys and pieces of frozen ones: a checkpointed
    step then keeps the pieces alone.
    """

    query_rotation: torch.Tensor  # (N, 1, h) complex
    key_rotation: torch.Tensor  # (M, 1, h) for the M tokens whose keys are new
    queries: Spread  # in rows of one width, for attention to memory slots
    grouped: GroupedRows | None = None  # queries in rows for the kernel; None with `varlen`
    key_places: torch.Tensor | None = None  # (M,), None when every place has a new key and they are in order
    # (num_key_places,) of new keys followed by pieces, the one at each place; None likewise
    key_tokens: torch.Tensor | None = None
    num_key_places: int = 0  # 0 without a buffer
    # (num_key_places, H, D), None before the first step; or pieces (F, H, D)
    frozen_key: torch.Tensor | tuple[torch.Tensor, ...] | None = None
    frozen_value: torch.Tensor | tuple[torch.Tensor, ...] | None = None
    varlen: dict[str, torch.Tensor | int] | None = None  # cumulative lengths for FlashAttention's packed kernels
    valid_keys: torch.Tensor | None = (
        None  # indices of unpadded keys, for the same kernels; None if there are no others
    )
    memory: "KeyValue | torch.Tensor | None" = None  # of the rows present
    key_scale: torch.Tensor | None = None  # (K, 1, D) xPos decay of all keys, where they are rotated only
    kept: torch.Tensor | None = None  # (M,) bool, tokens that have stopped and keep their keys; None if none do

    def of_layer(self, number: int, num_layers: int) -> "PackedContext":
        """The context of one of the layers of a step, whose frozen keys are side by side, as those of further heads."""
        frozen = (of_layer(states, number, num_layers) for states in (self.frozen_key, self.frozen_value))
        return replace(self, **dict(zip(("frozen_key", "frozen_value"), frozen, strict=True)))

    def of_step(self, layers: Sequence[KeyValue]) -> KeyValue:
        """Keys and values of a step for later ones, side by side, from those of its layers."""
        if self.frozen_key is not None and self.key_places is not None:
            # each layer has written into its part
            return KeyValue(self.frozen_key, self.frozen_value)
        return KeyValue(*(torch.cat(states, dim=1) for states in zip(*layers, strict=True)))

    def with_frozen(
        self, fresh: torch.Tensor, frozen: torch.Tensor | tuple[torch.Tensor, ...] | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """New keys or values (M, H, D), among frozen ones if there is a buffer, and what later steps need of them."""
        if not self.num_key_places:
            return fresh, fresh
        if self.kept is not None and frozen is not None:
            old = frozen if self.key_places is None else frozen.index_select(0, self.key_places)
            fresh = torch.where(self.kept[:, None, None], old.to(fresh.dtype), fresh)
        if isinstance(frozen, tuple):
            packed = torch.cat((fresh, *frozen)) if frozen else fresh
            return packed if self.key_tokens is None else packed.index_select(0, self.key_tokens), fresh
        buffer = place(fresh, self.key_places, self.num_key_places, frozen, overwrite=True)
        return buffer, buffer


class AttentionOutput(NamedTuple):
    """Keys and values are for later steps or calls: packed contexts' buffers, or new ones (M, H, D) where frozen ones
    are in pieces; (B, H, P + Q, D) of padded contexts.
    """

    hidden_states: torch.Tensor
    weights: torch.Tensor | None
    key: torch.Tensor
    value: torch.Tensor


def of_layer(states: torch.Tensor | None, number: int, num_layers: int, dim: int = 1) -> torch.Tensor | None:
    """The keys or values of a layer among those of several, side by side in dimension `dim`."""
    return None if states is None else states.unflatten(dim, (num_layers, -1)).select(dim, number)


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
    """Softmax attention written out: (B, H, Q, D) x (B, H, K, D) -> (B, Q, H, D) and weights (B, H, Q, K).

    Keys and values may have fewer heads, each of which serves as many successive heads of queries.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))
    scores = torch.matmul(query, key.transpose(-1, -2)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def select_memory(memory: KeyValue | torch.Tensor | None, rows: torch.Tensor) -> KeyValue | torch.Tensor | None:
    """Memory slots (B, M, E), or their projection, of `rows` (n,)."""
    if memory is None:
        return None
    return memory.index_select(0, rows) if isinstance(memory, torch.Tensor) else memory.select(rows)


def varlen_arguments(queries_per_row: torch.Tensor, keys_per_row: torch.Tensor) -> dict[str, torch.Tensor | int]:
    """FlashAttention's packed-sequence arguments: cumulative lengths (R + 1,) int32 and maximal lengths."""

    def ends(lengths: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))

    return {
        "cu_seq_lens_q": ends(queries_per_row),
        "cu_seq_lens_k": ends(keys_per_row),
        "max_length_q": int(queries_per_row.max()),
        "max_length_k": int(keys_per_row.max()),
    }


def pack(query_mask: torch.Tensor, key_mask: torch.Tensor) -> Packing:
    """Indices of (B, Q) queries and (B, K) keys without padding."""
    queries, keys = (mask.flatten().nonzero().squeeze(-1) for mask in (query_mask, key_mask))
    return Packing(queries, keys, varlen_arguments(query_mask.sum(-1), key_mask.sum(-1)))


class Attention(nn.Module):
    """Projections and dispatch of multi-head attention; head dims need not multiply up to the width.

    Args:
        bias: whether projections have biases.
        initializers: of the three projections of the input, and of that of the output; None for transformers' own.
    """

    is_causal = False
    # keys that a query sees at most, its own included; None for all
    window: int | None = None

    def __init__(
        self,
        config,
        layer_idx: int = 0,
        bias: bool = False,
        initializers: tuple[Initializer | None, Initializer | None] = (attention_input, xavier),
    ):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        inner_size = config.num_attention_heads * config.head_dim
        num_key_value_heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        if num_key_value_heads < config.num_attention_heads:
            # transformers' kernels look for it
            self.num_key_value_groups = config.num_attention_heads // num_key_value_heads
        self.build_projections(inner_size, num_key_value_heads * config.head_dim, bias, initializers)

    def build_projections(
        self,
        inner_size: int,
        key_value_size: int,
        bias: bool,
        initializers: tuple[Initializer | None, Initializer | None],
    ) -> None:
        of_input, of_output = initializers
        width = self.config.hidden_size
        self.q_proj = initialized_linear(width, inner_size, of_input, bias)
        self.k_proj = initialized_linear(width, key_value_size, of_input, bias)
        self.v_proj = initialized_linear(width, key_value_size, of_input, bias)
        self.o_proj = initialized_linear(inner_size, width, of_output, bias)

    def heads(self, projected: torch.Tensor) -> torch.Tensor:
        """(..., H * D) -> (..., H, D)."""
        return projected.unflatten(-1, (-1, self.head_dim))

    def attention_function(self) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
        """The configured kernel."""
        return attention_function(self.config, eager_attention_forward)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Mask | None,
        is_causal: bool = False,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Dispatch (B, Q, H, D) queries and (B, K, H, D) keys to the configured kernel -> (B, Q, H, D)."""
        if self.window is not None:
            # masks of FlashAttention tell padding alone
            kwargs["sliding_window"] = self.window
        return self.attention_function()(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attention_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            is_causal=is_causal,
            **kwargs,
        )

    def attend_packed(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packing: Packing, is_causal: bool
    ) -> torch.Tensor:
        """`attend` without padding, at the places of `packing`; zeros at padded queries."""
        parts = ((query, packing.queries), (key, packing.keys), (value, packing.keys))
        rows = (states.flatten(0, 1).index_select(0, index).unsqueeze(0) for states, index in parts)
        attended, _ = self.attend(*rows, None, is_causal, **packing.arguments)
        num_queries = query.shape[0] * query.shape[1]
        return place(attended.squeeze(0), packing.queries, num_queries).unflatten(0, query.shape[:2])


class SelfAttention(Attention):
    """Attention among the tokens of a sequence, positions by the rotations of its context.

    Keys and values may come from another stream of the same tokens than the queries: the Universal Transformer
    attends to the halting-weighted soft state (Algorithm 1).
    """

    # the planes that rotations turn
    rotate = staticmethod(rotate)

    def keys_values(self, source: torch.Tensor, rotation: torch.Tensor | None) -> KeyValue:
        return KeyValue(self.rotate(self.heads(self.k_proj(source)), rotation), self.heads(self.v_proj(source)))

    def projected(
        self, queries: torch.Tensor, source: torch.Tensor, rotations: Rotations
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries (..., H, D), and keys and values (..., H, D) of the source."""
        query = self.rotate(self.heads(self.q_proj(queries)), rotations.query)
        return query, *self.keys_values(source, rotations.key)

    def forward(
        self, queries: torch.Tensor, source: torch.Tensor, context: PaddedContext | PackedContext
    ) -> AttentionOutput:
        if isinstance(context, PackedContext):
            return self.attend_live(queries, source, context)
        query, *key_value = self.projected(queries, source, context.rotations)
        key, value = (states.transpose(1, 2) for states in key_value)
        if context.kept is not None:
            key, value = context.kept.over(key, value)
        visible_key, visible_value, mask, past = key, value, context.attention_mask, context.past
        if past is not None:
            key, value = past.extended(key, value)
            visible_key, visible_value = (past.without_padding_place(states) for states in (key, value))
            query, mask = past.of_batch(query), mapped(mask, past.of_batch)
        if context.key_scale is not None:
            visible_key = visible_key * context.key_scale.to(visible_key.dtype)
        inputs = query, visible_key.transpose(1, 2), visible_value.transpose(1, 2)
        weights, causal = None, self.config.is_causal
        if context.packing is not None:
            attended = self.attend_packed(*inputs, context.packing, causal)
        else:
            attended, weights = self.attend(*inputs, mask, causal)
        attended = attended if past is None else past.of_queries(attended)
        return AttentionOutput(self.o_proj(attended.flatten(-2)), weights, key, value)

    def attend_live(self, queries: torch.Tensor, source: torch.Tensor, context: PackedContext) -> AttentionOutput:
        rotations = Rotations(context.query_rotation, context.key_rotation)
        query, key, value = self.projected(queries, source, rotations)
        attended, key, value = self.attend_tokens(query, key, value, context)
        return AttentionOutput(self.o_proj(attended.flatten(-2)), None, key, value)

    # a graph of its own for each division into groups would cost more than it saves; around it there is one for all
    @torch.compiler.disable
    def attend_tokens(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, context: PackedContext
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Attention of packed queries (N, H, D), from new keys (M, H, D) -> (N, H, D), and keys for later steps."""
        key, later_key = context.with_frozen(key, context.frozen_key)
        value, later_value = context.with_frozen(value, context.frozen_value)
        causal, grouped = self.config.is_causal, context.grouped
        visible_key = key if context.key_scale is None else key * context.key_scale.to(key.dtype)
        if grouped is None:
            if context.valid_keys is not None:
                key_value = (states.index_select(0, context.valid_keys) for states in (visible_key, value))
            else:
                key_value = visible_key, value
            packed = (states.unsqueeze(0) for states in (query, *key_value))
            attended, _ = self.attend(*packed, None, causal, **context.varlen)
            attended = attended.squeeze(0)
        else:
            rows = []
            for group in grouped.groups:
                key_value = (
                    grouped.spread(states, group) if group.keys is None else group.keys.of(states)
                    for states in (visible_key, value)
                )
                rows.append(self.attend(grouped.spread(query, group), *key_value, group.context, causal)[0])
            attended = grouped.gather(rows)
        return attended, later_key, later_value


class RotaryAttention(SelfAttention):
    """`SelfAttention` as most language models have it: rotated planes (j, j + h), transformers' initialisation."""

    rotate = staticmethod(rotate_halves)

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx, initializers=(None, None))
