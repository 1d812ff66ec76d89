"""Fields, checks and capabilities that the configurations of all architectures share."""

import difflib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from transformers.configuration_utils import PreTrainedConfig

from .cache_name import CACHE_NAME
from .exit_criteria import CRITERION_SETTINGS
from .fields import (
    checked_config,
    count,
    layers,
    length,
    not_negative,
    positive,
    share,
    shown,
    size,
    token_id,
    vocabulary,
)
from .saved_names import renamed

# sizes that follow others where a new config leaves them out
FOLLOWING = (
    *("num_attention_heads", "head_dim", "intermediate_size", "gate_intermediate_size"),
    *("embedding_size", "memory_cell_size", "num_key_value_heads"),
)
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


@dataclass(frozen=True)
class Capabilities:
    """Facts about a model of a given config, for code that works with every architecture.

    Attributes:
        halting: halting strategy: "none", "token", "global", "act" or "act_universal".
        halting_unit: what halts separately: each "token", the "sequence", or each "chunk" of a sequence; None if
            nothing halts.
        shared_block: whether one block is iterated, so that a call may choose `max_depth`.
        computes_candidate: whether a halting decision also computes the step that it decides about.
        synchronous: whether the halted tokens of a sequence are computed until its last token halts.
        stops_when_halted: whether a halted token or sequence takes no further steps.
        spares_steps: whether a halted token or sequence also needs no further applications of the block.
        halting_threshold: halting mass at which a token or sequence stops; None where layers are not shared.
        reads: how a sequence is processed: the "whole" at once, or by "chunks", "blocks" or single "tokens".
        division: division into chunks, "fixed", "balanced" or "count"; None without chunks.
        span: number of tokens of a chunk or block; None if it depends on the sequence, or without chunks and blocks.
        positions: largest number of tokens of a sequence, if positions have embeddings; None for any number.
        attends: whether tokens attend to each other.
        resumable: whether a sequence may be processed in pieces, with a cache.
        growing_cache: whether the cache grows with the context, rather than having a constant size.
        memory_slots: number of slots of the memory that chunks are written into; 0 without memory.
        state_vectors: number of vectors that are carried from block to block; 0 without.
        gates: what update gates weigh: "tokens" or "states"; None without gates.
        routers: the routers of a stack, by the names of the outputs that have their choices.
        stacks: names of the stacks: one without a name, or "encoder" and "decoder".
        siamese: whether the sentences of a pair are encoded separately.
        exit_criterion: what stops tokens or sequences: "learned", or an early-exit criterion, which the fields about
            halting then describe; None where layers are not shared.
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

    The type and range of a field are checked whenever the field is set. `presets` has the fields of each named size,
    and `papers` the fields of each paper's halting, for `preset`.

    Args:
        vocab_size: number of token ids.
        type_vocab_size: number of token types, for joint sentence pairs. The embedding of a token's type is added to
            the embedding of the token, before scaling, positions and dropout. 0, as in the papers' models, means that
            there are no type embeddings.
        hidden_size: width of the hidden states, d.
        num_hidden_layers: largest number of depth steps, L; in models that share no layers, the number of layers.
        dropout: dropout probability of embeddings, residual branches and inner layers, where the architecture has it.
        pooling: representation of a sequence: the "mean" over its tokens, its last token ("end"), or its first token
            ("cls").
        pair_encoding: encoding of sentence pairs. "joint": one sequence. "siamese": `token_type_ids` split the pair,
            both sentences are encoded separately, and the classifier reads [u; v; u*v; |u-v|].
        classifier: head that classifies sequences, tokens, ends of spans and choices: one "linear" layer, or an "mlp"
            with one hidden ReLU layer.
        initializer_range: standard deviation of the token embeddings at initialization.
        boundary_initializer_range: standard deviation of the BOS and EOS embeddings at initialization, the papers'
            START and END; `initializer_range` if None.
        is_causal: whether a token depends only on itself and earlier tokens. Tokens of a causal model halt one by one.
            Causal language models set it to True.
        lm_head: head of causal and masked language models: one "linear" layer, or the "mlp" with one hidden ReLU layer
            of the dynamic-halt reference implementation.
        tie_word_embeddings: whether the output layer of a language model shares its weights with the token embeddings.
        pad_token_id: id of the padding token.
        bos_token_id: id of the token at the beginning of a sequence.
        eos_token_id: id of the token at the end of a sequence.
        transformers_version: version of transformers that saved the config.
        architectures: names of the model classes that the checkpoint was saved with.
        output_hidden_states: whether a forward pass returns the hidden states of all steps.
        return_dict: whether a forward pass returns a `ModelOutput` rather than a tuple.
        dtype: data type of the weights.
        chunk_size_feed_forward: without effect: feed-forward networks are not chunked.
        is_encoder_decoder: whether the model has an encoder and a decoder.
        id2label: class number -> label; "LABEL_0", "LABEL_1", ... if None.
        label2id: label -> class number.
        problem_type: loss of a sequence classifier; chosen by `num_labels` and the type of the labels if None.
        num_labels: number of classes, which sets `id2label` and `label2id`.
        output_attentions: whether a forward pass returns attention probabilities.
    """

    presets = {"base": dict[str, int]()}
    papers = dict[str, dict[str, str]]()
    # fields that are newer than some saved configs, or whose default has changed -> what configs without them mean
    earlier_defaults = dict[str, str]()
    # ids that the vocabulary has to hold
    special_tokens = ("pad_token_id", "bos_token_id", "eos_token_id")

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

    vocab_size: int = vocabulary(32)
    type_vocab_size: int = count(0)
    hidden_size: int = size(512)
    num_hidden_layers: int = layers(10)
    dropout: float = share(0.1)
    pooling: Literal["mean", "end", "cls"] = "mean"
    pair_encoding: Literal["joint", "siamese"] = "joint"
    classifier: Literal["linear", "mlp"] = "mlp"
    initializer_range: float = not_negative(0.02)
    boundary_initializer_range: float = not_negative(1.0)
    is_causal: bool = False
    lm_head: Literal["linear", "mlp"] = "linear"
    tie_word_embeddings: bool = False
    pad_token_id: int | None = token_id(0)
    bos_token_id: int | None = token_id(2)
    eos_token_id: int | None = token_id(3)
    # transformers declares the types of these fields as texts, which `strict` does not check
    transformers_version: str | None = None
    architectures: list[str] | None = None
    output_hidden_states: bool | None = False
    return_dict: bool | None = True
    chunk_size_feed_forward: int = count(0)
    is_encoder_decoder: Literal[False] = False
    id2label: dict | None = None
    label2id: dict | None = None
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        checked_config(cls)

    # transformers' own lookup also translates names and looks for fields of single layers, of which there are none;
    # it is slow, and the forward pass reads fields at every step
    __getattribute__ = object.__getattribute__

    @property
    def per_layer_config(self) -> Any:
        return super().per_layer_config

    @per_layer_config.setter
    def per_layer_config(self, value: Any) -> None:
        if value is not None:
            raise ValueError(
                f"config field `per_layer_config` is {shown(value)}: all layers have the same fields; leave it out"
            )

    def __post_init__(self, **kwargs):
        fields = type(self).__dataclass_fields__
        for name in kwargs:
            near = [OTHER_NAMES.get(name), *difflib.get_close_matches(name, fields, n=1, cutoff=0.85)]
            meant = next((field for field in near if field in fields), None)
            if meant is not None and name not in fields:
                raise ValueError(f"{type(self).__name__} has no field `{name}`: did you mean `{meant}`?")
            for validator in self.__validators__.get(name, ()):
                validator(kwargs[name])
        # of architectures where it follows the other one
        if self.boundary_initializer_range is None:
            self.boundary_initializer_range = self.initializer_range
        super().__post_init__(**kwargs)

    @classmethod
    def preset(cls: type[Built], name: str, /, **fields: Any) -> Built:
        """The config of a named size, "tiny", "small", "base" (the paper's) or "large", or with the halting of a paper.

        Args:
            name: name of a size in `presets`, or of a paper in `papers`.
            fields: further fields, which have precedence over the preset. Sizes that are not given follow the width.

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
        """Make a config as transformers does, and check fields that a loader passes together with the stored fields.

        Fields that an earlier version saved get today's names. A saved config, which has the version of transformers,
        holds all fields of its time; a missing field has the value in `earlier_defaults`.

        Raises:
            ValueError: the config is of another architecture, or a field that only a new config fills in is None.
        """
        stored = config_dict.get("model_type")
        if stored is not None and not is_of(cls, stored):
            raise ValueError(
                f"the checkpoint's model_type is {stored!r}: {cls.__name__} reads {cls.model_type!r}; load it by "
                "AutoConfig and AutoModel classes, or by the classes of its own architecture"
            )
        for name in (*FOLLOWING, "depth_objective"):
            if kwargs.get(name, name) is None:
                raise ValueError(
                    f"config field `{name}` is None: only a new config fills it in; pass a value, or leave it out"
                )
        config_dict = renamed(config_dict)
        if "transformers_version" in config_dict:
            config_dict = {**cls.earlier_defaults, **config_dict}
        # transformers sets them in turn, and another exit criterion drops the settings of the stored one
        kwargs = dict(sorted(kwargs.items(), key=lambda given: given[0] in CRITERION_SETTINGS))
        found = super().from_dict(config_dict, **kwargs)
        if kwargs.keys() & cls.__dataclass_fields__.keys():
            config: Any = found[0] if isinstance(found, tuple) else found
            config.validate()
        return found

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(resumable=self.is_causal, siamese=self.pair_encoding == "siamese")

    def require(self, condition: bool, field: str, remedy: str) -> None:
        """Raise a ValueError that names a field, its value and the remedy, unless the condition holds."""
        if not condition:
            raise ValueError(f"config field `{field}` is {shown(getattr(self, field))}: {remedy}")

    def validate_types(self):
        self.require(
            self.type_vocab_size == 0 or self.pair_encoding == "joint",
            "type_vocab_size",
            "siamese pairs are split by their types, and each sentence is encoded without; leave it at 0, or set "
            "pair_encoding='joint'",
        )

    def validate_tokens(self):
        for name in self.special_tokens:
            token = getattr(self, name)
            self.require(token is None or token < self.vocab_size, name, f"it must be in [0, {self.vocab_size})")


class AttentionConfig(RecurrentConfig):
    """Fields of every model with attention.

    Args:
        num_attention_heads: number of attention heads. If None, 8, or the largest smaller number that divides
            `hidden_size` into heads of a suitable width.
        head_dim: width of an attention head; `hidden_size // num_attention_heads` if None.
        intermediate_size: inner width of the feed-forward network, d_ff; if None, in the same proportion to
            `hidden_size` as in the paper's model.
        attention_dropout: dropout probability of attention weights.
        layer_norm_eps: epsilon of the layer norms.
    """

    # `intermediate_size` over `hidden_size` in the paper's model
    inner_ratio = 2.0
    # default width of a head where it divides `hidden_size`; 0 for up to 8 heads
    head_size = 0
    # a head's width is a multiple of this
    head_step = 1

    num_attention_heads: int | None = size(None)
    head_dim: int | None = size(None)
    intermediate_size: int | None = size(None)
    attention_dropout: float = share(0.1)
    layer_norm_eps: float = positive(1e-5)

    def __post_init__(self, **kwargs):
        width = self.hidden_size
        if self.intermediate_size is None:
            self.intermediate_size = max(1, round(self.inner_ratio * width))
        if self.num_attention_heads is None:
            self.num_attention_heads = 8
            if self.head_dim is None and self.head_size and width % self.head_size == 0:
                self.num_attention_heads = width // self.head_size
            elif self.head_dim is None:
                fitting = (heads for heads in range(8, 0, -1) if width % (heads * self.head_step) == 0)
                self.num_attention_heads = next(fitting, 1)
        if self.head_dim is None:
            remedy = f"it must divide hidden_size ({width}), or set head_dim"
            self.require(width % self.num_attention_heads == 0, "num_attention_heads", remedy)
            self.head_dim = width // self.num_attention_heads
        super().__post_init__(**kwargs)


class EncoderConfig(AttentionConfig):
    """Fields of every encoder with xPos attention.

    Args:
        xpos_scale_base: number of tokens over which the xPos attention decay falls by one power of its base, zeta.
    """

    head_step = 2
    # sizes of the dynamic-halt paper
    presets = {
        "tiny": {"hidden_size": 64, "num_attention_heads": 4},
        "small": {"hidden_size": 256, "num_attention_heads": 4},
        "base": {},
        "large": {"hidden_size": 1024, "num_attention_heads": 16},
    }

    xpos_scale_base: int = size(512)

    def validate_positions(self):
        remedy = "xPos rotates pairs of dimensions, so it must be even and at least 2; set it, or an even hidden_size"
        self.require(self.head_dim % 2 == 0, "head_dim", remedy)


class ChunkRecurrentConfig(EncoderConfig):
    """Fields of models that process a sequence chunk by chunk and carry memory slots from chunk to chunk.

    Args:
        chunking: how a sequence is divided. "fixed": chunks of `chunk_size` tokens, and a shorter last chunk; the
            division depends on the sequence alone, so a sequence can be processed in pieces. "count": at most
            `num_chunks` chunks, whose size is the length over `num_chunks`, rounded up (the paper's TLB-FR).
            "balanced": as few chunks as `chunk_size` allows, of equal size for the whole batch including its padding,
            as in the reference implementation.
        chunk_size: largest number of tokens in a chunk, for "fixed" and "balanced".
        num_chunks: largest number of chunks of a sequence, for "count".
        num_memory_slots: number of vectors that are carried from chunk to chunk.
        num_memory_layers: number of blocks that write a chunk into the memory.
        memory_initializer_range: standard deviation of the initial memory slots at initialization. At 0, the value of
            the reference implementation, all slots are equal, and only dropout makes them differ.
        pooling: representation of a sequence: the "mean" over the final memory slots, or the "last" slot.
    """

    chunking: Literal["fixed", "balanced", "count"] = "fixed"
    chunk_size: int = length(20)
    num_chunks: int = length(5)
    num_memory_slots: int = length(20)
    num_memory_layers: int = layers(1)
    memory_initializer_range: float = not_negative(0.02)
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
