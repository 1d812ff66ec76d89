"""Configuration of the Gated Universal Transformer Latent Bottleneck."""

from typing import Literal

from ..config.base import ChunkRecurrentConfig
from ..config.depth import GatedDepthConfig
from ..config.fields import Layers, checked_config
from ..config.presets import GUT_PAPERS


@checked_config
class GUTLBConfig(ChunkRecurrentConfig, GatedDepthConfig):
    """Configuration of `GUTLBModel` (Algorithm 4 of the dynamic-halt paper): GUT's depth loop within TLB's chunks.

    By default the model has no halting head. Training supervises every depth step of a sequence's last chunk, and of
    all chunks where the model answers for each token. An `exit_criterion` that `hf-recurrent calibrate` chooses stops
    early. `GUTLBConfig.preset("dynamic_halt")` is the paper's GUTLB: every chunk learns to halt by itself, by the mean
    over its tokens. Sizes are those of the paper's ListOps setting. Fields are those of `ChunkRecurrentConfig`,
    `GatedDepthConfig`, `DepthRecurrentConfig` and `EncoderConfig`.

    Parameters by default: 5,806,080 (`GUTLBModel`), 6,069,762 (`GUTLBForSequenceClassification`).
    """

    model_type = "gutlb"
    papers = GUT_PAPERS
    earlier_defaults = GUT_PAPERS["dynamic_halt"]

    num_hidden_layers: Layers = 5
    pooling: Literal["mean", "last"] = "mean"


__all__ = ["GUTLBConfig"]
