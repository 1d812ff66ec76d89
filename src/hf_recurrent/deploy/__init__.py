"""Fast inference: captured graphs, exported graphs, and work dealt out to processes."""

from .cuda_graphs import GraphedModel
from .decoding import DecodingEngine

__all__ = ["DecodingEngine", "GraphedModel"]
