"""Offline checks of a card and of a staged folder: metadata, figures, local paths, access tokens, damaged files."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

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
    # as a whole table cell or value: within a sentence they are English
    "an undefined value (None, nan or Undefined)": re.compile(
        r"[|:=(,]\s*\**(?:None|nan|NaN|Undefined)[*%]*\s*(?:[|),.]|$)", re.MULTILINE
    ),
}

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# chunks of a PNG file that hold text; its author may be named there
TEXT_CHUNKS = (b"tEXt", b"iTXt", b"zTXt", b"eXIf")
HARMLESS_TEXT = b"Software\0"


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
    """Local paths and access tokens in a text: they disclose the machine or person that it comes from."""
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
    """Marks that a template leaves when its data was incomplete; within code they are legitimate."""
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


def check_disclosure(folder: Path) -> None:
    """Read every file of a staged folder as its users will.

    Raises:
        ValueError: local paths, access tokens and texts hidden in figures, and files that cannot be read.
    """
    problems = []
    for path in sorted(folder.rglob("*")):
        reader = READERS.get(path.suffix)
        if reader is not None and path.is_file():
            name = path.relative_to(folder).as_posix()
            problems += [f"{name}: {problem}" for problem in reader(path)]
    if problems:
        raise ValueError("this cannot be published:\n" + "\n".join(f"- {problem}" for problem in problems))


def _structured(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        yield f"it cannot be read ({' '.join(str(error).split())})"
        return
    if path.name == "tokenizer.json":
        # a vocabulary may hold any string
        data = {key: value for key, value in data.items() if key != "model"}
    for place, value in leaves(data):
        if isinstance(value, str):
            yield from (f"{place} holds {problem}" for problem in disclosures(value))


def _weights(path: Path) -> Iterator[str]:
    try:
        with safe_open(path, "np") as weights:
            metadata: dict[str, Any] = weights.metadata() or {}
    except (SafetensorError, OSError) as error:
        yield f"it is not a safetensors file ({error})"
        return
    for key, value in metadata.items():
        yield from (f"its metadata {key!r} holds {problem}" for problem in disclosures(value))


def _figure(path: Path) -> Iterator[str]:
    content = path.read_bytes()
    if not content.startswith(PNG_SIGNATURE):
        yield "it is not a PNG file"
        return
    start = len(PNG_SIGNATURE)
    while start + 8 <= len(content):
        length, kind = int.from_bytes(content[start : start + 4], "big"), content[start + 4 : start + 8]
        body = content[start + 8 : start + 8 + length]
        if kind in TEXT_CHUNKS and not body.startswith(HARMLESS_TEXT):
            yield f"it carries a text of its own ({kind.decode()}): save the figure without metadata"
        start += length + 12


READERS = {".json": _structured, ".yaml": _structured, ".safetensors": _weights, ".png": _figure}
