"""Offline checks of a card: metadata and figures."""

import re
from collections.abc import Callable
from pathlib import Path

from ..files import FRONT_MATTER, parse_yaml

README_FILE = "README.md"
CARD_FILE = "card.json"
REQUIRED_KEYS = ("license", "library_name", "pipeline_tag", "tags")
# in fences, between as many backticks, or in HTML
CODE = re.compile(r"^```.*?^```|(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)|<code>[^\n]*?</code>", re.DOTALL | re.MULTILINE)
# ![text](path "title") and HTML
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]*)[^)]*\)|<img\b[^>]*?\bsrc\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)


def raise_problems(problems: list[str], folder: Path) -> None:
    """One ValueError for all problems, or nothing."""
    if problems:
        raise ValueError(f"the card of {folder} is not publishable:\n" + "\n".join(f"- {p}" for p in problems))


def form_problems(text: str, file_of: Callable[[str], Path]) -> list[str]:
    """Problems of a card's front matter and figures; `file_of` gives the file at a path of the card's folder."""
    match = FRONT_MATTER.match(text)
    if match is None:
        return ["no YAML front matter between --- lines at the top"]
    try:
        data = parse_yaml(match.group(1), "the front matter")
    except ValueError as error:
        return [str(error)]
    if not isinstance(data, dict):
        return ["the front matter is not a mapping"]
    problems = [f"the front matter lacks '{key}'" for key in REQUIRED_KEYS if not data.get(key)]
    return problems + [f"the image '{path}' is missing" for path in image_paths(text) if not file_of(path).is_file()]


def image_paths(text: str) -> list[str]:
    """The pictures that a card shows, by path, each once and in order; code shows none."""
    found = (match.group(1) or match.group(2) for match in IMAGE.finditer(CODE.sub("", FRONT_MATTER.sub("", text))))
    return list(dict.fromkeys(path.removeprefix("./") for path in found))
