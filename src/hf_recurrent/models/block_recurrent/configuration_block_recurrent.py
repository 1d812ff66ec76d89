"""Configuration of Block-Recurrent Transformers and of the baselines that are built of the same layers."""

from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities, require
from ..config.fields import Finite, Layers, Length, NotNegative, Positive, Share, Size, Vocabulary, checked_config
from ..config.presets import BLOCK_RECURRENT_SIZES


@checked_config
class BlockRecurrentConfig(AttentionConfig):
    """Configuration of `BlockRecurrentModel` ("Block-Recurrent Transformers", https://arxiv.org/abs/2203.07852).

    Defaults are the paper's Rec:fixed:skip of 12 layers. `recurrent_layers=[]` makes its baselines: a sliding window
    where a call holds several windows (Slide), Transformer-XL where it holds one; with `memory_layers=[-4]` and one
    window a call, the Memorizing Transformer.

    Fields are those of `AttentionConfig`, where `layer_norm_eps` is of norms without mean or bias (RMSNorm). The model
    is always causal; a token attends to the `window_size` tokens before it, not to itself.

    Parameters by default: 160,495,736 (`BlockRecurrentModel`).

    Args:
        window_size: tokens W of a window, which is also a block: state vectors are updated after each.
        recurrent_layers: layers that attend to state vectors and update them, counted from 0, or from the end if
            negative.
        num_state_vectors: state vectors S of a recurrent layer.
        state_gate: weight of an update against the state: a learned "fixed" share of each unit, or "lstm"
            gates of the attention's result.
        state_update: update of the states after attention: "dual", a gate after the attention and
            one after the feed-forward network; "single", the network and one gate; "skip", one gate and no network.
        feedback: every layer attends to the state vectors, as the block before left them. Blocks are then run one by
            one.
        memory_layers: layers that also retrieve tokens of the distant past by their keys (Memorizing Transformer).
        memory_size: tokens M of each sequence in such a layer's memory; a multiple of `window_size`.
        num_neighbors: tokens k that it retrieves for each token and head.
        memory_retrieval: "bucketed" returns the best of each of k buckets of slots, as the reference implementation;
            "exact" returns the k best.
        memory_position_bias: whether such a layer has position biases in its window (the release of 2022 had).
        relative_attention_num_buckets, relative_attention_max_distance: T5's position biases, one table a layer.
        logit_divisor: logits are divided by the square root of "hidden_size", of "vocab_size" (release of 2022), or of
            a number; a vocabulary that is resized leaves that of before.
        attention_scale: the learned scale of a head counts by its "absolute" value, or with its sign (release of 2022).
        attention_scale_init: initial value of that scale. Queries and keys have length one, so that attention at 1 (the
            reference implementation) is nearly uniform until the scale has grown; short trainings want more.
        pooling: representation of a sequence: the last token's state plus the mean of the state vectors ("states"),
            the mean over tokens, the last or the first. None: "states" where there are any, else "end".
        state_initializer_range: standard deviation of state vectors before the first block, at the start of training.
        state_gate_bias_init: mean of the biases of "fixed" gates at the start of training. At 0 (the reference
            implementation) an update forgets about half of a state; at 2, an eighth.
    """

    model_type = "block_recurrent"
    presets = BLOCK_RECURRENT_SIZES
    inner_ratio = 4

    hidden_size: Size = 1024
    num_hidden_layers: Layers = 12
    dropout: Share = 0.05
    attention_dropout: Share = 0.05
    layer_norm_eps: Positive = 1e-6
    initializer_range: NotNegative = 1.0
    classifier: Literal["linear", "mlp"] = "linear"
    is_causal: bool = True
    tie_word_embeddings: bool = True
    window_size: Length = 512
    recurrent_layers: list[int] | tuple[int, ...] | None = None
    num_state_vectors: Length = 512
    state_gate: Literal["fixed", "lstm"] = "fixed"
    state_update: Literal["dual", "single", "skip"] = "skip"
    feedback: bool = False
    memory_layers: list[int] | tuple[int, ...] | None = None
    memory_size: Length = 32768
    num_neighbors: Length = 128
    memory_retrieval: Literal["bucketed", "exact"] = "bucketed"
    memory_position_bias: bool = False
    relative_attention_num_buckets: Length = 32
    relative_attention_max_distance: Length = 128
    logit_divisor: Literal["hidden_size", "vocab_size"] | Vocabulary = "hidden_size"
    attention_scale: Literal["absolute", "signed"] = "absolute"
    pooling: Literal["states", "mean", "end", "cls"] | None = None
    state_initializer_range: NotNegative = 0.1
    attention_scale_init: Finite = 1.0
    state_gate_bias_init: Finite = 0.0

    def __post_init__(self, **kwargs):
        if self.recurrent_layers is None:
            self.recurrent_layers = [-3] if self.num_hidden_layers > 2 else [-1]
        self.recurrent_layers, self.memory_layers = list(self.recurrent_layers), list(self.memory_layers or ())
        if self.pooling is None:
            self.pooling = "states" if self.recurrent_layers else "end"
        super().__post_init__(**kwargs)

    @property
    def recurrent_indices(self) -> list[int]:
        """Recurrent layers, lowest first, counted from 0."""
        return sorted(layer % self.num_hidden_layers for layer in self.recurrent_layers or ())

    @property
    def memory_indices(self) -> list[int]:
        return sorted(layer % self.num_hidden_layers for layer in self.memory_layers or ())

    @property
    def token_units(self) -> bool:
        return False

    @property
    def capabilities(self) -> Capabilities:
        recurrent = bool(self.recurrent_layers)
        return replace(
            super().capabilities,
            reads="blocks",
            span=self.window_size,
            growing_cache=False,
            state_vectors=self.num_state_vectors if recurrent else 0,
            gates="states" if recurrent else None,
        )

    def validate_window(self):
        exact = self.relative_attention_num_buckets // 2
        require(
            exact > 0, "relative_attention_num_buckets", self.relative_attention_num_buckets, "it must be at least 2"
        )
        require(
            self.relative_attention_max_distance > exact,
            "relative_attention_max_distance",
            self.relative_attention_max_distance,
            f"it must be more than half the buckets ({exact})",
        )
        require(self.is_causal, "is_causal", self.is_causal, "tokens see those before them only: leave it True")
        require(
            self.lm_head == "linear", "lm_head", self.lm_head, "this architecture has a linear head: leave it 'linear'"
        )

    def validate_layers(self):
        depth = self.num_hidden_layers
        for name in ("recurrent_layers", "memory_layers"):
            layers = getattr(self, name)
            fits = all(-depth <= layer < depth for layer in layers)
            require(fits, name, layers, f"layers are numbered from {-depth} to {depth - 1}")
            distinct = len({layer % depth for layer in layers}) == len(layers)
            require(distinct, name, layers, "a layer is named twice")
        both = set(self.recurrent_indices) & set(self.memory_indices)
        require(not both, "memory_layers", self.memory_layers, f"layers {sorted(both)} are recurrent already")
        states = bool(self.recurrent_layers)
        require(states or not self.feedback, "feedback", self.feedback, "there is no recurrent layer to attend to")
        require(states or self.pooling != "states", "pooling", self.pooling, "there are no recurrent layers: use 'end'")

    def validate_memory(self):
        if not self.memory_layers:
            return
        size, window, neighbors = self.memory_size, self.window_size, self.num_neighbors
        require(size % window == 0, "memory_size", size, f"it must be a multiple of window_size ({window})")
        if self.memory_retrieval == "bucketed":
            require(size % neighbors == 0, "num_neighbors", neighbors, f"it must divide memory_size ({size})")
        require(neighbors <= size, "num_neighbors", neighbors, f"it must be at most memory_size ({size})")


__all__ = ["BlockRecurrentConfig"]
