"""Configuration of the Gated Universal Transformer."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_common import DepthRecurrentConfig, require


@strict
class GUTConfig(DepthRecurrentConfig):
    """Configuration of `GUTModel` (Algorithm 3 of the dynamic-halt paper).

    Args:
        feed_forward: "gated" mixes a step's result with the state before it; "plain" is the paper's "-Gate".
        gate_intermediate_size: inner width of the gate, d_gff; `intermediate_size` if None.

    The paper's other ablations: `halting="token"` is "-Global Halt", `transition_aware=False` is "-Transition",
    `hard_stop=False` is the timing variant "upper bound" and `halting="none"` is "no halt". Other fields are those of
    `DepthRecurrentConfig`.
    """

    model_type = "gut"

    feed_forward: Literal["gated", "plain"] = "gated"
    gate_intermediate_size: int | None = None
    pooling: Literal["mean", "end", "cls"] = "end"

    def __post_init__(self, **kwargs):
        if self.gate_intermediate_size is None:
            self.gate_intermediate_size = self.intermediate_size
        super().__post_init__(**kwargs)

    def validate_gate(self):
        require(
            self.gate_intermediate_size > 0,
            "gate_intermediate_size",
            self.gate_intermediate_size,
            "at least 1",
        )


__all__ = ["GUTConfig"]
