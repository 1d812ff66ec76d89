"""Figures as data URIs, so that a page needs no other file."""

import base64
from dataclasses import dataclass
from pathlib import Path

from ..disclosure import PNG_SIGNATURE


@dataclass(frozen=True)
class Image:
    """`uri` holds the whole file; `width` and `height` are in pixels."""

    uri: str
    width: int
    height: int


def is_png(content: bytes) -> bool:
    return content.startswith(PNG_SIGNATURE + b"\x00\x00\x00\x0dIHDR") and len(content) > 24


def read_image(folder: Path, path: str) -> Image:
    """The PNG file `path` of a checkpoint folder.

    Raises:
        ValueError: it lies outside the folder, is missing, or is no PNG file.
    """
    file = folder / path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{folder.name}: the card's figure {path!r} lies outside the folder")
    if not file.is_file():
        raise ValueError(f"{folder.name}/{path} is missing: copy it from the run's output folder")
    content = file.read_bytes()
    if not is_png(content):
        raise ValueError(f"{folder.name}/{path} is not a PNG file: copy it from the run's output folder")
    width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
    return Image(f"data:image/png;base64,{base64.b64encode(content).decode()}", width, height)
