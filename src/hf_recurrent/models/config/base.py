"""Fields, checks and capabilities that the configurations of all architectures share."""

import difflib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from transformers.configuration_utils import PreTrainedConfig

from .cache_name import CACHE_NAME
from .fields import (
    INHERITED,
    Count,
    Layers,
    Length,
    NotNegative,
    Positive,
    Share,
    Size,
    TokenId,
    Vocabulary,
    check_field,
    checked_config,
    shown,
)
from .presets import BASE_SIZE, ENCODER_SIZES, NO_PAPERS, NOTHING_CHANGED
from .saved_names import renamed

# sizes that follow others where a new config leaves them out
FOLLOWING = (
    *("num_attention_heads", "head_dim", "intermediate_size", "gate_intermediate_size"),
    *("embedding_size", "memory_cell_size", "num_key_value_heads"),
)
# what is stored of an exit criterion, and means nothing to another one
EXIT_SETTINGS = ("exit_threshold", "exit_patience")
# names of these fields in configs of other libraries, and in papers
OTHER_NAMES = {
    **dict.fromkeys(("num_layers", "n_layers", "n_layer", "max_depth"), "num_hidden_layers"),
    **dict.fromkeys(("num_heads", "n_heads", "n_head"), "num_attention_heads"),
    **dict.fromkeys(("d_model", "n_embd"), "hidden_size"),
    **dict.fromkeys(("d_ff", "ffn_dim", "n_inner"), "intermediate_size"),
    **dict.fromkeys(("hidden_dropout_prob", "hidden_dropout"), "dropout"),
    "attention_probs_dropout_prob": "attention_dropout",
    "min_steps": "min_depth",
}
Built = TypeVar("Built", bound="RecurrentConfig")


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise a ValueError that names the field, its value and the remedy."""
    if not condition:
        raise ValueError(f"config field `{field}` is {shown(value)}: {remedy}")


@dataclass(frozen=True)
class Capabilities:
    """Facts about a model of a given config, for code that works with every architecture.

    Attributes:
        halting: the halting strategy: "none", "token", "global", "act" or "act_universal".
        halting_unit: the unit that halts by itself: the "token", the "sequence", or the "chunk" of a sequence; None if
            nothing.
        shared_block: whether one block is iterated, so that a call may choose `max_depth`.
        computes_candidate: whether a halting decision computes the step under decision, too.
        synchronous: whether a sequence's halted tokens go on being computed until its last one halts.
        stops_when_halted: whether a unit that has halted takes no further steps.
        spares_steps: whether such a unit also needs no further applications of the block.
        halting_threshold: halting mass at which a unit stops; None where layers are not shared.
        reads: processing of a sequence: the "whole" at once, or by "chunks", "blocks" or single "tokens".
        division: division into chunks, "fixed", "balanced" or "count"; None without chunks.
        span: tokens of a chunk or block; None where that depends on the sequence, or without either.
        positions: most tokens of a sequence, where each has a position of its own; None for any number.
        attends: whether tokens attend to each other.
        resumable: whether a sequence may be processed in pieces, with a cache.
        growing_cache: whether the cache grows with the context, rather than being of constant size.
        memory_slots: slots of the memory that chunks are written into; 0 without.
        state_vectors: vectors carried from block to block; 0 without.
        gates: states weighed by update gates: "tokens" or "states"; None without gates.
        routers: the routers of a stack, by the names of the outputs with their choices.
        stacks: names of the stacks: one without name, or "encoder" and "decoder".
        siamese: whether the sentences of a pair are encoded apart.
        exit_criterion: what stops units: "learned", or an exit criterion, which the fields about halting then describe;
            None where layers are not shared.
    """

    halting: str = "none"
    halting_unit: Literal["token", "sequence", "chunk"] | None = None
    shared_block: bool = False
    computes_candidate: bool = False
    synchronous: bool = False
    stops_when_halted: bool = False
    spares_steps: bool = False
    halting_threshold: float | None = None
    reads: Literal["whole", "chunks", "blocks", "tokens"] = "whole"
    division: str | None = None
    span: int | None = None
    positions: int | None = None
    attends: bool = True
    resumable: bool = False
    growing_cache: bool = True
    memory_slots: int = 0
    state_vectors: int = 0
    gates: Literal["tokens", "states"] | None = None
    routers: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ("",)
    siamese: bool = False
    exit_criterion: str | None = None

    @property
    def halts(self) -> bool:
        return self.halting_unit is not None

    @property
    def two_stacks(self) -> bool:
        return len(self.stacks) == 2

    @property
    def window_size(self) -> int | None:
        """Tokens of a block, None for models that do not process blocks."""
        return self.span if self.reads == "blocks" else None


def is_of(config_class: type, model_type: str) -> bool:
    """Whether a class is the config of an architecture, or a subclass of it."""
    return any(vars(each).get("model_type") == model_type for each in config_class.__mro__)


@checked_config
class RecurrentConfig(PreTrainedConfig):
    """Fields of every architecture.

    Args:
        vocab_size: number of token ids.
        type_vocab_size: number of token types, whose embeddings are added to those of tokens before any scale, position
            or dropout; 0, as in the papers' models, for none. Joint pairs tell their texts apart by them.
        hidden_size: width d.
        num_hidden_layers: maximum of depth steps L (layers, where they are not shared).
        dropout: dropout of embeddings, residual branches and inner layers, where the architecture has it.
        pooling: representation of a sequence: "mean" over its tokens, its last token ("end"), or its first ("cls").
        pair_encoding: encoding of sentence pairs: "joint", as one sequence; or "siamese", split by
            `token_type_ids`, encoded apart and classified from [u; v; u*v; |u-v|].
        classifier: last layers of a classifier, of sequences, tokens, ends of spans or choices: one "linear" map, or an
            "mlp" with one ReLU layer.
        initializer_range: standard deviation of token embeddings at the start.
        boundary_initializer_range: the same for the BOS and EOS embeddings, which are the papers' START and END.
        is_causal: tokens depend on themselves and those before them only, and halt one by one. Causal language models
            set it; boundaries and depth then never depend on what follows.
        lm_head: last layers of a causal or masked language model: one "linear" map, or the "mlp" with one ReLU layer
            that the dynamic-halt reference implementation uses.
        tie_word_embeddings: whether the last map of the language model head is the embedding table.
        pad_token_id, bos_token_id, eos_token_id: ids of the tokenizer's special tokens.

    Every field is checked for type and range when it is set, by its declaration (`fields`). `presets` has the fields of
    each named size, and `papers` those of the halting of each named paper, for `preset`.
    """

    presets = BASE_SIZE
    papers = NO_PAPERS
    earlier_defaults = NOTHING_CHANGED

    # all outputs but the logits: `Trainer` takes what is left for predictions, unless its `ignore_keys` say otherwise
    keys_to_ignore_at_inference = [
        "aux_loss",
        "ponder_loss",
        "router_loss",
        CACHE_NAME,
        "ponder_cost",
        "ponder_steps",
        "hidden_states",
        "attentions",
        "cross_attentions",
        "read_attentions",
        "memory_states",
        "halting_probabilities",
        "gates",
        "attention_experts",
        "cross_attention_experts",
        "feed_forward_experts",
    ]

    vocab_size: Vocabulary = 32
    type_vocab_size: Count = 0
    hidden_size: Size = 512
    num_hidden_layers: Layers = 10
    dropout: Share = 0.1
    pooling: Literal["mean", "end", "cls"] = "mean"
    pair_encoding: Literal["joint", "siamese"] = "joint"
    classifier: Literal["linear", "mlp"] = "mlp"
    initializer_range: NotNegative = 0.02
    boundary_initializer_range: NotNegative = 1.0
    is_causal: bool = False
    lm_head: Literal["linear", "mlp"] = "linear"
    tie_word_embeddings: bool = False
    pad_token_id: TokenId | None = 0
    bos_token_id: TokenId | None = 2
    eos_token_id: TokenId | None = 3

    # transformers' own lookup also translates names and looks for fields of single layers, of which there are none;
    # it is slow, and the forward pass reads fields at every step
    __getattribute__ = object.__getattribute__

    @property
    def per_layer_config(self) -> Any:
        return super().per_layer_config

    @per_layer_config.setter
    def per_layer_config(self, value: Any) -> None:
        require(value is None, "per_layer_config", value, "all layers have the same fields; leave it out")

    def __post_init__(self, **kwargs):
        fields = type(self).__dataclass_fields__
        for name in kwargs:
            near = [OTHER_NAMES.get(name), *difflib.get_close_matches(name, fields, n=1, cutoff=0.85)]
            meant = next((field for field in near if field in fields), None)
            if meant is not None and name not in fields:
                raise ValueError(f"{type(self).__name__} has no field `{name}`: did you mean `{meant}`?")
            if name in INHERITED:
                check_field(name, INHERITED[name], kwargs[name])
        # of architectures where it follows the other one
        if self.boundary_initializer_range is None:
            self.boundary_initializer_range = self.initializer_range
        super().__post_init__(**kwargs)

    @classmethod
    def preset(cls: type[Built], name: str, /, **fields: Any) -> Built:
        """The config of a named size: "tiny", "small", "base" (the paper's) or "large"; or with a paper's halting.

        Args:
            name: of the size, or of one of the `papers`.
            fields: others, or over those of the preset; sizes that are not named follow the width.

        Raises:
            ValueError: there is no such preset, or the fields make no config.
        """
        known: dict[str, dict[str, Any]] = {**cls.presets, **cls.papers}
        if name not in [*known]:
            near = difflib.get_close_matches(str(name).lower(), known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{cls.__name__} has no preset {shown(name)}: pass one of {', '.join(known)}{meant}")
        return cls(**{**known[name], **fields})

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As of transformers, but fields that a loader passes are checked together with the stored ones.

        Fields that an earlier version stored get their names of today. A saved config, which has the version of
        transformers, holds all fields that there were: where one is missing, it takes the class's `earlier_defaults`.

        None for a field that a new config fills in, which transformers would set, is refused; so is another
        architecture's config.
        """
        stored = config_dict.get("model_type")
        if stored is not None and not is_of(cls, stored):
            raise ValueError(
                f"the checkpoint's model_type is {stored!r}: {cls.__name__} reads {cls.model_type!r}; load it by "
                "AutoConfig and AutoModel classes, or by the classes of its own architecture"
            )
        for name in (*FOLLOWING, "depth_objective"):
            given = kwargs.get(name, name)
            require(given is not None, name, None, "only a new config fills it in; pass a value, or leave it out")
        config_dict = renamed(config_dict)
        if "transformers_version" in config_dict:
            config_dict = {**cls.earlier_defaults, **config_dict}
        # transformers sets them in turn, and another exit criterion drops the settings of the stored one
        kwargs = dict(sorted(kwargs.items(), key=lambda given: given[0] in EXIT_SETTINGS))
        found = super().from_dict(config_dict, **kwargs)
        if kwargs.keys() & cls.__dataclass_fields__.keys():
            config: Any = found[0] if isinstance(found, tuple) else found
            config.validate()
        return found

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(resumable=self.is_causal, siamese=self.pair_encoding == "siamese")

    def require_token(self, *names: str) -> None:
        """Raise a ValueError unless the ids of these special tokens are in the vocabulary."""
        for name in names:
            token = getattr(self, name)
            require(token is None or token < self.vocab_size, name, token, f"it must lie in [0, {self.vocab_size})")

    def validate_types(self):
        require(
            self.type_vocab_size == 0 or self.pair_encoding == "joint",
            "type_vocab_size",
            self.type_vocab_size,
            "siamese pairs are split by their types, and each sentence is encoded without; leave it at 0, or set "
            "pair_encoding='joint'",
        )

    def validate_tokens(self):
        self.require_token("pad_token_id", "bos_token_id", "eos_token_id")


def fitting_heads(width: int, step: int) -> int:
    """The most heads, up to 8, that divide a width into multiples of `step`; 1 if there are none."""
    return next((heads for heads in range(8, 0, -1) if width % (heads * step) == 0), 1)


@checked_config
class AttentionConfig(RecurrentConfig):
    """Fields of every model with attention.

    Args:
        num_attention_heads: heads per attention; if None 8, or fewer where 8 do not divide `hidden_size`.
        head_dim: width of a head; `hidden_size // num_attention_heads` if None.
        intermediate_size: inner width of the feed-forward network, d_ff; if None as many times `hidden_size` as in
            the paper's model.
        attention_dropout: dropout of attention probabilities.
        layer_norm_eps: epsilon of layer norms.
    """

    # of the paper's model, `intermediate_size` over `hidden_size`
    inner_ratio = 2.0
    # width of a head where it divides `hidden_size`, and nothing is given; 0 for `fitting_heads`
    head_size = 0
    # a head's width is a multiple of this
    head_step = 1

    num_attention_heads: Size | None = None
    head_dim: Size | None = None
    intermediate_size: Size | None = None
    attention_dropout: Share = 0.1
    layer_norm_eps: Positive = 1e-5

    def __post_init__(self, **kwargs):
        if self.intermediate_size is None:
            self.intermediate_size = max(1, round(self.inner_ratio * self.hidden_size))
        if self.num_attention_heads is None:
            self.num_attention_heads = self.usual_heads() if self.head_dim is None else 8
        if self.head_dim is None:
            require(
                self.hidden_size % self.num_attention_heads == 0,
                "num_attention_heads",
                self.num_attention_heads,
                f"it must divide hidden_size ({self.hidden_size}), or set head_dim",
            )
            self.head_dim = self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)

    def usual_heads(self) -> int:
        """Heads where neither their number nor their width is given."""
        if self.head_size and self.hidden_size % self.head_size == 0:
            return self.hidden_size // self.head_size
        return fitting_heads(self.hidden_size, self.head_step)


