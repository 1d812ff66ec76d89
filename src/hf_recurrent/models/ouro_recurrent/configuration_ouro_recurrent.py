"""Configuration of Ouro with adaptive depth."""

from dataclasses import replace
from typing import Literal

from ..config.base import Capabilities
from ..config.depth import StackedDepthConfig
from ..config.fields import length, not_negative, size

# what a scaling of rotations needs, by its type
SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


class OuroRecurrentConfig(StackedDepthConfig):
    """Configuration of `OuroRecurrentModel` (Ouro, https://arxiv.org/abs/2510.25741).

    Defaults are the sizes of Ouro-1.4B. `from_pretrained_recurrent` makes the config of an authors' checkpoint from the
    authors' config.

    Parameters by default: 1,333,989,377 (`OuroRecurrentModel`).

    Args:
        num_hidden_layers: number of depth steps; each step applies all layers.
        num_key_value_heads: number of key and value heads, each of which serves several query heads;
            `num_attention_heads` if None.
        hidden_act: activation of the gated linear unit.
        rotary_scaling: scaling of the rotary frequencies: `rope_type` ("linear" or "llama3") and its numbers, as in
            transformers' `rope_scaling`. None for no scaling.
        sliding_layers: numbers of the layers, counted from 0, in which a token attends to at most `sliding_window`
            keys.
        sliding_window: number of keys that a token attends to in `sliding_layers`, including its own key.
        halting: every "token" stops by the exit gate, or "none": all steps are taken.
        halting_threshold: cumulative exit probability at which a token stops (Q-exit). At 1 a token takes all steps,
            unless the gate saturates.
        halting_bias_init: initial bias of the exit gate; torch's default if None.
        ponder_loss_weight: weight of the mean ponder cost in the loss with the objective "mixture".
        depth_objective: the states that the training loss reads. "expected": the paper's first stage, with a uniform
            prior of weight `depth_prior_weight`. "mixture": the loss of the authors' code, on logits mixed by exit
            probabilities. "gate": the second stage, which trains the exit gate alone. "every_step": the states of all
            steps, weighted by `step_weights`. "final": the state after the last step. If None, "every_step" without an
            exit gate and "expected" with one.
    """

    model_type = "ouro_recurrent"
    # of Ouro-1.4B and Ouro-2.6B
    head_size, inner_ratio = 128, 2.75
    presets = {
        "tiny": {"hidden_size": 64, "num_attention_heads": 4, "layers_per_step": 2},
        "small": {"hidden_size": 512, "num_attention_heads": 8, "layers_per_step": 6},
        "base": {},
        "large": {"layers_per_step": 48},
    }

    vocab_size: int = 49_152
    hidden_size: int = 2048
    num_hidden_layers: int = 4
    layers_per_step: int = 24
    num_key_value_heads: int | None = size(None)
    hidden_act: Literal["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu"] = "silu"
    max_position_embeddings: int = 65_536
    rope_theta: float = 1_000_000.0
    rotary_scaling: dict | None = None
    sliding_layers: list[int] | tuple[int, ...] = ()
    sliding_window: int | None = length(None)
    halting: Literal["token", "none"] = "token"
    halting_threshold: float = 1.0
    halting_bias_init: float | None = None
    ponder_loss_weight: float = not_negative(0.0)
    depth_objective: Literal["mixture", "final", "expected", "every_step", "gate"] | None = None
    depth_prior: Literal["geometric", "uniform"] = "uniform"
    depth_prior_weight: float = 0.1
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        if self.depth_objective is None and self.halting != "none":
            self.depth_objective = "expected"
        super().__post_init__(**kwargs)
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads

    @property
    def capabilities(self) -> Capabilities:
        learned = replace(
            super().capabilities,
            halting_unit="token" if self.halting == "token" else None,
            halting_threshold=self.halting_threshold,
        )
        return self.under_exit_criterion(learned)

    def validate_heads(self):
        self.require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            "num_key_value_heads",
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
        self.require(complete and scaling["factor"] > 0, "rotary_scaling", f"pass a rope_type of {kinds}, or None")

    def validate_sliding(self):
        inside = all(0 <= number < self.layers_per_step for number in self.sliding_layers)
        remedy = f"pass numbers of layers, from 0 to {self.layers_per_step - 1}"
        self.require(inside, "sliding_layers", remedy)
        self.require(
            not self.sliding_layers or self.sliding_window is not None,
            "sliding_window",
            f"layers {list(self.sliding_layers)} slide; pass how many keys they see",
        )


__all__ = ["OuroRecurrentConfig"]
