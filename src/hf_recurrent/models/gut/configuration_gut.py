"""Configuration of the Gated Universal Transformer."""

from typing import Literal

from ..common.depth_configuration import GatedDepthConfig
from ..common.fields import checked_config


@checked_config
class GUTConfig(GatedDepthConfig):
    """Configuration of `GUTModel` (Algorithm 3 of the dynamic-halt paper).

    The paper's ablations: `halting="token"` is "-Global Halt", `feed_forward="plain"` is "-Gate",
    `transition_aware=False` is "-Transition", `hard_stop=False` is the timing variant "upper bound" and
    `halting="none"` is "no halt". Fields are those of `GatedDepthConfig`, `DepthRecurrentConfig` and `EncoderConfig`.

    Parameters by default: 3,692,545 (`GUTModel`), 3,956,227 (`GUTForSequenceClassification`).
    """

    model_type = "gut"

    pooling: Literal["mean", "end", "cls"] = "end"


__all__ = ["GUTConfig"]
