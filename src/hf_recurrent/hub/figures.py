"""Figures: PNG files that hold a picture, and nothing else."""

import struct
import zlib
from collections.abc import Iterator

from .. import limits
from .secrets import disclosures

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# what a picture consists of besides its pixels, and how long it can be; any other chunk may hold a text
LENGTHS = {b"IHDR": 13, b"PLTE": 768, b"IEND": 0, b"tRNS": 256, b"pHYs": 9, b"gAMA": 4, b"cHRM": 32, b"sRGB": 1}
LENGTHS |= {b"sBIT": 4, b"bKGD": 6}
PIXELS = b"IDAT"
# samples of a pixel, by the type of colours
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# the program that drew a figure says so
TEXT, HARMLESS_TEXT = b"tEXt", b"Software\0"
HEADER = struct.Struct(">II5B")
PIECE = 1 << 20  # bytes of pixels in memory


def figure_problems(content: bytes) -> list[str]:
    """What is wrong with the bytes of a figure; nothing with a PNG file of a picture alone, or all of it at once."""
    try:
        chunks = list(_chunks(content))
        width, height, *_ = HEADER.unpack(chunks[0][1])
        if chunks[0][0] != b"IHDR" or not width or not height:
            raise ValueError("it starts with no size")
        if width * height <= limits.PIXELS.value:
            _check_pixels(chunks)
    except (ValueError, IndexError, KeyError, struct.error, zlib.error) as error:
        return [f"it is not a PNG file, or not a whole one ({error}): draw the figure again"]
    problems = []
    if width * height > limits.PIXELS.value:
        problems.append(str(limits.PIXELS.exceeded("it", f"{width * height:,}")))
    for kind, body in chunks:
        if kind == TEXT and body.startswith(HARMLESS_TEXT):
            problems += [f"its text holds {problem}" for problem in disclosures(body.decode("latin-1"))]
        elif kind != PIXELS and len(body) > LENGTHS.get(kind, -1):
            problems.append(f"it carries data of its own ({kind.decode('latin-1')}): save the figure without metadata")
    return problems


def _check_pixels(chunks: list[tuple[bytes, bytes]]) -> None:
    """Raise a ValueError unless the pixels are whole, and all that is stored as such."""
    width, height, depth, colours, _, _, interlaced = HEADER.unpack(chunks[0][1])
    reader, rest, length = zlib.decompressobj(), b"".join(body for kind, body in chunks if kind == PIXELS), 0
    # interlaced pixels have up to seven rows more for each of them
    most = (1 + (width * SAMPLES[colours] * depth + 7) // 8) * height * (8 if interlaced else 1)
    while rest and length <= most:
        length += len(reader.decompress(rest, PIECE))
        rest = reader.unconsumed_tail
    if not reader.eof or reader.unused_data or length > most or (length < most and not interlaced):
        raise ValueError("its pixels are more or fewer than its size says")
    if [kind for kind, _ in chunks].count(b"IHDR") > 1:
        raise ValueError("it has two sizes")


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
