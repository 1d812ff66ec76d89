"""Configuration of the Transformer baseline with xPos."""

from ..config.base import EncoderConfig


class XPosTransformerConfig(EncoderConfig):
    """Configuration of `XPosTransformerModel`: layers that are not shared, and fixed depth.

    Defaults are the dynamic-halt paper's ListOps setting: 4 layers, width 512, mean pooling.

    Parameters by default: 8,419,328 (`XPosTransformerModel`), 8,683,010 (`XPosTransformerForSequenceClassification`).
    """

    model_type = "xpos_transformer"

    num_hidden_layers: int = 4


__all__ = ["XPosTransformerConfig"]
