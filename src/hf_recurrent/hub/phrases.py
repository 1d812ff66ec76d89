"""The templates of cards, and the phrases of `templates/phrases.md` that the gallery and the commands use, too."""

import math
import statistics
import string
from pathlib import Path
from typing import Any

from ..analysis.recurrence import carry_effect
from ..analysis.sweep import all_stacks
from ..templating import template
from .findings import better_models, fixed_depths, fixed_rival, lowest_harmless, own_row, several_runs

TEMPLATES = Path(__file__).with_name("templates")
# without meaning in Markdown, even within a table or the text of a figure
LETTERS = set(string.ascii_letters + string.digits + string.punctuation) - set("`|[]\\")

# characters of an example in a table
SHOWN = 60


def render(name: str, **values: Any) -> str:
    """Text of a template of cards."""
    return template(TEMPLATES / name, **FILTERS).render(**values)


def phrase(name: str, *values: Any) -> str:
    """Text of a macro of `templates/phrases.md`."""
    return getattr(template(TEMPLATES / "phrases.md", **FILTERS).module, name)(*values)


def letter(byte: int) -> str:
    """A byte as a letter, or as a number where Markdown would read the letter."""
    return chr(byte) if chr(byte) in LETTERS else f"0x{byte:02x}"


def without_brackets(text: str) -> str:
    """Text that can stand between the brackets of a figure, and is no mark of a template."""
    return text.translate(str.maketrans("[]{}\n", "()() "))


def beginning(text: str) -> str:
    """As much of a text as a narrow column of a table shows."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def points(change: float) -> str:
    """A difference of two fractions in points of 100, without a negative zero."""
    return f"{round(100 * change, 1) + 0.0:+.1f} points"


FILTERS = {
    "beginning": beginning,
    "better_models": better_models,
    "deviation": statistics.stdev,
    "effect": carry_effect,
    "fixed_depths": fixed_depths,
    "fixed_rival": fixed_rival,
    "letter": letter,
    "lowest_harmless": lowest_harmless,
    "own_row": own_row,
    "points": points,
    "several_runs": several_runs,
    "side": math.isqrt,
    "together": all_stacks,
    "without_brackets": without_brackets,
}
