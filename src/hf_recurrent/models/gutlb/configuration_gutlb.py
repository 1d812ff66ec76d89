"""Configuration of the Gated Universal Transformer Latent Bottleneck."""

from typing import Literal

from ..common.configuration import ChunkRecurrentConfig
from ..common.depth_configuration import GatedDepthConfig
from ..common.fields import Layers, checked_config


@checked_config
class GUTLBConfig(ChunkRecurrentConfig, GatedDepthConfig):
    """Configuration of `GUTLBModel` (Algorithm 4 of the dynamic-halt paper): GUT's depth loop within TLB's chunks.

    Every chunk halts by itself: with `halting="global"` by the mean over its tokens. Defaults are the paper's ListOps
    setting. Fields are those of `ChunkRecurrentConfig`, `GatedDepthConfig`, `DepthRecurrentConfig` and `EncoderConfig`.

    Parameters by default: 6,331,393 (`GUTLBModel`), 6,595,075 (`GUTLBForSequenceClassification`).
    """

    model_type = "gutlb"

    num_hidden_layers: Layers = 5
    pooling: Literal["mean", "last"] = "mean"


__all__ = ["GUTLBConfig"]
