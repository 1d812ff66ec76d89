"""Model cards: data plus one template, checked offline before anything is published."""

from .card import CardData, render_card, write_card
from .lint import lint_card

__all__ = ["CardData", "lint_card", "render_card", "write_card"]