@checked_config
class EncoderConfig(AttentionConfig):
    """Fields of every encoder with xPos attention.

    Args:
        xpos_scale_base: distance over which xPos decays by one power of zeta.
    """

    head_step = 2
    presets = ENCODER_SIZES

    xpos_scale_base: Size = 512

    def validate_positions(self):
        remedy = "xPos rotates pairs of dimensions, so it must be even and at least 2; set it, or an even hidden_size"
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, remedy)


@checked_config
class ChunkRecurrentConfig(EncoderConfig):
    """Fields of models that process a sequence chunk by chunk and carry memory slots from chunk to chunk.

    Args:
        chunking: division of a sequence. "fixed": `chunk_size` tokens, the last chunk shorter; depends on nothing but
            the sequence, which can so be processed in pieces. "count": at most `num_chunks` chunks of the length over
            `num_chunks`, rounded up (the paper's TLB-FR). "balanced": as few chunks as `chunk_size` allows, all of one
            size for the whole batch, padding included, as the reference implementation cuts.
        chunk_size: maximum of tokens in a chunk, for "fixed" and "balanced".
        num_chunks: maximum of chunks of a sequence, for "count".
        num_memory_slots: vectors that are carried from chunk to chunk.
        num_memory_layers: blocks that write a chunk into the memory.
        memory_initializer_range: standard deviation of the memory before the first chunk at the start of training. At 0
            (the reference implementation) all slots are alike, and only dropout ever makes them differ.
        pooling: representation of a sequence: "mean" over the final memory slots, or the "last" slot.
    """

    chunking: Literal["fixed", "balanced", "count"] = "fixed"
    chunk_size: Length = 20
    num_chunks: Length = 5
    num_memory_slots: Length = 20
    num_memory_layers: Layers = 1
    memory_initializer_range: NotNegative = 0.02
    pooling: Literal["mean", "last"] = "mean"

    @property
    def capabilities(self) -> Capabilities:
        inner = super().capabilities
        return replace(
            inner,
            halting_unit="chunk" if inner.halting_unit == "sequence" else inner.halting_unit,
            reads="chunks",
            division=self.chunking,
            span=self.chunk_size if self.chunking == "fixed" else None,
            resumable=inner.resumable and self.chunking == "fixed",
            growing_cache=False,
            memory_slots=self.num_memory_slots,
        )
