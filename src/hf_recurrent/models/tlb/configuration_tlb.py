"""Configuration of the Temporal Latent Bottleneck."""

from ..config.base import ChunkRecurrentConfig


class TLBConfig(ChunkRecurrentConfig):
    """Configuration of `TLBModel` (Algorithm 2 of the dynamic-halt paper): blocks that are not shared, and fixed depth.

    Defaults are the paper's ListOps setting: 2 blocks, chunks of 20 tokens, 20 memory slots. `chunking="count"` is the
    paper's TLB with fixed recurrence (TLB-FR).

    Parameters by default: 7,907,328 (`TLBModel`), 8,171,010 (`TLBForSequenceClassification`).
    """

    model_type = "tlb"

    num_hidden_layers: int = 2


__all__ = ["TLBConfig"]
