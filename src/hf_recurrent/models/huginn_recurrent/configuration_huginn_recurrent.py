"""Configuration of Huginn with adaptive depth."""

import math
from typing import Literal

from ..common.configuration import AttentionConfig, Capabilities, require
from ..common.depth_configuration import StackedDepthConfig
from ..common.fields import (
    Layers,
    Length,
    NotNegative,
    Positive,
    Share,
    Size,
    Threshold,
    TokenId,
    Vocabulary,
    checked_config,
)
from ..common.presets import HUGINN_SIZES

# of Huginn-0125
HEAD_SIZE, INNER_RATIO = 96, 17_920 / 5280


@checked_config
class HuginnRecurrentConfig(StackedDepthConfig, AttentionConfig):
    """Configuration of `HuginnRecurrentModel` (Huginn, https://arxiv.org/abs/2502.05171).

    Defaults are those of Huginn-0125. `from_pretrained_recurrent` makes the config of a checkpoint of the authors' from
    theirs. Further fields are those of `StackedDepthConfig`, `AttentionConfig` and `RecurrentConfig`.

    Parameters by default: 3,564,976,800 (`HuginnRecurrentModel`).

    Args:
        num_hidden_layers: depth steps, each of which applies all layers of the core, and the mean of those that
            "poisson_lognormal" draws in training.
        prelude_layers, coda_layers: layers before the first step and after the last one.
        num_attention_heads: `hidden_size / 96` if None and 96 divides it.
        max_position_embeddings: tokens of a sequence that the model was trained for; longer ones are read, too.
        rope_theta: base of the frequencies of rotations.
        qk_bias: whether queries and keys have biases.
        adapter_bias: whether the map from a state and the embedded input to the core has one.
        initial_state: states before the first step. "zero": zeros. "random": truncated normal noise, drawn anew by
            every call from torch's generator, as the authors' code does; then results depend on it. The default,
            "random_in_training": noise in training mode and zeros in evaluation, so that results can be repeated and
            depend neither on the batch nor on whether a text is read in pieces.
        initial_state_scale: factor of that noise, whose standard deviation is else about 0.63.
        initializer_range: `(2 / (5 hidden_size)) ** 0.5` if None; layers that write into states begin with less.
        backprop_steps: as of `AdaptiveDepthConfig`; the embedded input, which every step reads, is trained by any call.
        halting: always "none": Huginn has no halting head. An `exit_criterion` stops tokens; those that look at
            predictions see the coda applied to each token alone (`HuginnRecurrentModel.readout`).
        halting_threshold: without effect.
    """

    model_type = "huginn_recurrent"
    head_step = 2
    presets = HUGINN_SIZES

    vocab_size: Vocabulary = 65_536
    hidden_size: Size = 5280
    num_hidden_layers: Layers = 32
    prelude_layers: Layers = 2
    coda_layers: Layers = 2
    max_position_embeddings: Length = 4096
    rope_theta: Positive = 50_000.0
    qk_bias: bool = True
    adapter_bias: bool = False
    initial_state: Literal["zero", "random", "random_in_training"] = "random_in_training"
    initial_state_scale: NotNegative = 1.0
    dropout: Share = 0.0
    attention_dropout: Share = 0.0
    layer_norm_eps: Positive = 1e-6
    initializer_range: NotNegative | None = None
    boundary_initializer_range: NotNegative | None = None
    halting: Literal["none"] = "none"
    halting_threshold: Threshold = 0.999
    depth_objective: Literal["final", "mixture", "every_step"] = "final"
    depth_sampling: Literal["fixed", "uniform", "poisson_lognormal"] = "poisson_lognormal"
    backprop_steps: Layers | None = 8
    classifier: Literal["linear", "mlp"] = "linear"
    tie_word_embeddings: bool = True
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | None = None

    def __post_init__(self, **kwargs):
        divides = self.hidden_size % HEAD_SIZE == 0
        if self.num_attention_heads is None and self.head_dim is None and divides:
            self.num_attention_heads = self.hidden_size // HEAD_SIZE
        if self.intermediate_size is None:
            self.intermediate_size = max(1, round(INNER_RATIO * self.hidden_size))
        if self.initializer_range is None:
            self.initializer_range = math.sqrt(2 / (5 * self.hidden_size))
        if self.boundary_initializer_range is None:
            self.boundary_initializer_range = self.initializer_range
        super().__post_init__(**kwargs)

    @property
    def expected_layers(self) -> int:
        """Layers that a state goes through in the mean."""
        return self.prelude_layers + self.layers_per_step * self.num_hidden_layers + self.coda_layers

    @property
    def capabilities(self) -> Capabilities:
        return self.under_exit_criterion(super().capabilities)

    def validate_rotations(self):
        require(self.head_dim % 2 == 0, "head_dim", self.head_dim, "rotations turn pairs of dimensions; make it even")


__all__ = ["HuginnRecurrentConfig"]
