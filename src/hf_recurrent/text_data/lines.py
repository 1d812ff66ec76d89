"""Lines of text files that somebody else wrote: checked, numbered, and read one at a time."""

import codecs
import csv
import gzip
import re
import warnings
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from .. import limits

GZIP = ".gz"
_DAMAGED = (EOFError, zlib.error, OSError)
# bytes of a file by which UTF-8 is known
SAMPLE = 1 << 16
# bounded, as a word may be as long as a file
BEYOND_ASCII = re.compile(r"\w{0,9}[^\0-\x7f]\w{0,9}")


@contextmanager
def open_lines(path: Path, encoding: str) -> "Iterator[Lines]":
    """The lines of a text file, plain or compressed by gzip, without a byte order mark.

    Raises:
        ValueError: there is no such encoding.
    """
    # in other encodings whose files begin with a mark it is part of the encoding
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    compressed = path.suffix.lower() == GZIP
    try:
        file = (gzip.open if compressed else open)(path, "rt", encoding=codec, errors="surrogateescape", newline="")
    except (LookupError, UnicodeError) as error:
        raise ValueError(f"encoding is {encoding!r}: {error}") from error
    with file:
        if not is_utf8(encoding):
            warn_of_utf8(sample_of(path), path.name, encoding)
        yield Lines(file, path, encoding, limits.UNPACKED.value if compressed else None)


def sample_of(path: Path) -> bytes:
    """The first bytes of a text file; none of a damaged one, which reading refuses."""
    try:
        with (gzip.open if path.suffix.lower() == GZIP else open)(path, "rb") as file:
            return file.read(SAMPLE)
    except _DAMAGED:
        return b""


def is_utf8(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf-8")


def warn_of_utf8(sample: bytes, name: str, encoding: str) -> bool:
    """Warn if a file in UTF-8 is read in another encoding: many have a character for every byte -> whether it is."""
    found = None
    with suppress(UnicodeDecodeError):
        found = BEYOND_ASCII.search(codecs.getincrementaldecoder("utf-8")().decode(sample[:SAMPLE]))
    if found is not None:
        word = found.group()
        warnings.warn(
            f"{name} looks like UTF-8, but its encoding is {encoding!r}, in which {word!r} becomes "
            f"{word.encode().decode(encoding, errors='replace')!r}: leave encoding out, or convert the file",
            stacklevel=2,
        )
    return found is not None


class Lines:
    """An iterator over lines, with their line breaks, that can go back to the second line of a record.

    A line that is no text, because a byte does not belong to the encoding or is zero, is given too, and noted in
    `problem`: whether it ends the work is not decided here.

    Attributes:
        number: of the last line, counted from 1.
        first: number of the first line of the record.
        problem: number and reason of the first line of the record that is no text; None without such a line.
    """

    def __init__(self, file: TextIO, path: Path, encoding: str, most: int | None):
        self.file, self.path, self.encoding, self.most = file, path, encoding, most
        self.longest = limits.TEXT.value
        self.number = self.characters = 0
        self.record: list[str] = []
        self.ahead: deque[str] = deque()
        self.problem: tuple[int, str] | None = None

    @property
    def first(self) -> int:
        return self.number - len(self.record) + 1

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        line = self.ahead.popleft() if self.ahead else self._read_line()
        if not line:
            raise StopIteration
        self.number += 1
        self.record.append(line)
        if not line.isascii() or "\0" in line:
            self._note(line, self.number)
            # csv of Python 3.10 stops at it
            line = line.replace("\0", " ")
        return line

    def end_record(self) -> None:
        """Let the next line be the first of a record."""
        self.record.clear()
        self.problem = None

    def go_back(self) -> None:
        """Let the line after the record's first one be the next."""
        again = self.record[1:]
        self.ahead.extendleft(reversed(again))
        self.number -= len(again)
        self.end_record()

    def read(self, size: int) -> str:
        """The next characters, across lines.

        Raises:
            ValueError: some of them are no text.
        """
        text = self._take(lambda: self.file.read(size))
        self._note(text, self.number + 1)
        if self.problem is not None:
            raise ValueError("{}, line {}: {}".format(self.path, *self.problem))
        self.number += text.count("\n")
        return text

    def _read_line(self) -> str:
        line = self._take(lambda: self.file.readline(self.longest + 1))
        if len(line) > self.longest:
            raise limits.TEXT.exceeded(f"{self.path}, line {self.number + 1}")
        return line

    def _take(self, read) -> str:
        try:
            text = read()
        except _DAMAGED as error:
            raise ValueError(f"{self.path}, line {self.number + 1}: cannot be read ({error}): is it whole?") from error
        except UnicodeError as error:
            # this encoding has no place for bytes that do not belong to it
            raise ValueError(f"{self.path}, line {self.number + 1}: {error}; {self._remedy}") from error
        self.characters += len(text)
        if self.most is not None and self.characters > self.most:
            raise limits.UNPACKED.exceeded(str(self.path))
        return text

    def _note(self, text: str, number: int) -> None:
        if self.problem is not None:
            return
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) - 0xDC00
            number += text.count("\n", 0, error.start)
            self.problem = number, f"the byte 0x{byte:02X} is not {self.encoding}; {self._remedy}"
            return
        if "\0" in text:
            number += text.count("\n", 0, text.index("\0"))
            self.problem = number, f"it holds a byte of zero, which is no text in {self.encoding}; {self._remedy}"

    @property
    def _remedy(self) -> str:
        return "pass the file's encoding, such as --encoding latin-1 or utf-16 (in Python encoding='latin-1')"


def csv_records(lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str] | None, str]]:
    """Records of a CSV file as (line number, values, ""), or (line number, None, reason) of a broken one.

    Lines without any value are left out. After a quote that is never closed reading goes on at the next line.
    """
    # of a value; it is a setting of the module
    csv.field_size_limit(max(csv.field_size_limit(), lines.longest))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield lines.first, None, f"{error}: quote a value that holds quotes or line breaks, and double its quotes"
            lines.go_back()
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            continue
        if lines.problem is not None:
            number, reason = lines.problem
            yield number, None, reason
        elif values:
            yield lines.first, values, ""
        lines.end_record()
