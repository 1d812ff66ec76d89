"""Configuration of the Transformer baseline with xPos."""

from ..config.base import EncoderConfig
from ..config.fields import Layers, checked_config


@checked_config
class XPosTransformerConfig(EncoderConfig):
    """Configuration of `XPosTransformerModel`: unshared layers, fixed depth.

    Defaults are the dynamic-halt paper's ListOps setting (spec: 4 layers, width 512, mean pooling). Fields are those
    of `EncoderConfig`.

    Parameters by default: 8,419,328 (`XPosTransformerModel`), 8,683,010 (`XPosTransformerForSequenceClassification`).
    """

    model_type = "xpos_transformer"

    num_hidden_layers: Layers = 4


__all__ = ["XPosTransformerConfig"]
