"""Configuration of Block-Recurrent Transformers and of the baselines that are built of the same layers."""

from dataclasses import replace
from typing import Literal

from ..config.base import AttentionConfig, Capabilities
from ..config.fields import length, not_negative, vocabulary


class BlockRecurrentConfig(AttentionConfig):
    """Configuration of `BlockRecurrentModel` ("Block-Recurrent Transformers", https://arxiv.org/abs/2203.07852).

    Defaults are the paper's Rec:fixed:skip of 12 layers. `recurrent_layers=[]` gives its baselines: a sliding window
    where a call has several windows (Slide), and Transformer-XL where it has one window. With `memory_layers=[-4]` and
    one window a call, the model is the Memorizing Transformer.

    The model is always causal: a token attends to the `window_size` tokens before it, not to itself.

    Parameters by default: 160,495,736 (`BlockRecurrentModel`).

    Args:
        window_size: number of tokens in a window, W. A window is also a block: state vectors are updated after each
            block.
        recurrent_layers: numbers of the layers that attend to state vectors and update them, counted from 0, or from
            the end if negative. If None, the third layer from the end, or the last layer of at most two.
        num_state_vectors: number of state vectors of a recurrent layer, S.
        state_gate: how an update is mixed with the state: "fixed", by a learned share for each unit, or "lstm", by
            gates that depend on the result of the attention.
        state_update: how states are updated after the attention. "dual": a gate after the attention, and another gate
            after the feed-forward network. "single": the feed-forward network and one gate. "skip": one gate, and no
            feed-forward network.
        feedback: whether every layer attends to the state vectors of the block before. Blocks are then processed one by
            one.
        memory_layers: numbers of the layers that also retrieve earlier tokens by their keys (Memorizing Transformer).
        memory_size: number of tokens of each sequence in the memory of such a layer, M; a multiple of `window_size`.
        num_neighbors: number of tokens that such a layer retrieves for each token and head, k.
        memory_retrieval: "bucketed" retrieves the best token of each of k buckets of slots, as the reference
            implementation does; "exact" retrieves the k best tokens.
        memory_position_bias: whether a layer with memory has position biases in its window, as in the release of 2022.
        relative_attention_num_buckets: number of buckets of T5's position biases, which each layer learns.
        relative_attention_max_distance: distance beyond which T5's position biases do not change.
        logit_divisor: logits are divided by the square root of "hidden_size", of "vocab_size" (release of 2022), or of
            a number. If you resize the vocabulary, the divisor stays.
        attention_scale: whether the learned attention scale of a head is used as its "absolute" value or "signed"
            (release of 2022).
        attention_scale_init: initial value of the attention scale. Queries and keys have length one, so attention with
            a scale of 1, as in the reference implementation, is almost uniform until the scale has grown. Short
            trainings need a larger value.
        layer_norm_eps: epsilon of the norms, which have neither mean nor bias (RMSNorm).
        pooling: representation of a sequence: the last token plus the mean of the state vectors ("states"), the "mean"
            over tokens, the last token ("end") or the first token ("cls"). If None, "states" where there are state
            vectors, and "end" elsewhere.
        state_initializer_range: standard deviation of the initial state vectors at initialization.
        state_gate_bias_init: mean of the biases of "fixed" gates at initialization. At 0, the value of the reference
            implementation, an update replaces about half of a state; at 2, an eighth.
        is_causal: always True: a token sees earlier tokens only.
    """

    model_type = "block_recurrent"
    inner_ratio = 4
    # large: the paper's Rec:fixed:skip:large
    presets = {
        "tiny": {
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "window_size": 64,
            "num_state_vectors": 64,
        },
        "small": {"hidden_size": 512, "num_hidden_layers": 6, "window_size": 256, "num_state_vectors": 256},
        "base": {},
        "large": {"num_attention_heads": 16, "head_dim": 128, "intermediate_size": 8192},
    }

    hidden_size: int = 1024
    num_hidden_layers: int = 12
    dropout: float = 0.05
    attention_dropout: float = 0.05
    layer_norm_eps: float = 1e-6
    initializer_range: float = 1.0
    classifier: Literal["linear", "mlp"] = "linear"
    is_causal: bool = True
    tie_word_embeddings: bool = True
    window_size: int = length(512)
    recurrent_layers: list[int] | tuple[int, ...] | None = None
    num_state_vectors: int = length(512)
    state_gate: Literal["fixed", "lstm"] = "fixed"
    state_update: Literal["dual", "single", "skip"] = "skip"
    feedback: bool = False
    memory_layers: list[int] | tuple[int, ...] | None = None
    memory_size: int = length(32768)
    num_neighbors: int = length(128)
    memory_retrieval: Literal["bucketed", "exact"] = "bucketed"
    memory_position_bias: bool = False
    relative_attention_num_buckets: int = length(32)
    relative_attention_max_distance: int = length(128)
    logit_divisor: Literal["hidden_size", "vocab_size"] | int = vocabulary("hidden_size")
    attention_scale: Literal["absolute", "signed"] = "absolute"
    pooling: Literal["states", "mean", "end", "cls"] | None = None
    state_initializer_range: float = not_negative(0.1)
    attention_scale_init: float = 1.0
    state_gate_bias_init: float = 0.0

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
        self.require(exact > 0, "relative_attention_num_buckets", "it must be at least 2")
        self.require(
            self.relative_attention_max_distance > exact,
            "relative_attention_max_distance",
            f"it must be more than half the buckets ({exact})",
        )
        self.require(self.is_causal, "is_causal", "tokens see those before them only: leave it True")
        self.require(self.lm_head == "linear", "lm_head", "this architecture has a linear head: leave it 'linear'")

    def validate_layers(self):
        depth = self.num_hidden_layers
        for name in ("recurrent_layers", "memory_layers"):
            layers = getattr(self, name)
            fits = all(-depth <= layer < depth for layer in layers)
            self.require(fits, name, f"layers are numbered from {-depth} to {depth - 1}")
            distinct = len({layer % depth for layer in layers}) == len(layers)
            self.require(distinct, name, "a layer is named twice")
        both = set(self.recurrent_indices) & set(self.memory_indices)
        self.require(not both, "memory_layers", f"layers {sorted(both)} are recurrent already")
        states = bool(self.recurrent_layers)
        self.require(states or not self.feedback, "feedback", "there is no recurrent layer to attend to")
        self.require(states or self.pooling != "states", "pooling", "there are no recurrent layers: use 'end'")

    def validate_memory(self):
        if not self.memory_layers:
            return
        size, window, neighbors = self.memory_size, self.window_size, self.num_neighbors
        self.require(size % window == 0, "memory_size", f"it must be a multiple of window_size ({window})")
        if self.memory_retrieval == "bucketed":
            self.require(size % neighbors == 0, "num_neighbors", f"it must divide memory_size ({size})")
        self.require(neighbors <= size, "num_neighbors", f"it must be at most memory_size ({size})")


__all__ = ["BlockRecurrentConfig"]
