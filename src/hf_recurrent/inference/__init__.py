"""Inference that makes use of halting."""

from .depth_batcher import DepthBatcher, ExampleOutput
from .prompt_batcher import Generated, PromptBatcher

__all__ = ["DepthBatcher", "ExampleOutput", "Generated", "PromptBatcher"]
