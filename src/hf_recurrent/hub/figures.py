"""Figures: PNG files that hold a picture, and nothing else."""

import struct
import zlib
from collections.abc import Iterator

from .. import limits
from .secrets import disclosures

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# what a picture consists of; any other chunk may hold a text, and its author may be named there
CHUNKS = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD"}
# the program that drew a figure says so
TEXT, HARMLESS_TEXT = b"tEXt", b"Software\0"
HEADER = struct.Struct(">II5B")


def figure_problems(content: bytes) -> list[str]:
    """What is wrong with the bytes of a figure; nothing with a PNG file of a picture alone, or all of it at once."""
    try:
        chunks = list(_chunks(content))
        width, height, *_ = HEADER.unpack(chunks[0][1])
        if chunks[0][0] != b"IHDR" or not width or not height:
            raise ValueError("it starts with no size")
    except (ValueError, IndexError, struct.error) as error:
        return [f"it is not a PNG file, or not a whole one ({error}): draw the figure again"]
    problems = []
    if width * height > limits.PIXELS.value:
        problems.append(str(limits.PIXELS.exceeded("it", f"{width * height:,}")))
    for kind, body in chunks:
        if kind == TEXT and body.startswith(HARMLESS_TEXT):
            problems += [f"its text holds {problem}" for problem in disclosures(body.decode("latin-1"))]
        elif kind not in CHUNKS:
            problems.append(f"it carries data of its own ({kind.decode('latin-1')}): save the figure without metadata")
    return problems


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The kind and body of each chunk. Raises ValueError where bytes are missing, wrong or left over."""
    if not content.startswith(SIGNATURE):
        raise ValueError("its first bytes are others")
    start, kind = len(SIGNATURE), b""
    while kind != b"IEND":
        length, kind = struct.unpack(">I4s", content[start : start + 8])
        body, start = content[start + 8 : start + 8 + length], start + 12 + length
        if content[start - 4 : start] != zlib.crc32(kind + body).to_bytes(4, "big"):
            raise ValueError(f"a damaged part {kind.decode('latin-1')!r}")
        yield kind, body
    if start < len(content):
        raise ValueError(f"{len(content) - start} bytes behind its end")
