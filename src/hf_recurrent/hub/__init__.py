"""Checkpoints and benchmarks on the Hub: cards from data and templates, and publishing by one commit."""

from .card import CardData, lint_card, render_card, write_card
from .checkpoint import save_checkpoint
from .errors import PublishError
from .publish import Options, Published, check_access, publish_benchmark, publish_checkpoint

__all__ = [
    "CardData",
    "Options",
    "PublishError",
    "Published",
    "check_access",
    "lint_card",
    "publish_benchmark",
    "publish_checkpoint",
    "render_card",
    "save_checkpoint",
    "write_card",
]
