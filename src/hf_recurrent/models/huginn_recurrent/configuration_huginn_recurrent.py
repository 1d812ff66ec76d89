"""Configuration of Huginn with adaptive depth."""

import math
from typing import Literal

from ..config.base import Capabilities
from ..config.depth import StackedDepthConfig
from ..config.fields import (
    Layers,
    NotNegative,
    Positive,
    Size,
    Threshold,
    TokenId,
    Vocabulary,
    checked_config,
)
from ..config.presets import HUGINN_SIZES


@checked_config
class HuginnRecurrentConfig(StackedDepthConfig):
    """Configuration of `HuginnRecurrentModel` (Huginn, https://arxiv.org/abs/2502.05171).

    Defaults are those of Huginn-0125. `from_pretrained_recurrent` makes the config of a checkpoint of the authors' from
    theirs. Further fields are those of `StackedDepthConfig`, `AttentionConfig` and `RecurrentConfig`.

    Parameters by default: 3,564,976,800 (`HuginnRecurrentModel`).

    Args:
        num_hidden_layers: depth steps, each of which applies all layers of the core; "poisson_lognormal" draws one
            more than so many on average in training.
        prelude_layers, coda_layers: layers before the first step and after the last one.
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
    # of Huginn-0125
    head_size, inner_ratio = 96, 17_920 / 5280
    presets = HUGINN_SIZES

    vocab_size: Vocabulary = 65_536
    hidden_size: Size = 5280
    num_hidden_layers: Layers = 32
    prelude_layers: Layers = 2
    coda_layers: Layers = 2
    rope_theta: Positive = 50_000.0
    qk_bias: bool = True
    adapter_bias: bool = False
    initial_state: Literal["zero", "random", "random_in_training"] = "random_in_training"
    initial_state_scale: NotNegative = 1.0
    initializer_range: NotNegative | None = None
    halting: Literal["none"] = "none"
    halting_threshold: Threshold = 0.999
    depth_objective: Literal["final", "mixture", "every_step"] = "final"
    depth_sampling: Literal["fixed", "uniform", "poisson_lognormal"] = "poisson_lognormal"
    backprop_steps: Layers | None = 8
    tie_word_embeddings: bool = True
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | None = None

    def __post_init__(self, **kwargs):
        if self.initializer_range is None:
            self.initializer_range = math.sqrt(2 / (5 * self.hidden_size))
        super().__post_init__(**kwargs)

    @property
    def expected_layers(self) -> int:
        """Layers that a state goes through in the mean."""
        return self.prelude_layers + self.layers_per_step * self.num_hidden_layers + self.coda_layers

    @property
    def capabilities(self) -> Capabilities:
        return self.under_exit_criterion(super().capabilities)


__all__ = ["HuginnRecurrentConfig"]
