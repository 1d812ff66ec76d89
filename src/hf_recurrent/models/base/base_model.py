"""Base models of all architectures: embed, run through depth, pool.

Shapes: B sequences, S tokens, P cached tokens, E width, L maximum of steps, D head dim, h = D // 2.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.utils.generic import can_return_tuple

from ..config.cache_name import CACHE_NAME
from ..config.fields import check_whole, shown
from ..depth.cache import check_own_cache, keeps_cache
from ..depth.depth_cache import DepthCache
from ..depth.exit_criteria import AnswerHead, ExitOptions, ExitRule
from ..depth.halting import FixedDepth
from ..depth.layouts import PackedLayout, lay_out, pool
from ..depth.loop import DepthOptions, DepthOutput, iterate
from ..depth.objectives import halting_distribution, mean_distribution
from ..depth.static_cache import StaticDepthCache
from ..ops.attention import PaddedContext, Rotations
from ..ops.checks import check_inputs, check_not_nan, check_tensor, has_gaps
from ..ops.flex_attention import is_flex
from ..ops.graphs import in_graph
from ..ops.initialization import embedding_like
from ..ops.layers import Dropout, embedding_width
from ..ops.masks import visible_keys
from ..ops.positions import rotation_angles, rotation_table, token_positions, xpos_rotations, xpos_scales
from ..ops.sharding import gather_for_methods, touch_all_parameters
from .arguments import supported
from .outputs import RecurrentOutput
from .pretrained import RecurrentPreTrainedModel


class ForwardCall(NamedTuple):
    """The choices of one forward call."""

    max_depth: int | None
    halting_threshold: float | None
    record_halting: bool
    record_states: bool
    pool: bool
    cache: Cache | None
    start: torch.Tensor | None = None  # (B,) bool, sequences that forget their part of the cache
    model_kwargs: dict | None = None  # arguments of the architecture's own
    exit: ExitRule | None = None  # None for the model's own halting
    head: AnswerHead | None = None  # of the task model
    # features of rows, see `BaseModel.features`
    features: Callable[..., torch.Tensor] | None = None
    record_steps: bool = False
    full: bool = False  # whether the host knows that no token is padding
    packed: type | None = None  # class of packed layouts, see `lay_out`


def newest_columns(mask: torch.Tensor, number: int) -> torch.Tensor:
    """The last columns of a mask; the mask itself, rather than a view of it, if it has no others."""
    return mask if mask.shape[1] == number else mask[:, -number:]


def row_distribution(probabilities: torch.Tensor | None, mask: torch.Tensor, by_row: bool) -> torch.Tensor | None:
    """Halting distributions (B, L) of sequences or (B, S, L) of tokens, from conditional probabilities of either."""
    if probabilities is None:
        return None
    distribution = halting_distribution(probabilities)
    return mean_distribution(distribution, mask) if by_row else distribution


class BaseModel(RecurrentPreTrainedModel):
    """Forward pass of a base model; architectures define `encode` and `new_cache`.

    `encode(hidden, mask, call)` takes embedded tokens (B, S, E) through depth -> `DepthOutput`; the mask is (B, S), or
    (B, P + S) with a cache of P tokens. `new_cache(max_depth)` makes an empty cache for `past_key_values`, for calls of
    at most `max_depth` (the config's, if None).
    """

    # a cache that holds all columns needs a mask of them, and cannot reset single sequences
    cache_remembers_padding = False
    # a cap of depth by a sequence's length, which tokens to come change
    depth_follows_length = False
    model_arguments: tuple[str, ...] = ()
    # None in the code of a checkpoint that does without
    packed_layout = None
    # of the names of the inputs, in messages
    input_prefix = ""

    def build_embedding(self, config, size: int | None = None, dropout: float | None = None) -> None:
        """Embeddings of tokens and of their types, by default of the model's width and with its dropout."""
        size = config.hidden_size if size is None else size
        self.embed_tokens = nn.Embedding(config.vocab_size, size, padding_idx=config.pad_token_id)
        if config.type_vocab_size > 0:
            self.embed_token_types = nn.Embedding(config.type_vocab_size, size)
            self.embed_token_types.initializer = embedding_like(config.initializer_range)
        self.dropout = Dropout(config.dropout if dropout is None else dropout)

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embed_tokens = value

    def embedded(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, token_type_ids: torch.Tensor | None
    ) -> torch.Tensor:
        """Embeddings (B, S, E) of tokens, with those of their types added; types that are not given are 0."""
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if self.config.type_vocab_size > 0:
            if token_type_ids is None:
                token_type_ids = torch.zeros(hidden.shape[:2], dtype=torch.long, device=hidden.device)
            hidden = hidden + self.embed_token_types(token_type_ids)
        return self.dropout(hidden)

    def new_cache(self, max_depth: int | None = None) -> Cache:
        """An empty cache for calls of at most `max_depth` steps, by default the config's; architectures define it.

        Raises:
            ValueError: here, in code of a checkpoint that was saved with a head that writes no text.
        """
        raise ValueError(
            "`use_cache` was passed, but this checkpoint was saved by a head that writes no text, and its code has no "
            "cache: import hf_recurrent before you load it, or leave use_cache out"
        )

    def new_static_cache(self, max_length: int, max_depth: int | None = None) -> Cache:
        """A `StaticDepthCache`; here, in code of a checkpoint and of models whose cache does not grow, a ValueError."""
        raise ValueError(
            f"a static cache was asked for, but that of {type(self).__name__} does not grow, or this is the code of a "
            "checkpoint: use new_cache(), or import hf_recurrent before you load the model"
        )

    def cache_steps(self, max_depth: int | None) -> int:
        """Steps that a cache has layers for, by default the config's."""
        check_whole(max_depth, "max_depth")
        return self.config.num_hidden_layers if max_depth is None else max_depth

    def call_depth(self, max_depth: int | None, cache: Cache | None) -> int | None:
        return max_depth

    def resolve_exit(
        self, options: ExitOptions, max_depth: int | None, halting_threshold: float | None, head: AnswerHead | None
    ) -> ExitRule | None:
        """The exit rule of a call, None for the model's own halting.

        Raises:
            ValueError: an option does not fit the model: here, where layers are not shared, any.
        """
        given = {"max_depth": max_depth, "halting_threshold": halting_threshold, **options.named()}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name} is {shown(value)}: layers of this model are not shared, its depth is fixed; leave {name} "
                    "out, or use an architecture that iterates one block, such as gut"
                )
        return None

    def readout(self, states: torch.Tensor) -> torch.Tensor:
        """Running states (..., E) as heads read them."""
        return states

    def features(
        self,
        states: torch.Tensor,
        mask: torch.Tensor,
        rows: torch.Tensor | None = None,
        columns: tuple[int, int] | None = None,
    ) -> torch.Tensor:
        """Features of sequences for a head: running states (R, W, E), mask (R, W) -> (R, F).

        Losses of each step and exit criteria read these, and answers `pooled`: a pooling of one's own overrides both.

        Args:
            rows: (R,) their numbers in the batch.
            columns: the range of the batch's columns that they are in.
        """
        return pool(self.readout(states), mask, self.config.pooling)

    def spread_over_tokens(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Values of units for each of their tokens, (B, ...) or (B, S, ...) -> (B, S, ...), by the mask (B, S)."""
        if self.config.token_units:
            return values
        return values[:, None].expand(-1, mask.shape[1], *values.shape[1:])

    def pooled(self, depth: DepthOutput, mask: torch.Tensor) -> torch.Tensor:
        return pool(depth.hidden_states, mask, self.config.pooling)

    def signature(self) -> str:
        """Description of the model for its caches, which serve models of the same signature only."""
        config = self.config
        size = f"{config.num_attention_heads} heads of {config.head_dim}, width {config.hidden_size}"
        if not config.capabilities.shared_block:
            size = f"{config.num_hidden_layers} layers, {size}"
        return f"{config.model_type} ({size})"

    @keeps_cache
    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_halting: bool = False,
        output_gates: bool = False,
        max_depth: int | None = None,
        halting_threshold: float | None = None,
        detach: bool = False,
        start_of_document: torch.BoolTensor | None = None,
        exit_criterion: str | None = None,
        exit_threshold: float | None = None,
        exit_patience: int | None = None,
        min_depth: int | None = None,
        pooling: bool = True,
        output_steps: bool = False,
        answer_head: AnswerHead | None = None,
        # not named kwargs or model_kwargs: generate() would pass all its arguments to an encoder, labels included
        **own_kwargs,
    ) -> RecurrentOutput:
        """Encode a batch.

        Args:
            input_ids: (B, S) token ids, or pass `inputs_embeds` (B, S, E).
            attention_mask: (B, S), 1 at tokens and 0 at padding, on either side. With a cache of P columns (B, P + S),
                or (B, S) in models that read chunk by chunk.
            token_type_ids: (B, S) which text of a pair each token is of, below `config.type_vocab_size`; 0 by default.
                Ignored where that field is 0, because tokenizers return them. With a cache those of the new tokens.
            past_key_values: cache that a causal model returned for the tokens before these; it is extended in place.
            use_cache: start a cache if none is passed; by default only if one is passed.
            output_hidden_states, output_attentions, output_halting, output_gates: records of each step to return. With
                states, attentions or gates all steps run, without compaction, to the same result.
            max_depth: largest number of depth steps of this call, instead of `config.num_hidden_layers`.
            halting_threshold: halting mass at which tokens or sequences stop, instead of the config's.
            detach: cut the gradient to the tokens before these (truncated backpropagation through time).
            start_of_document: (B,) True for sequences that begin a new document: their part of `past_key_values` is
                reset. For models whose cache is of constant size.
            exit_criterion, exit_threshold, exit_patience, min_depth: early exit of this call, instead of the config's;
                another criterion than the config's has its own defaults. In evaluation mode only.
            pooling: whether to compute `pooler_output`.
            output_steps: whether to return `step_features` and, if a head halts, `halting_distribution`, which
                objectives over depth read; all steps are then taken.
            answer_head: head of the task model, for exit criteria that look at predictions.
            own_kwargs: arguments that only this architecture takes (`model_arguments`).

        Returns:
            `RecurrentOutput` with `last_hidden_state` (B, S, E).

        Raises:
            ValueError: a mask of another shape or, in a causal model, with gaps; all-padding sequence, token id or type
                out of range, bad `max_depth`, threshold or exit criterion, attentions requested of an implementation
                without them, a cache of another model or shape, NaN in a halting probability. The cache is then
                unchanged.
            TypeError: an unknown argument.
        """
        # before arguments that peft's prefix tuning hands on with its own cache
        check_own_cache(past_key_values)
        if own_kwargs:
            own_kwargs = supported(own_kwargs, self.model_arguments)
            self.check_model_kwargs(own_kwargs)
        check_whole(max_depth, "max_depth")
        gather_for_methods(self)
        if past_key_values is None and use_cache:
            past_key_values = self.new_cache(max_depth)
        mask, full = self.check_call(
            input_ids, inputs_embeds, attention_mask, token_type_ids, past_key_values, max_depth
        )
        if start_of_document is not None:
            start_of_document = self.check_start(start_of_document, past_key_values, mask)
        if detach and past_key_values is not None:
            past_key_values.detach()
        output_attentions, output_hidden_states = self.resolve_output_flags(output_attentions, output_hidden_states)
        record = output_hidden_states or output_attentions or output_gates
        options = ExitOptions(exit_criterion, exit_threshold, exit_patience, min_depth)
        call = ForwardCall(
            max_depth=self.call_depth(max_depth, past_key_values),
            halting_threshold=halting_threshold,
            record_halting=output_halting or output_steps,
            record_states=record or output_steps,
            pool=pooling,
            cache=past_key_values,
            start=start_of_document,
            model_kwargs=own_kwargs,
            exit=self.resolve_exit(options, max_depth, halting_threshold, answer_head),
            head=answer_head,
            features=self.features,
            record_steps=output_steps,
            full=full,
            packed=self.packed_layout,
        )
        hidden = self.embedded(input_ids, inputs_embeds, token_type_ids)
        new_mask = newest_columns(mask, hidden.shape[1])
        if past_key_values is not None:
            mask = past_key_values.all_columns(mask)
        depth = self.encode(hidden, mask if self.cache_remembers_padding else new_mask, call)
        recorded = {
            "hidden_states": depth.all_hidden_states if output_hidden_states else None,
            "attentions": depth.attentions if output_attentions else None,
            "read_attentions": depth.read_attentions if output_attentions else None,
            "memory_states": depth.memory_states if output_hidden_states else None,
            "gates": depth.gates if output_gates else None,
        }
        output = self.output(depth, new_mask, call, recorded)
        return self.with_steps(output, depth, new_mask, call) if output_steps else output

    def with_steps(
        self, output: RecurrentOutput, depth: DepthOutput, mask: torch.Tensor, call: ForwardCall
    ) -> RecurrentOutput:
        """An output with the features after each step, and with the halting distribution if a head halts."""
        features, distribution = depth.step_features, depth.halting_distribution
        if features is None:
            states = (torch.where(mask[..., None], each, 0.0) for each in depth.all_hidden_states[1:])
            features = tuple(self.features(each, mask) if call.pool else self.readout(each) for each in states)
            distribution = row_distribution(depth.halting_probabilities, mask, by_row=call.pool)
        return type(output)(**{**output, "step_features": features, "halting_distribution": distribution})

    def output(self, depth: DepthOutput, mask: torch.Tensor, call: ForwardCall, recorded: dict) -> RecurrentOutput:
        return RecurrentOutput(
            last_hidden_state=depth.hidden_states,
            pooler_output=self.pooled(depth, mask) if call.pool else None,
            **{CACHE_NAME: call.cache},
            ponder_cost=depth.ponder_cost,
            ponder_steps=depth.ponder_steps,
            halting_probabilities=depth.halting_probabilities,
            **recorded,
        )

    def check_model_kwargs(self, model_kwargs: dict) -> None:
        for name in model_kwargs.keys() - set(self.model_arguments):
            raise TypeError(f"{type(self).__name__}.forward() got an unexpected keyword argument {name!r}")

    def resolve_output_flags(self, attentions: bool | None, hidden_states: bool | None) -> tuple[bool, bool]:
        """Whether to return attentions and hidden states, by default those of the config."""
        config = self.config
        attentions = config.output_attentions if attentions is None else attentions
        if attentions and config._attn_implementation != "eager":
            raise ValueError(
                f"output_attentions=True: the {config._attn_implementation!r} implementation keeps no attention "
                "weights; call model.set_attn_implementation('eager') first"
            )
        return attentions, config.output_hidden_states if hidden_states is None else hidden_states

    def check_call(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        cache: Cache | None,
        max_depth: int | None,
    ) -> tuple[torch.Tensor, bool]:
        """Check inputs, mask, types and cache; see `check_inputs`."""
        config, past_length = self.config, None if cache is None else cache.check_model(self, max_depth)
        sizes = (config.vocab_size, embedding_width(self.embed_tokens), config.type_vocab_size)
        given = (input_ids, inputs_embeds, attention_mask, token_type_ids)
        mask, full = check_inputs(*given, sizes, past_length, self.input_prefix)
        if cache is not None:
            cache.check_mask(self, mask, attention_mask is not None, full)
        if config.is_causal and attention_mask is not None:
            length = (input_ids if inputs_embeds is None else inputs_embeds).shape[1]
            self.check_order(mask, length, past_length, full)
        return mask, full

    def check_start(self, start: torch.Tensor, cache: Cache | None, mask: torch.Tensor) -> torch.Tensor | None:
        """Raise a ValueError unless `start_of_document` fits -> the mask (B,), None if there is nothing to reset."""
        meaning = f"one bool for each of the {mask.shape[0]} sequences"
        check_tensor("start_of_document", start, lambda dtype: dtype is torch.bool, (1,), meaning)
        if start.shape != mask.shape[:1]:
            raise ValueError(f"`start_of_document` has shape {tuple(start.shape)}: pass {meaning}")
        if cache is None or cache.num_rows is None:
            return None
        if self.cache_remembers_padding and bool(start.any()):
            raise ValueError(
                f"`start_of_document` is True for sequence {int(start.nonzero()[0])}, but a "
                f"{type(cache).__name__} holds the columns of all sequences and cannot reset a single one: "
                "start a new cache, or use a model whose cache is of constant size"
            )
        return start

    def check_order(self, mask: torch.Tensor, length: int, past_length: int | None, full: bool) -> None:
        """Raise a ValueError unless the mask of so many new columns covers what it must, without gaps."""
        if self.cache_remembers_padding and past_length and mask.shape[1] == length:
            raise ValueError(
                f"`{self.input_prefix}attention_mask` has {length} columns but `past_key_values` holds {past_length} "
                f"already: pass {past_length + length}, those of all columns, or no mask if there is no padding"
            )
        if not (full or in_graph()) and has_gaps(mask):
            raise ValueError(
                f"`{self.input_prefix}attention_mask` has padding between the tokens of a sequence: a causal model "
                "takes padding on the left or on the right only (when generating, pad on the left). An adapter's "
                "virtual tokens stand before padding on the left: pass texts of one length, or one at a time"
            )


# longer tables are not kept for later calls: they cost little compared with the attention that uses them
MAX_KEPT_LENGTH = 1024
# of a cache, likewise: those of so many columns take 8 MiB for heads of 64 units
MAX_KEPT_COLUMNS = 1 << 14


def batch_rotations(config, mask: torch.Tensor, full: bool = False) -> Rotations:
    """xPos tables of a batch: (B, S) bool -> tables of (B, S, 1, h), or of (1, S, 1, h) that all sequences share.

    Scores depend on position differences only, so columns can serve as positions if there are no gaps.
    """
    length, sizes, traced = mask.shape[1], (config.head_dim, config.xpos_scale_base), in_graph()
    if not full and (traced or has_gaps(mask)):
        return Rotations(*xpos_rotations(token_positions(mask), *sizes, mask.sum(-1, keepdim=True) // 2))
    if traced or length > MAX_KEPT_LENGTH:
        return column_rotations(length, *sizes, mask.device)
    return kept_column_rotations(length, *sizes, mask.device)


def column_rotations(length: int, head_dim: int, scale_base: int, device: torch.device) -> Rotations:
    """xPos tables (1, S, 1, h) of columns."""
    return Rotations(*xpos_rotations(torch.arange(length, device=device)[None], head_dim, scale_base, length // 2))


@lru_cache(maxsize=32)
def kept_column_rotations(length: int, head_dim: int, scale_base: int, device: torch.device) -> Rotations:
    # a later call may be differentiated
    with torch.inference_mode(False):
        return column_rotations(length, head_dim, scale_base, device)


@lru_cache(maxsize=8)
def kept_turns(size: int, head_dim: int, device: torch.device) -> torch.Tensor:
    """A table (1, size, 1, h) of rotations without scales."""
    with torch.inference_mode(False):
        return rotation_table(rotation_angles(torch.arange(size, device=device)[None], head_dim))


@lru_cache(maxsize=8)
def kept_decay(size: int, head_dim: int, scale_base: int, device: torch.device) -> torch.Tensor:
    """The decay (size, D) of keys at distances from `size - 1` down to 0."""
    with torch.inference_mode(False):
        distances = torch.arange(size - 1, -1, -1, device=device)
        return xpos_scales(distances, head_dim, scale_base).float().repeat_interleave(2, dim=-1)


def check_length(config, hidden: torch.Tensor, length: int) -> None:
    """Raise a ValueError where numbers cannot hold the scales of xPos over `length` tokens, with states (B, S, E).

    The scales themselves are float32 at most.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
    # queries and keys of size 16 must fit; the fastest decay is that of the first plane, 0.4 / 1.4
    max_length = int(2 * config.xpos_scale_base * math.log(largest / 16) / math.log(1.4 / 0.4))
    if length > max_length:
        wider = "use bfloat16 or float32, " if dtype is torch.float16 else ""
        raise ValueError(
            f"attention spans {length} tokens, but {str(dtype).removeprefix('torch.')} holds the scales of xPos over "
            f"at most {max_length}: {wider}read a causal model's sequence in pieces with past_key_values, or make "
            "chunks smaller"
        )


def check_states(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Final states (B, S, E) with zeros at padding.

    Raises:
        ValueError: the states are NaN.
    """
    final = torch.where(mask[..., None], states, 0.0)
    check_not_nan("the states are", final)
    return final


def run_layers(
    layers: nn.ModuleList,
    hidden: torch.Tensor,
    mask: torch.Tensor,
    context: NamedTuple,
    call: ForwardCall,
    cache,
    config,
) -> DepthOutput:
    """Fixed depth: each layer once, over (B, S, E)."""
    strategy = FixedDepth()
    options = DepthOptions(max_depth=len(layers), record_states=call.record_states, full=call.full)
    layout = lay_out(config, strategy, hidden, mask, context, cache, options, packed=call.packed)
    depth = iterate(list(layers), strategy, layout, hidden, mask, options)
    check_not_nan("the states are", depth.hidden_states)
    return depth


class DepthModel(BaseModel):
    """`encode` all tokens at once; architectures define `run_depth(hidden, mask, context, call, cache)`."""

    cache_remembers_padding = True
    packed_layout = PackedLayout

    def new_cache(self, max_depth: int | None = None) -> DepthCache:
        return DepthCache(self.cache_steps(max_depth), self.signature())

    def new_static_cache(self, max_length: int, max_depth: int | None = None) -> StaticDepthCache:
        """An empty cache as `new_cache`, with room for texts of at most `max_length` columns, which is taken once."""
        return StaticDepthCache(self.new_cache(max_depth), max_length)

    def encode(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> DepthOutput:
        cache = None if call.cache is None else call.cache.view(mask, hidden.shape[1])
        context = self.context(hidden, mask, call)
        depth = self.run_depth(hidden, mask if cache is None else cache.new(mask), context, call, cache)
        if cache is not None:
            cache.commit()
        return depth._replace(hidden_states=touch_all_parameters(depth.hidden_states, self))


class XPosModel(DepthModel):
    """Positions by the rotations of xPos."""

    def context(self, hidden: torch.Tensor, mask: torch.Tensor, call: ForwardCall) -> PaddedContext:
        """Inputs of attention of new tokens (B, S, E), by the mask of all columns."""
        config, cache = self.config, call.cache
        check_length(config, hidden, hidden.shape[1])
        # without padding there is nothing to mask
        sees_all = call.full and not config.is_causal and not is_flex(config)
        attention_mask = None if sees_all else visible_keys(config, hidden, mask, cache)
        if cache is None:
            return PaddedContext(attention_mask, batch_rotations(config, mask, call.full))
        columns = cache.columns(hidden.shape[1], hidden.device)
        rotations, key_scale = self.cached_rotations(columns, mask.shape[1])
        return PaddedContext(attention_mask, rotations, key_scale=key_scale)

    def cached_rotations(self, columns: torch.Tensor, num_keys: int) -> tuple[Rotations, torch.Tensor]:
        """Tables (1, S, 1, h) of new tokens in `columns` (S,), and the decay (K, D) of all keys from their middle.

        Cached keys are rotated but not scaled, because scales measured from a fixed point leave the range of half
        precision within a few thousand tokens.
        """
        config, length = self.config, columns.shape[0]
        sizes = (config.head_dim, config.xpos_scale_base)
        kept = 1 << (num_keys - 1).bit_length()
        if length == 1 and kept <= MAX_KEPT_COLUMNS and not in_graph():
            # the newest token, whose scales are 1
            turn = kept_turns(kept, config.head_dim, columns.device)[:, num_keys - 1 : num_keys]
            return Rotations(turn, turn), kept_decay(kept, *sizes, columns.device)[kept - num_keys :]
        center = columns[length // 2]
        angles = rotation_angles(columns[None], config.head_dim)
        rotations = Rotations(
            rotation_table(angles, xpos_scales(columns - center, *sizes)[None]), rotation_table(angles)
        )
        # columns that have no key yet may be far away
        distances = (center - torch.arange(num_keys, device=columns.device)).clamp_min(-length)
        decay = xpos_scales(distances, *sizes).float()
        return rotations, decay.repeat_interleave(2, dim=-1)
