"""Text from data: templates, the numbers, cells and literals in them, and the names that were probably meant."""

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

NOTHING = "\u2013"
# a text that Markdown, HTML or a reader would take for something else than a value
MISTAKABLE = re.compile(r"[\[\]<>`*]|\{\{|\{%|%\}|\}\}|(?i:More Information Needed)|^(?:None|nan|NaN|Undefined)$")


@functools.cache
def template(path: Path, autoescape: bool = False, **filters: Callable) -> "jinja2.Template":
    """The template in a file, compiled once. A name that it uses and is not given is an error.

    Args:
        path: the file; templates that it includes lie beside it.
        autoescape: for HTML, where every value is text until it is marked up.
        filters: functions that the template may apply to values, beside those of `FILTERS`.
    """
    # slow to import, and most commands render nothing
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        undefined=jinja2.StrictUndefined,
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= FILTERS | filters
    return environment.get_template(path.name)


def percent(value: float | None) -> str:
    """A fraction in percent with one decimal, or as many as keep a fraction below 1 from being rounded to 100%."""
    if value is None:
        return NOTHING
    for digits in (1, 2, 3, 4):
        text = f"{100 * value:.{digits}f}%"
        if value >= 1 or float(text[:-1]) < 100:
            break
    return text


def number(value: float | None, digits: int = 2) -> str:
    """A number with at most `digits` decimals, thousands separated, without trailing zeros."""
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def steps(value: float | None) -> str:
    """A mean number of steps, or a weight: two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def bits(value: float | None, digits: int = 3) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    return NOTHING if value is None else f"{value:+.{digits}f}"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest, "s")]
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount) or "0 s"


def near_matches(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' or nothing."""
    near = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise a ValueError that lists the known names and the likely one, if `name` is not among them."""
    known = list(known)
    if name not in known:
        raise ValueError(f"{kind} is {name!r}: expected one of {', '.join(known)}{near_matches(name, known)}")


def near_names(path: Path) -> str:
    """The names beside a path that were probably meant, as a question, or nothing."""
    return near_matches(path.name, (other.name for other in path.parent.glob("*")))


def literal(value: Any) -> str:
    """A value as JSON; for a string this is a Python literal as well."""
    return json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Text that cannot end its table cell or break its line; as code where it could be taken for something else."""
    text = str(value)
    return code(text) if MISTAKABLE.search(text) else text.replace("|", "\\|").replace("\n", " ")


def code(text: str, in_table: bool = True) -> str:
    """A text as inline code that cannot end its table cell, break its line or be taken for markup."""
    text = text.replace("\n", "\\n")
    if in_table:
        text = text.replace("|", "\\|")
    # more backticks than the text has in a row
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"`{text}`" if fence == "`" else f"{fence} {text} {fence}"


FILTERS = {item.__name__: item for item in (percent, number, steps, bits, signed, duration, literal, cell, code)}
