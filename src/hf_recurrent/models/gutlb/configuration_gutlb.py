"""Configuration of the Gated Universal Transformer Latent Bottleneck."""

from typing import Literal

from ..config.base import ChunkRecurrentConfig
from ..config.depth import GatedDepthConfig


class GUTLBConfig(ChunkRecurrentConfig, GatedDepthConfig):
    """Configuration of `GUTLBModel` (Algorithm 4 of the dynamic-halt paper): GUT's depth loop within TLB's chunks.

    By default the model has no halting head. Training supervises every depth step: the steps of a sequence's last
    chunk, or the steps of all chunks where the model answers for each token. An `exit_criterion` that
    `hf-recurrent calibrate` chooses stops early. `GUTLBConfig.preset("dynamic_halt")` is the paper's GUTLB, in which
    each chunk learns to halt by the mean over its tokens. Default sizes are the paper's ListOps setting.

    Parameters by default: 5,806,080 (`GUTLBModel`), 6,069,762 (`GUTLBForSequenceClassification`).
    """

    model_type = "gutlb"
    papers = {"dynamic_halt": {"halting": "global", "depth_objective": "mixture"}}
    earlier_defaults = papers["dynamic_halt"]

    num_hidden_layers: int = 5
    pooling: Literal["mean", "last"] = "mean"


__all__ = ["GUTLBConfig"]
