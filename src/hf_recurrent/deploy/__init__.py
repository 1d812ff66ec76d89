"""Fast inference: captured graphs, exported graphs, and work dealt out to processes."""

from .classifier_pool import ClassifierPool
from .cuda_graphs import GraphedModel
from .decoding import DecodingEngine

__all__ = ["ClassifierPool", "DecodingEngine", "GraphedModel"]
