"""Lines of text files that somebody else wrote: checked, numbered, and read one at a time."""

import csv
import gzip
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

GZIP = ".gz"
_DAMAGED = (EOFError, zlib.error, OSError)
# characters of a value; the most that the module takes everywhere
_LONGEST = 2**31 - 1
_REMEDY = "pass the file's encoding, such as --encoding latin-1 or utf-16 (in Python encoding='latin-1')"


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
        yield Lines(file, path, encoding)


class Lines:
    """An iterator over lines, with their line breaks, that can go back to the second line of a record.

    A line that is no text, because a byte does not belong to the encoding or is zero, is given too, and noted in
    `problem`: whether it ends the work is not decided here.

    Attributes:
        number: of the last line, counted from 1.
        first: number of the first line of the record.
        problem: number and reason of the first line of the record that is no text; None without such a line.
    """

    def __init__(self, file: TextIO, path: Path, encoding: str):
        self.file, self.path, self.encoding = file, path, encoding
        self.number = 0
        self.record: list[str] = []
        self.ahead: deque[str] = deque()
        self.problem: tuple[int, str] | None = None

    @property
    def first(self) -> int:
        return self.number - len(self.record) + 1

    def __iter__(self) -> "Lines":
        return self

    def __next__(self) -> str:
        line = self.ahead.popleft() if self.ahead else self._take(self.file.readline)
        if not line:
            raise StopIteration
        self.number += 1
        self.record.append(line)
        if not line.isascii() or "\0" in line:
            self._note(line, self.number)
            # csv of Python 3.10 stops at it
            line = line.replace("\0", " ")
        return line

    def check(self) -> None:
        """Raise a ValueError if there is a `problem`."""
        if self.problem is not None:
            raise ValueError("{}, line {}: {}".format(self.path, *self.problem))

    def end_record(self) -> None:
        """Let the next line be the first of a record."""
        self.record.clear()
        self.problem = None

    def read(self, size: int) -> str:
        """The next characters, across lines.

        Raises:
            ValueError: some of them are no text.
        """
        text = self._take(self.file.read, size)
        self._note(text, self.number + 1)
        self.check()
        self.number += text.count("\n")
        return text

    def _take(self, read: Callable[..., str], *size: int) -> str:
        try:
            return read(*size)
        except _DAMAGED as error:
            raise ValueError(f"{self.path}, line {self.number + 1}: cannot be read ({error}): is it whole?") from error
        except UnicodeError as error:
            # this encoding has no place for bytes that do not belong to it
            raise ValueError(f"{self.path}, line {self.number + 1}: {error}; {_REMEDY}") from error

    def _note(self, text: str, number: int) -> None:
        if self.problem is not None:
            return
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) - 0xDC00
            number += text.count("\n", 0, error.start)
            self.problem = number, f"the byte 0x{byte:02X} is not {self.encoding}; {_REMEDY}"
            return
        if "\0" in text:
            number += text.count("\n", 0, text.index("\0"))
            self.problem = number, f"it holds a byte of zero, which is no text in {self.encoding}; {_REMEDY}"


def csv_records(lines: Lines, delimiter: str) -> Iterator[tuple[int, list[str] | None, str]]:
    """Records of a CSV file as (line number, values, ""), or (line number, None, reason) of a broken one.

    Lines without any value are left out. After a quote that is never closed reading goes on at the next line.
    """
    # it is a setting of the module
    csv.field_size_limit(_LONGEST)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield lines.first, None, f"{error}: quote a value that holds quotes or line breaks, and double its quotes"
            # the line after the record's first one is the next
            again = lines.record[1:]
            lines.ahead.extendleft(reversed(again))
            lines.number -= len(again)
            lines.end_record()
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            continue
        if lines.problem is not None:
            number, reason = lines.problem
            yield number, None, reason
        elif values:
            yield lines.first, values, ""
        lines.end_record()
