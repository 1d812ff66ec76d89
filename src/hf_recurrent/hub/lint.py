"""Offline checks of a card: metadata, figures, local paths, access tokens."""

import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path

from ..changes import Change
from ..files import FRONT_MATTER, parse_yaml
from .disclosure import FENCED_CODE, entries
from .figures import figure_problems
from .secrets import disclosures, masked

README_FILE = "README.md"
CARD_FILE = "card.json"
REQUIRED_KEYS = ("license", "library_name", "pipeline_tag", "tags", "hf_recurrent")
# of what was measured
RESULT_KEYS = ("metrics", "model-index")
REQUIRED_TAGS = ("hf_recurrent", "custom_code")

# between as many backticks, or in HTML
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)|<code>[^\n]*?</code>")
# ![text](path "title"), ![text][name] with [name]: path elsewhere, and HTML
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]*)[^)]*\)")
IMAGE_BY_NAME = re.compile(r"!\[([^\]]*)\]\[([^\]]*)\]")
NAMED = re.compile(r"^\[([^\]]+)\]:\s*<?([^\s>]+)", re.MULTILINE)
IMAGE_TAG = re.compile(r"<img\b[^>]*?\bsrc\s*=\s*[\"']?([^\"'\s>]+)", re.IGNORECASE)
LEFTOVERS = {
    "More Information Needed": re.compile("More Information Needed", re.IGNORECASE),
    "an unrendered template marker": re.compile(r"\{\{|\{%|%\}|\}\}"),
    # as a whole table cell or value: within a sentence they are English
    "an undefined value (None, nan or Undefined)": re.compile(
        r"[|:=(,]\s*\**(?:None|nan|NaN|Undefined)[*%]*\s*(?:[|),.]|$)", re.MULTILINE
    ),
}


def raise_problems(problems: list[str], folder: Path) -> None:
    """One ValueError for all problems, or nothing."""
    if problems:
        raise ValueError(f"the card of {folder} is not publishable:\n" + "\n".join(f"- {p}" for p in problems))


def check_rendered(text: str, change: Change) -> None:
    """Raise a ValueError for a wrong form of a card that is written, and warn of content that is not published."""
    raise_problems(form_problems(text, change.file), change.folder)
    problems = content_problems(text)
    if problems:
        # a finished training is kept, however its labels and values are called
        warnings.warn(f"this card will not be published as it is: {'; '.join(problems)}", stacklevel=4)


def card_problems(text: str, file_of: Callable[[str], Path]) -> list[str]:
    """Problems of a card's text; `file_of` gives the file at a path of the card's folder."""
    return [*form_problems(text, file_of), *content_problems(text)]


def form_problems(text: str, file_of: Callable[[str], Path]) -> list[str]:
    """Problems of a card's front matter and figures."""
    match = FRONT_MATTER.match(text)
    if match is None:
        return ["no YAML front matter between --- lines at the top"]
    return [*_metadata_problems(match.group(1)), *_image_problems(text[match.end() :], file_of)]


def content_problems(text: str) -> list[str]:
    """Problems that a user's own names and texts may bring into a card, too: marks of a template, paths, tokens."""
    return [*_leftover_problems(FRONT_MATTER.sub("", text)), *map(masked, disclosures(text))]


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
        data = parse_yaml(source, "the front matter")
    except ValueError as error:
        return [str(error)]
    if not isinstance(data, dict):
        return ["the front matter is not a mapping"]
    own = data.get("hf_recurrent")
    required = REQUIRED_KEYS if isinstance(own, dict) and "converted_from" in own else REQUIRED_KEYS + RESULT_KEYS
    problems = [f"the front matter lacks '{key}'" for key in required if not data.get(key)]
    tags = data.get("tags") if isinstance(data.get("tags"), list) else []
    problems += [f"the front matter lacks the tag '{tag}'" for tag in REQUIRED_TAGS if tag not in tags]
    for place, _, value in entries(data):
        if isinstance(value, float) and not math.isfinite(value):
            problems.append(f"the front matter has {value} at {place}")
        elif value is None:
            problems.append(f"the front matter has nothing at {place}")
    return problems


def _leftover_problems(body: str) -> list[str]:
    """Marks that a template leaves when its data was incomplete; within code they are legitimate."""
    prose = INLINE_CODE.sub("", FENCED_CODE.sub("", body))
    return [f"the text contains {what}" for what, pattern in LEFTOVERS.items() if pattern.search(prose)]


def _image_problems(body: str, file_of: Callable[[str], Path]) -> list[str]:
    problems = []
    for path in image_paths(body):
        if ":" in path or path.startswith("/") or ".." in Path(path).parts:
            problems.append(f"the image '{path}' is not a relative path inside the folder")
        elif not file_of(path).is_file():
            problems.append(f"the image '{path}' is missing")
        else:
            problems += [f"the image '{path}': {problem}" for problem in figure_problems(file_of(path).read_bytes())]
    return problems
