"""Sentences on an example of pixels or bytes, for `hf-recurrent explain`."""

import math
import string
from pathlib import Path
from typing import Any

from ..templating import template

# without meaning in Markdown, even within a table
LETTERS = set(string.ascii_letters + string.digits + string.punctuation) - set("`|[]\\")


def phrase(name: str, *values: Any) -> str:
    """Text of a macro of `phrases.md`."""
    path = Path(__file__).with_name("phrases.md")
    return getattr(template(path, letter=letter, side=math.isqrt).module, name)(*values)


def letter(byte: int) -> str:
    """A byte as a letter, or as a number where Markdown would read the letter."""
    return chr(byte) if chr(byte) in LETTERS else f"0x{byte:02x}"
