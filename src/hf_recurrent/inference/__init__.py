"""Inference that makes use of halting."""

from .cuda_graphs import GraphedModel
from .depth_batcher import DepthBatcher, ExampleOutput
from .prompt_batcher import Generated, PromptBatcher

__all__ = ["DepthBatcher", "ExampleOutput", "Generated", "GraphedModel", "PromptBatcher"]
