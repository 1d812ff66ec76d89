"""Configuration of Huginn with adaptive depth."""

import math
from typing import Literal

from ..config.base import Capabilities
from ..config.depth import StackedDepthConfig
from ..config.fields import layers, not_negative


class HuginnRecurrentConfig(StackedDepthConfig):
    """Configuration of `HuginnRecurrentModel` (Huginn, https://arxiv.org/abs/2502.05171).

    Defaults are the sizes of Huginn-0125. `from_pretrained_recurrent` makes the config of an authors' checkpoint from
    the authors' config.

    Parameters by default: 3,564,976,800 (`HuginnRecurrentModel`).

    Args:
        num_hidden_layers: number of depth steps; each step applies all layers of the core. With "poisson_lognormal",
            training takes one step more than this on average.
        prelude_layers: number of layers before the first step.
        coda_layers: number of layers after the last step.
        qk_bias: whether queries and keys have biases.
        adapter_bias: whether the layer that joins a state and the embedded input, before the core, has a bias.
        initial_state: states before the first step. "zero": zeros. "random": truncated normal noise, which every call
            draws from torch's generator, as the authors' code does; results then depend on the generator.
            "random_in_training", the default: noise in training mode and zeros in evaluation mode, so results can be
            repeated, and depend neither on the batch nor on whether a text is processed in pieces.
        initial_state_scale: factor of that noise, whose standard deviation is about 0.63 without it.
        initializer_range: standard deviation of weights at initialization; `(2 / (5 * hidden_size)) ** 0.5` if None.
            Layers that write into states begin with a smaller one.
        backprop_steps: number of last steps through which training propagates gradients; all steps if None. The
            embedded input, which every step reads, is trained by any call.
        halting: always "none": Huginn has no halting head. An `exit_criterion` stops tokens. Criteria that look at
            predictions apply the coda to each token alone (`HuginnRecurrentModel.readout`).
        halting_threshold: without effect, because there is no halting head.
    """

    model_type = "huginn_recurrent"
    # of Huginn-0125
    head_size, inner_ratio = 96, 17_920 / 5280
    # base: Huginn-0125; large: twice its width
    presets = {
        "tiny": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8},
        "small": {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 8},
        "base": {},
        "large": {"hidden_size": 10_560},
    }

    vocab_size: int = 65_536
    hidden_size: int = 5280
    num_hidden_layers: int = 32
    prelude_layers: int = layers(2)
    coda_layers: int = layers(2)
    rope_theta: float = 50_000.0
    qk_bias: bool = True
    adapter_bias: bool = False
    initial_state: Literal["zero", "random", "random_in_training"] = "random_in_training"
    initial_state_scale: float = not_negative(1.0)
    initializer_range: float | None = None
    halting: Literal["none"] = "none"
    depth_objective: Literal["final", "mixture", "every_step"] = "final"
    depth_sampling: Literal["fixed", "uniform", "poisson_lognormal"] = "poisson_lognormal"
    backprop_steps: int | None = 8
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs):
        if self.initializer_range is None:
            self.initializer_range = math.sqrt(2 / (5 * self.hidden_size))
        super().__post_init__(**kwargs)

    @property
    def capabilities(self) -> Capabilities:
        return self.under_exit_criterion(super().capabilities)


__all__ = ["HuginnRecurrentConfig"]
