"""The templates of this folder, with the cards' own ways of writing numbers."""

import functools
from pathlib import Path

import jinja2

from ..card import cell, duration, number, percent, steps
from .inline import inline_markdown

HERE = Path(__file__).parent


@functools.cache
def environment(autoescape: bool) -> jinja2.Environment:
    """Templates that fail on an unknown name; `autoescape` for HTML, where every value is text until marked up."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "cell": cell,
        "duration": duration,
        "inline": inline_markdown,
        "number": number,
        "percent": percent,
        "steps": steps,
    }
    return made
