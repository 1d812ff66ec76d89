"""Any bytes as text, and back.

What is valid UTF-8 stays as it is. A byte b that is no part of it becomes the character U+10FF00 + b, in the private
use area at the end of Unicode; so does each byte of a character of U+10FF80 ... U+10FFFF, so that none of these stands
for two things. What a cut leaves of a character is such bytes.
"""

import re

ESCAPE_BASE = 0x10FF00
ESCAPED_BYTES = range(0x80, 0x100)
# U+10FF80 ... U+10FFFF in UTF-8; the last two bytes hold the byte that is escaped
_ESCAPE = re.compile(rb"\xf4\x8f([\xbe\xbf])([\x80-\xbf])")
# Python's own escapes are surrogates, which cannot be written to files
_FROM_PYTHON = {0xDC00 + byte: ESCAPE_BASE + byte for byte in ESCAPED_BYTES} | {
    ESCAPE_BASE + byte: "".join(chr(ESCAPE_BASE + part) for part in chr(ESCAPE_BASE + byte).encode())
    for byte in ESCAPED_BYTES
}


# bytes as the byte-level tokenizers of `tokenizers` spell them: those that are printed stand for themselves
_PRINTED = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
_OTHER = [byte for byte in range(256) if byte not in _PRINTED]
BYTES = tuple(chr(byte) if byte in _PRINTED else chr(256 + _OTHER.index(byte)) for byte in range(256))


def decode_bytes(content: bytes) -> str:
    """The text that `encode_text` turns into `content` again, whatever bytes these are.

    >>> [hex(ord(character)) for character in decode_bytes(b"a\\xff")]
    ['0x61', '0x10ffff']
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.decode(errors="surrogateescape").translate(_FROM_PYTHON)
    return text.translate(_FROM_PYTHON) if _ESCAPE.search(content) else text


def encode_text(text: str) -> bytes:
    """The bytes that a text stands for: UTF-8, with escaped bytes as they were.

    Raises:
        ValueError: the text has a surrogate, which stands for no bytes.
    """
    return _ESCAPE.sub(lambda found: bytes([(found[1][0] & 1) << 6 | found[2][0]]), text.encode())
