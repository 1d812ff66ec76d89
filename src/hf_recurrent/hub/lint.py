"""Offline checks of a card: what the Hub would reject, hide or show broken."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

README_FILE = "README.md"
CARD_FILE = "card.json"
REQUIRED_KEYS = ("license", "library_name", "pipeline_tag", "tags", "metrics", "model-index", "hf_recurrent")
REQUIRED_TAGS = ("hf_recurrent", "custom_code")

FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
FENCED_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE_CODE = re.compile(r"`[^`\n]*`")
# ![text](path "title"), ![text][name] with [name]: path elsewhere, and HTML
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]*)[^)]*\)")
IMAGE_BY_NAME = re.compile(r"!\[([^\]]*)\]\[([^\]]*)\]")
NAMED = re.compile(r"^\[([^\]]+)\]:\s*<?([^\s>]+)", re.MULTILINE)
IMAGE_TAG = re.compile(r"<img\b[^>]*?\bsrc\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
SECRET = re.compile(r"\bhf_[A-Za-z0-9]{20,}")
# a path from the root with two parts or more, from a home folder, from a drive, or as a file URL;
# a slash after a word, a closing tag or another slash belongs to a URL, to HTML or to prose
LOCAL_PATH = re.compile(
    r"(?<![\w:/.<~*)\]-])/[A-Za-z_][\w.-]*/[\w.-]+|(?<![\w/])~/\w+|\b[A-Z]:[\\/]+\w+|\\\\\w+\\\w+|file://\S+"
)
LEFTOVERS = {
    "More Information Needed": re.compile("More Information Needed", re.IGNORECASE),
    "an unrendered template marker": re.compile(r"\{\{|\{%|%\}|\}\}"),
    # as a whole table cell or value: in a sentence, the words are English
    "an undefined value (None, nan or Undefined)": re.compile(
        r"[|:=(,]\s*\**(?:None|nan|NaN|Undefined)[*%]*\s*(?:[|),.]|$)", re.MULTILINE
    ),
}


def lint_card(folder: str | os.PathLike) -> None:
    """Check the card in `folder`; a ValueError lists every problem found."""
    folder = Path(folder)
    readme = folder / README_FILE
    if not readme.is_file():
        raise ValueError(f"{folder} has no {README_FILE}")
    try:
        text = readme.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{readme} is not UTF-8 text: {error}") from error
    raise_problems([*card_problems(text, folder), *_rendering_problems(text, folder)], folder)


def raise_problems(problems: list[str], folder: Path) -> None:
    """One ValueError for all problems, or nothing."""
    if problems:
        raise ValueError(f"the card of {folder} is not publishable:\n" + "\n".join(f"- {p}" for p in problems))


def card_problems(text: str, folder: Path) -> list[str]:
    """Problems of a card's text, were it the README.md of `folder`."""
    match = FRONT_MATTER.match(text)
    if match is None:
        return ["no YAML front matter between --- lines at the top"]
    body = text[match.end() :]
    return [
        *_metadata_problems(match.group(1)),
        *_leftover_problems(body),
        *_image_problems(body, folder),
        *disclosures(text),
    ]


def disclosures(text: str) -> list[str]:
    """What a text gives away of the machine or person it comes from."""
    problems = [f"a local path: {found.group()}" for found in LOCAL_PATH.finditer(text)]
    # named, not shown: a message ends up in logs
    return problems + (["an access token: take it out, and revoke it"] if SECRET.search(text) else [])


def image_paths(text: str) -> list[str]:
    """The pictures that a card shows, by path, each once and in order; code shows none."""
    prose = INLINE_CODE.sub("", FENCED_CODE.sub("", text))
    named = {name.lower(): path for name, path in NAMED.findall(prose)}
    found = [(match.start(), match.group(1)) for pattern in (IMAGE, IMAGE_TAG) for match in pattern.finditer(prose)]
    for match in IMAGE_BY_NAME.finditer(prose):
        name = match.group(2) or match.group(1)
        found.append((match.start(), named.get(name.lower(), f"[{name}]")))
    return list(dict.fromkeys(path.removeprefix("./") for _, path in sorted(found)))


def _metadata_problems(source: str) -> list[str]:
    try:
        data = yaml.safe_load(source)
    except yaml.YAMLError as error:
        return [f"the front matter is not safe YAML: {error}"]
    if not isinstance(data, dict):
        return ["the front matter is not a mapping"]
    problems = [f"the front matter lacks '{key}'" for key in REQUIRED_KEYS if not data.get(key)]
    tags = data.get("tags") if isinstance(data.get("tags"), list) else []
    problems += [f"the front matter lacks the tag '{tag}'" for tag in REQUIRED_TAGS if tag not in tags]
    for place, value in leaves(data):
        if isinstance(value, float) and not math.isfinite(value):
            problems.append(f"the front matter has {value} at {place}")
        elif value is None:
            problems.append(f"the front matter has nothing at {place}")
    return problems


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value in nested data, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from leaves(item, f"{place}[{position}]")
    else:
        yield place, value


def _leftover_problems(body: str) -> list[str]:
    """Words that a template leaves when its data was incomplete; code may hold such words rightly."""
    prose = INLINE_CODE.sub("", FENCED_CODE.sub("", body))
    return [f"the text contains {what}" for what, pattern in LEFTOVERS.items() if pattern.search(prose)]


def _image_problems(body: str, folder: Path) -> list[str]:
    problems = []
    for path in image_paths(body):
        if ":" in path or path.startswith("/") or ".." in Path(path).parts:
            problems.append(f"the image '{path}' is not a relative path inside the folder")
        elif not (folder / path).is_file():
            problems.append(f"the image '{path}' is missing")
    return problems


def _rendering_problems(text: str, folder: Path) -> list[str]:
    """A folder with card data must hold exactly what the template makes of it."""
    if not (folder / CARD_FILE).is_file():
        return []
    # the renderer checks its own output with this module
    from .card import read_card, render_card

    try:
        expected = render_card(read_card(folder))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"{CARD_FILE} cannot be rendered: {error}"]
    return [] if expected == text else [f"{README_FILE} is not what {CARD_FILE} renders to"]
