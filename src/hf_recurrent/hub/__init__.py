"""Checkpoints and benchmarks on the Hub: results and the card rendered from them, and publishing by one commit."""

from .card import render_card
from .checkpoint import save_checkpoint
from .publish import Options, Published, check_access, publish_benchmark, publish_checkpoint
from .results import lint_card, read_results, write_results

__all__ = [
    "Options",
    "Published",
    "check_access",
    "lint_card",
    "publish_benchmark",
    "publish_checkpoint",
    "read_results",
    "render_card",
    "save_checkpoint",
    "write_results",
]
