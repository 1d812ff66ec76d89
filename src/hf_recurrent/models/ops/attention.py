"""Attention behind the `attn_implementation` switch, for padded batches, cached tokens and packed live tokens.

Shapes: B sequences, S tokens, Q queries per sequence, K keys per sequence, N packed tokens, H heads, D head dim,
E width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .flex_attention import flex_attention_forward
from .initialization import Initializer, attention_input, initialized_linear, xavier
from .masks import Mask, aligned_mask, is_flash, mapped, part_of_mask, rows_of
from .positions import rotate
from .row_groups import GroupedRows, Spread, grouped_rows, place


class KeyValue(NamedTuple):
    """Projected keys and values, (B, K, H, D) each."""

    key: torch.Tensor
    value: torch.Tensor


class Rotations(NamedTuple):
    """Tables of queries and keys, (B, S, 1, h) complex each, or (1, S, 1, h) if all sequences share them.

    None where attention has no rotations.
    """

    query: torch.Tensor | None
    key: torch.Tensor | None


NO_ROTATIONS = Rotations(None, None)


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
    kept: torch.Tensor | None = None  # (B, Q) bool, tokens that have stopped and keep their latest keys and values
    # keys and values (B, H, Q, D) of the latest step, where some are kept; of each layer
    latest: KeyValue | tuple[KeyValue, ...] | None = None
    window_mask: Mask | None = None  # of layers that see a window of keys

    # queries of some rows can be among keys of all
    spreads_queries = True

    def of_layer(self, number: int, num_layers: int) -> "PaddedContext":
        """The context of one of the layers of a step, of which each has keys of its own."""
        past = self.past if self.past is None or num_layers == 1 else self.past[number]
        return self._replace(past=past, latest=None if self.latest is None else self.latest[number])

    def select(self, rows: torch.Tensor, columns: slice = slice(None)) -> "PaddedContext":
        """The context of some `rows` (n,) and columns of tokens, which without a cache are those of the keys."""
        return self._replace(
            attention_mask=part_of_mask(self.attention_mask, rows, columns),
            rotations=mapped(rows_of(self.rotations, rows), lambda table: table[:, columns]),
            memory=rows_of(self.memory, rows),
        )

    def rotations_of(self, tokens: torch.Tensor) -> Rotations:
        """Tables (N, 1, h) of tokens, by their numbers (N,) in the rows and columns."""
        return mapped(
            self.rotations,
            lambda table: table.flatten(0, 1)[tokens % table.shape[1] if table.shape[0] == 1 else tokens],
        )

    def scale_of(self, tokens: torch.Tensor) -> torch.Tensor | None:
        """The decay (N, 1, D) of keys of tokens likewise, none of which are cached."""
        return None if self.key_scale is None else self.key_scale[tokens % self.key_scale.shape[0]][:, None]

    def attend(
        self, attention: nn.Module, query: torch.Tensor, new: KeyValue
    ) -> tuple[torch.Tensor, torch.Tensor | None, KeyValue]:
        """`attention` of queries (B, Q, H, D), to new keys and values of the same shape and to others.

        Returns:
            (B, Q, H, D), weights if there are any, and keys and values as `AttentionOutput` has them.
        """
        key, value, mask, past = new.key.transpose(1, 2), new.value.transpose(1, 2), self.attention_mask, self.past
        if self.latest is not None:
            kept, pairs = self.kept[:, None, :, None], zip(self.latest, (key, value), strict=True)
            key, value = (torch.where(kept, old.to(fresh.dtype), fresh) for old, fresh in pairs)
        seen_key, seen_value, causal = key, value, attention.config.is_causal
        if past is not None:
            key, value = past.extended(key, value)
            seen_key, seen_value = (past.without_padding_place(states) for states in (key, value))
            query, mask = past.of_batch(query), mapped(mask, past.of_batch)
        if self.key_scale is not None:
            seen_key = seen_key * self.key_scale.to(seen_key.dtype)
        if self.packing is None:
            attended, weights = attention.attend(query.transpose(1, 2), seen_key, seen_value, mask, causal)
        else:
            tokens = seen_key.transpose(1, 2), seen_value.transpose(1, 2)
            attended, weights = attention.attend_packed(query, *tokens, self.packing, causal), None
        return attended if past is None else past.of_queries(attended), weights, KeyValue(key, value)

    def pack_tokens(self, config, spread: Spread, mask: torch.Tensor, tokens: torch.Tensor) -> "PackedContext":
        """The context of packed tokens alone, which see each other.

        Args:
            spread: their places in the mask (R, W).
            tokens: (N,) their numbers in the rows and columns of this context.
        """
        context = PackedContext(self.rotations_of(tokens), spread, memory=self.memory, key_scale=self.scale_of(tokens))
        if is_flash(config):
            lengths = mask.sum(-1)
            return replace(context, varlen=varlen_arguments(lengths, lengths))
        grouped = grouped_rows(mask, spread.places, lambda seen, _: aligned_mask(config, seen))
        return replace(context, grouped=grouped)


@dataclass(frozen=True)
class PackedContext:
    """Inputs of attention, besides states, of packed tokens.

    Queries are packed (N, E), and spread for the kernels. Keys are those of the same tokens, or are kept in a buffer of
    places, row-major, which has those of halted tokens, too. With gradients, each step makes a buffer of new keys and
    pieces of frozen ones: a checkpointed step then keeps the pieces alone.
    """

    rotations: Rotations  # (N, 1, h) of queries, and (M, 1, h) of the M tokens whose keys are new
    queries: Spread  # in rows of one width, for attention to memory slots
    grouped: GroupedRows | None = None  # queries in rows for the kernel; None with `varlen`
    num_key_places: int = 0  # 0 without a buffer
    # (num_key_places, H, D), None before the first step; or pieces (F, H, D)
    frozen: KeyValue | tuple[KeyValue, ...] | None = None
    # places (M,) of new keys; or (num_key_places,) the one at each place, among new keys followed by pieces. None if
    # every place has a new key and they are in order
    key_index: torch.Tensor | None = None
    varlen: dict[str, torch.Tensor | int] | None = None  # cumulative lengths for FlashAttention's packed kernels
    # indices of unpadded keys, for the same kernels; None if there are no others
    valid_keys: torch.Tensor | None = None
    memory: "KeyValue | torch.Tensor | None" = None  # of the rows present
    key_scale: torch.Tensor | None = None  # (K, 1, D) xPos decay of all keys, where they are rotated only
    kept: torch.Tensor | None = None  # (M,) bool, tokens that have stopped and keep their keys; None if none do

    def of_layer(self, number: int, num_layers: int) -> "PackedContext":
        """The context of one of the layers of a step, whose frozen keys are side by side, as those of further heads."""
        return replace(
            self, frozen=mapped(self.frozen, lambda states: states.unflatten(1, (num_layers, -1)).select(1, number))
        )

    def of_step(self, layers: Sequence[KeyValue]) -> KeyValue:
        """Keys and values of a step for later ones, side by side, from those of its layers."""
        if isinstance(self.frozen, KeyValue) and self.key_index is not None:
            # each layer has written into its part
            return self.frozen
        return KeyValue(*(torch.cat(states, dim=1) for states in zip(*layers, strict=True)))

    def with_frozen(self, fresh: KeyValue) -> tuple[KeyValue, KeyValue]:
        """New keys and values (M, H, D), among frozen ones if there is a buffer, and what later steps need of them."""
        index, frozen = self.key_index, self.frozen
        if not self.num_key_places:
            return fresh, fresh
        if frozen is not None and not isinstance(frozen, KeyValue):
            everything = KeyValue(*(torch.cat(states) for states in zip(fresh, *frozen, strict=True)))
            return mapped(everything, lambda states: states if index is None else states.index_select(0, index)), fresh
        pairs = list(zip(fresh, frozen or (None, None), strict=True))
        if self.kept is not None and frozen is not None:
            chosen = (old if index is None else old.index_select(0, index) for _, old in pairs)
            kept = self.kept[:, None, None]
            pairs = [
                (torch.where(kept, before.to(new.dtype), new), old)
                for before, (new, old) in zip(chosen, pairs, strict=True)
            ]
        buffer = KeyValue(*(place(new, index, self.num_key_places, old, overwrite=True) for new, old in pairs))
        return buffer, buffer

    # a graph of its own for each division into groups would cost more than it saves; around it there is one for all
    @torch.compiler.disable
    def attend(self, attention: nn.Module, query: torch.Tensor, new: KeyValue) -> tuple[torch.Tensor, None, KeyValue]:
        """`attention` of queries (N, H, D), to new keys and values (M, H, D) and to frozen ones.

        Returns:
            (N, H, D), None, and keys and values for later steps, as `AttentionOutput` has them.
        """
        (key, value), later = self.with_frozen(new)
        causal, grouped = attention.config.is_causal, self.grouped
        if self.key_scale is not None:
            key = key * self.key_scale.to(key.dtype)
        if grouped is None:
            if self.valid_keys is not None:
                key, value = (states.index_select(0, self.valid_keys) for states in (key, value))
            return attention.attend_end_to_end(query, key, value, causal, self.varlen), None, later
        if self.num_key_places:
            key, value = (states.unflatten(0, (self.queries.num_rows, -1)) for states in (key, value))
        rows = []
        for group in grouped.groups:
            inputs = [grouped.spread(query, group)]
            for states in (key, value):
                inputs.append(grouped.spread(states, group) if group.keys is None else states[group.keys])
            rows.append(attention.attend(*(states.transpose(1, 2) for states in inputs), group.context, causal)[0])
        return grouped.gather(rows), None, later


class AttentionOutput(NamedTuple):
    """Keys and values are for later steps or calls: packed contexts' buffers, or new ones (M, H, D) where frozen ones
    are in pieces; (B, H, P + Q, D) of padded contexts.
    """

    hidden_states: torch.Tensor
    weights: torch.Tensor | None
    key: torch.Tensor
    value: torch.Tensor


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


def attention_function(config, eager: Callable) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """The configured attention function, given the one for "eager"."""
    if config._attn_implementation == "flex_attention":
        return flex_attention_forward
    return ALL_ATTENTION_FUNCTIONS.get_interface(config._attn_implementation, eager)


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

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Mask | None,
        is_causal: bool = False,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The configured kernel for (B, H, Q, D) queries and (B, H, K, D) keys -> (B, Q, H, D), and weights if any."""
        if self.window is not None:
            # masks of FlashAttention tell padding alone
            kwargs["sliding_window"] = self.window
        return attention_function(self.config, eager_attention_forward)(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            is_causal=is_causal,
            **kwargs,
        )

    def attend_end_to_end(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool, arguments: dict
    ) -> torch.Tensor:
        """`attend` of packed rows (N, H, D), by the arguments of FlashAttention -> (N, H, D)."""
        packed = (states.unsqueeze(0).transpose(1, 2) for states in (query, key, value))
        return self.attend(*packed, None, is_causal, **arguments)[0].squeeze(0)

    def attend_packed(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, packing: Packing, is_causal: bool
    ) -> torch.Tensor:
        """Attention without padding of (B, S, H, D), at the places of `packing`; zeros at padded queries."""
        parts = ((query, packing.queries), (key, packing.keys), (value, packing.keys))
        rows = (states.flatten(0, 1).index_select(0, index) for states, index in parts)
        attended = self.attend_end_to_end(*rows, is_causal, packing.arguments)
        return place(attended, packing.queries, query.shape[:2].numel()).unflatten(0, query.shape[:2])


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
        query, key = self.heads(self.q_proj(queries)), self.heads(self.k_proj(source))
        value = self.heads(self.v_proj(source))
        return self.rotate(query, rotations.query), self.rotate(key, rotations.key), value

    def forward(self, queries: torch.Tensor, source: torch.Tensor, context: PaddedContext) -> AttentionOutput:
        query, key, value = self.projected(queries, source, context.rotations)
        attended, weights, (key, value) = context.attend(self, query, KeyValue(key, value))
        return AttentionOutput(self.o_proj(attended.flatten(-2)), weights, key, value)
