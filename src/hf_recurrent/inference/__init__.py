"""Inference that makes use of halting."""

from .cuda_graphs import GraphedModel

__all__ = ["GraphedModel"]
