"""Text from data and a template: cards of models, data sets and metrics, and the gallery."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


@functools.cache
def template(path: Path, autoescape: bool = False, **filters: Callable) -> "jinja2.Template":
    """The template in a file, compiled once. A name that it uses and is not given is an error.

    Args:
        path: the file; templates that it includes lie beside it.
        autoescape: for HTML, where every value is text until it is marked up.
        filters: functions that the template may apply to values.
    """
    # it takes longer than most of those who import this module need in all
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= filters
    return environment.get_template(path.name)
