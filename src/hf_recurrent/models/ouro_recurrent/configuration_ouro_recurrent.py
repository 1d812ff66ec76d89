"""Configuration of Ouro with adaptive depth."""

from dataclasses import replace
from typing import Literal

from ..config.base import Capabilities, require
from ..config.depth import StackedDepthConfig
from ..config.fields import (
    Finite,
    Layers,
    Length,
    NotNegative,
    Positive,
    Size,
    Threshold,
    TokenId,
    Vocabulary,
    checked_config,
)
from ..config.presets import OURO_SIZES

# what a scaling of rotations needs, by its type
SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@checked_config
class OuroRecurrentConfig(StackedDepthConfig):
    """Configuration of `OuroRecurrentModel` (Ouro, https://arxiv.org/abs/2510.25741).

    Defaults are those of Ouro-1.4B. `from_pretrained_recurrent` makes the config of a checkpoint of the authors' from
    theirs. Further fields are those of `StackedDepthConfig`, `AttentionConfig` and `RecurrentConfig`.

    Parameters by default: 1,333,989,377 (`OuroRecurrentModel`).

    Args:
        num_hidden_layers: depth steps, each of which applies all layers.
        num_key_value_heads: heads of keys and values, each of which serves as many heads of queries;
            `num_attention_heads` if None.
        hidden_act: activation of the gated linear unit.
        rotary_scaling: scaling of those frequencies: `rope_type` ("linear" or "llama3") and its numbers, as
            transformers' `rope_scaling`.
        sliding_layers: numbers of the layers, from 0, in which a token sees no more than `sliding_window` keys.
        sliding_window: so many, its own included.
        halting: every "token" by the exit gate, or "none": always all steps.
        halting_threshold: cumulative exit probability at which a token stops (Q-exit). At 1 it takes all steps, but for
            a gate that saturates.
        halting_bias_init: initial bias of the exit gate; torch's own if None.
        ponder_loss_weight: weight of the mean ponder cost in the loss with the objective "mixture".
        depth_objective: "expected" is the paper's first stage, with a uniform prior of weight `depth_prior_weight`;
            "mixture" the loss that the authors' code returns, of logits mixed by exit probabilities; "gate" the second
            stage, which trains the exit gate alone.
    """

    model_type = "ouro_recurrent"
    # of Ouro-1.4B and Ouro-2.6B
    head_size, inner_ratio = 128, 2.75
    presets = OURO_SIZES

    vocab_size: Vocabulary = 49_152
    hidden_size: Size = 2048
    num_hidden_layers: Layers = 4
    layers_per_step: Layers = 24
    num_key_value_heads: Size | None = None
    hidden_act: Literal["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "silu"
    max_position_embeddings: Length = 65_536
    rope_theta: Positive = 1_000_000.0
    rotary_scaling: dict | None = None
    sliding_layers: list[int] | tuple[int, ...] = ()
    sliding_window: Length | None = None
    halting: Literal["token", "none"] = "token"
    halting_threshold: Threshold = 1.0
    halting_bias_init: Finite | None = None
    ponder_loss_weight: NotNegative = 0.0
    depth_objective: Literal["mixture", "final", "expected", "every_step", "gate"] = "expected"
    depth_prior: Literal["geometric", "uniform"] = "uniform"
    depth_prior_weight: NotNegative = 0.1
    pad_token_id: TokenId | None = 0
    bos_token_id: TokenId | None = 1
    eos_token_id: TokenId | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads

    @property
    def capabilities(self) -> Capabilities:
        learned = replace(
            super().capabilities,
            halting=self.halting,
            halting_unit="token" if self.halting == "token" else None,
            halting_threshold=self.halting_threshold,
        )
        return self.under_exit_criterion(learned)

    def validate_heads(self):
        require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            "num_key_value_heads",
            self.num_key_value_heads,
            f"it must divide num_attention_heads ({self.num_attention_heads})",
        )

    def validate_rotations(self):
        super().validate_rotations()
        scaling = self.rotary_scaling
        if scaling is None:
            return
        needed = SCALINGS.get(scaling.get("rope_type"))
        kinds = ", ".join(f"{name!r} with {', '.join(numbers)}" for name, numbers in SCALINGS.items())
        complete = needed is not None and all(isinstance(scaling.get(name), (int, float)) for name in needed)
        require(complete and scaling["factor"] > 0, "rotary_scaling", scaling, f"pass a rope_type of {kinds}, or None")

    def validate_sliding(self):
        inside = all(0 <= number < self.layers_per_step for number in self.sliding_layers)
        remedy = f"pass numbers of layers, from 0 to {self.layers_per_step - 1}"
        require(inside, "sliding_layers", self.sliding_layers, remedy)
        require(
            not self.sliding_layers or self.sliding_window is not None,
            "sliding_window",
            self.sliding_window,
            f"layers {list(self.sliding_layers)} slide; pass how many keys they see",
        )


__all__ = ["OuroRecurrentConfig"]
