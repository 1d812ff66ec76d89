"""What a folder would give away if it were published: local paths, access tokens, files that are not what they say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

from .lint import disclosures, leaves

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# chunks of a PNG file that hold text; what drew it may say its name
TEXT_CHUNKS = (b"tEXt", b"iTXt", b"zTXt", b"eXIf")
HARMLESS_TEXT = b"Software\0"


def check_disclosure(folder: Path) -> None:
    """Read every file of a staged folder as its readers will.

    Raises:
        ValueError: all that it gives away, and files that cannot be read.
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
