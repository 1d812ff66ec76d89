"""A user's own documents for language models: whole texts, read in pieces, of which some are held out.

A text file is a document, as is each text file of a folder or zip file, and each row of a table or data set.
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..benchmarks.files import matches, reader_versions
from ..benchmarks.long_documents.documents import make_example
from .columns import Columns, document_columns, value_of
from .examples import Scan, slices_of, text_of
from .lines import GZIP, open_lines
from .places import TEXT_FILES, DatasetPlace, FilePlace, Place, TextFolder, is_folder
from .source import TextSource

if TYPE_CHECKING:
    from datasets import Dataset

# characters of a piece, to the end of a line: a document may be larger than memory
PIECE = 1 << 18
TEXT = "text"
LINE_BREAK = re.compile(r"\r\n|\r|\n")
HUNDRED = 100


class Document(NamedTuple):
    """The text of a document in `pieces`, with its place in words and the `values` of its columns of difficulty.

    `ends` is whether the text ends with the last piece: that of a document whose end is held out does not.
    """

    where: str
    pieces: Iterable[str]
    values: Mapping[str, Any]
    ends: bool = True


def pieces_of(text: str) -> Iterator[str]:
    """A text in pieces of `PIECE` characters, up to the end of a line."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text) and text[end - 1] != "\n":
            line_break = LINE_BREAK.search(text, end)
            end = line_break.end() if line_break else len(text)
        yield text[start:end]
        start = end


class TextFile(FilePlace):
    """A text file, which is one document, in pieces as `pieces_of` cuts it; it is read anew each time."""

    columns = (TEXT,)

    def __init__(self, path: str, encoding: str, keep_linebreaks: bool):
        super().__init__(path, encoding)
        self.keep_linebreaks = keep_linebreaks

    def rows(self, skipped):
        yield self.name, {TEXT: "".join(self)}

    def __iter__(self) -> Iterator[str]:
        """The pieces, of which one is in memory at a time. Raises a ValueError if it is not text in this encoding."""
        with open_lines(self.path, self.encoding) as lines:
            while piece := lines.read(PIECE):
                if len(piece) == PIECE and not piece.endswith("\n"):
                    piece += next(lines, "")
                    lines.check()
                    lines.end_record()
                yield piece if self.keep_linebreaks else LINE_BREAK.sub(" ", piece)


class DocumentFolder(TextFolder):
    """A folder or zip file of text files, each of which, or each of their lines if `line_by_line`, is a document."""

    columns = (TEXT,)

    def __init__(self, path: str, encoding: str, line_by_line: bool):
        super().__init__(path, encoding, f"text files ({', '.join(TEXT_FILES)}): put texts there")
        self.line_by_line = line_by_line

    def rows(self, skipped):
        for _, place, text in self.texts(skipped):
            if not self.line_by_line:
                yield place, {TEXT: text}
                continue
            for number, line in enumerate(StringIO(text, newline=""), start=1):
                yield f"{place}, line {number}", {TEXT: line.rstrip("\r\n")}


