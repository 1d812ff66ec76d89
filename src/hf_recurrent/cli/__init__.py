"""The command `hf-recurrent`: benchmarks, evaluation, cards, conversion and publishing."""

from .app import main

__all__ = ["main"]
