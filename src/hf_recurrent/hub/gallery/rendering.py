"""The templates of this folder, with the cards' own ways of writing numbers."""

from pathlib import Path
from typing import Any

from ...templating import template
from ..card import cell, duration, number, steps
from ..document_words import RESET, RESET_HEADINGS, bits, signed_bits, spread
from ..words import chunk_words, halting_words, paper_value, percent, reading_unit
from .inline import inline_markdown

HERE = Path(__file__).parent
FILTERS = {
    "bits": bits,
    "cell": cell,
    "chunk_words": chunk_words,
    "duration": duration,
    "halting_words": halting_words,
    "inline": inline_markdown,
    "number": number,
    "paper_value": paper_value,
    "percent": percent,
    "reading_unit": reading_unit,
    "reset_heading": RESET_HEADINGS.get,
    "reset_name": RESET.get,
    "signed_bits": signed_bits,
    "spread": spread,
    "steps": steps,
}


def render(name: str, **values: Any) -> str:
    """Text of a template. In HTML every value is text until it is marked up."""
    return template(HERE / name, autoescape=name.endswith(".html"), **FILTERS).render(**values)