@dataclass(frozen=True)
class DocumentSource(TextSource):
    """Where documents come from. Nothing is read before it is asked for.

    Attributes:
        keep_linebreaks: whether the line breaks of text files stay; else each is a space.
        line_by_line: whether each line of a text file is a document.
    """

    keep_linebreaks: bool = True
    line_by_line: bool = False
    has_labels = False

    def place_at(self, path):
        if is_folder(path):
            return DocumentFolder(path, self.encoding, self.line_by_line)
        is_document = not self.line_by_line and matches(path.lower().removesuffix(GZIP), TEXT_FILES)
        if is_document:
            return TextFile(path, self.encoding, self.keep_linebreaks)
        return FilePlace(path, self.encoding)

    def place_in(self, rows, split):
        return DatasetPlace(rows, split)

    def columns_of(self, place: Place, split: str) -> Columns:
        (text,) = self.text_columns or (None,)
        return document_columns(place.columns, place.name, text, self.slice_by)

    @property
    def all_splits(self) -> list[str]:
        """The splits that there are, of which "validation" may be held out."""
        return [*self.places, *(["validation"] if self.holds_out else [])]

    @property
    def holds_out(self) -> bool:
        """Whether a part of the training documents is held out, as there are no others."""
        return len(self.places) == 1

    def given(self, split: str, counts: Scan | None = None) -> Iterator[Document]:
        """The documents of a place that are not empty, in order.

        Args:
            counts: takes the number of those that are empty, and what is skipped.

        Raises:
            ValueError: one cannot be read, or is no text.
        """
        counts = Scan() if counts is None else counts
        place, columns = self.places[split], self.readings[split].columns
        if isinstance(place, TextFile):
            yield Document(place.name, place, {})
            return
        skip = self.on_error == "skip"
        for where, row in place.rows(counts.skipped if skip else None):
            text = value_of(row, columns.texts[0])
            if text is None or (isinstance(text, str) and not text.strip()):
                counts.empty += 1
                continue
            try:
                slices = slices_of(row, columns)
                text = text_of(row, columns.texts[0])
            except ValueError as error:
                if not skip:
                    raise ValueError(f"{where}: {error}; correct it, or pass --on_error skip") from error
                counts.skipped.append((where, str(error)))
                continue
            if isinstance(place, DocumentFolder) and not self.keep_linebreaks:
                text = LINE_BREAK.sub(" ", text)
            yield Document(where, list(pieces_of(text)), {name: str(value) for name, value in slices.items()})

    def documents(self, split: str, counts: Scan | None = None) -> Iterator[Document]:
        """The documents of a split; where there is no other than training's, a part of these is "validation".

        Of many documents every so-manieth is held out, the first among them; of fewer, one of which would be more than
        its share, the end of each.
        """
        if not self.holds_out:
            yield from self.given(split, counts)
            return
        wanted = split == "validation"
        if self.cuts is not None:
            for document, (cut, size) in zip(self.given("train", counts), self.cuts, strict=True):
                if not wanted or cut < size:
                    # a single document goes on after its part for training
                    pieces = cut_pieces(document.pieces, cut, wanted)
                    yield document._replace(pieces=pieces, ends=wanted or len(self.cuts) > 1)
            return
        share = self.validation_split_percentage
        for number, document in enumerate(self.given("train", counts)):
            if (number * share % HUNDRED < share) is wanted:
                yield document

    @cached_property
    def cuts(self) -> list[tuple[int, int]] | None:
        """Of each of a few documents, the character at which the end begins that is held out, and its characters.

        None if whole documents are held out: there are enough of them, or they are too short to have ends.

        Raises:
            ValueError: there is no document, or a single one is too short.
        """
        share = self.validation_split_percentage
        enough = max(2, math.ceil(HUNDRED / share))
        sizes = [sum(map(len, document.pieces)) for document in islice(self.given("train"), enough)]
        too_short = not any(size * share >= HUNDRED for size in sizes)
        if len(sizes) == enough or (too_short and len(sizes) > 1):
            return None
        if too_short:
            raise ValueError(
                f"{self.place} has {sum(sizes)} characters of text and nothing to evaluate on: give more text, or name "
                "validation data"
            )
        return [(size - size * share // HUNDRED, size) for size in sizes]

    @cached_property
    def counts(self) -> dict[str, Scan]:
        """Split -> the findings of a pass over it.

        Raises:
            ValueError: something cannot be read, or a split has no text.
        """
        found = {split: Scan() for split in self.all_splits}
        for split, counts in found.items():
            blank = True
            for document in self.documents(split, counts):
                counts.examples += 1
                blank = all([piece.isspace() for piece in document.pieces]) and blank
            if blank:
                report = f" ({counts.left_out})" if counts.left_out else ""
                raise ValueError(f"{self.place_name(split)} has no text{report}: name another file, split or column")
        return found

    def warn(self) -> None:
        """Warn of what is left out; what is held out is counted with the training documents."""
        for split, counts in self.counts.items():
            if counts.left_out and split in self.places:
                warnings.warn(f"{self.places[split].name}: {counts.left_out}", stacklevel=2)

    @cached_property
    def splits(self) -> "dict[str, Dataset]":
        """Split -> its whole documents, with the columns of the benchmark of long documents."""
        from datasets import Dataset, Features, Value
        from datasets.fingerprint import Hasher

        numbers = {name: Value("int64") for name in ("num_bytes", "num_characters", "num_words")}
        features = Features(
            {TEXT: Value("large_string"), "name": Value("string"), "source": Value("string"), **numbers}
        )
        return {
            split: Dataset.from_generator(
                whole_examples,
                features,
                self.cache_dir,
                gen_kwargs={"source": self, "split": split},
                fingerprint=Hasher.hash(["documents", *self.identity(split)]),
                writer_batch_size=16,
            )
            for split in self.all_splits
        }

    def identity(self, split: str) -> list[Any]:
        """Whatever decides the documents of a split."""
        place = self.places["train" if self.holds_out else split]
        settings = (self.text_columns, self.slice_by, self.encoding, self.on_error, self.keep_linebreaks)
        settings += (self.line_by_line,)
        held_out = [self.validation_split_percentage, self.cuts] if self.holds_out else []
        return [split, place.fingerprint, *settings, *held_out, *reader_versions()]

    @cached_property
    def version(self) -> str:
        if self.streaming:
            return "streamed, without a digest"
        # a run of a version that held out whole ones does not go on
        several = self.holds_out and len(self.cuts or ()) > 1
        return f"{super().version}, ends held out" if several else super().version

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"files": {split: Path(path).name for split, path in self.files.items()} or None}
        facts |= {"text_column": self.readings["train"].columns.texts[0], "streaming": self.streaming or None}
        facts |= {"line_by_line": self.line_by_line or None, "keep_linebreaks": None if self.keep_linebreaks else False}
        if self.holds_out:
            facts["validation_split_percentage"] = self.validation_split_percentage
        if self.streaming:
            return facts
        facts["documents"] = {split: counts.examples for split, counts in self.counts.items()}
        left_out = {split: len(counts.skipped) for split, counts in self.counts.items() if counts.skipped}
        return facts | {"skipped": left_out or None}


def cut_pieces(pieces: Iterable[str], cut: int, after: bool) -> Iterator[str]:
    """The pieces before or after a character, moved to the end of its line if this is in its piece."""
    seen = 0
    for piece in pieces:
        place = cut - seen
        seen += len(piece)
        if 0 < place < len(piece):
            line_end = piece.find("\n", place) + 1
            place = line_end if 0 < line_end < len(piece) else place
        kept = piece[max(place, 0) :] if after else piece[: max(place, 0)]
        if kept:
            yield kept


def whole_examples(source: DocumentSource, split: str) -> Iterator[dict[str, object]]:
    """The documents of a split as examples of the benchmark of long documents."""
    for document in source.documents(split):
        yield make_example(document.where, source.place, "".join(document.pieces))
