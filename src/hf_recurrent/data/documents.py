"""Documents for language models, of which some are held out, and blocks of tokens that they are cut into.

A text file is a document, as is each text file of a folder or zip file, and each row of a table. With `line_by_line`
each line is one.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..benchmarks.long_documents.documents import make_example
from ..benchmarks.long_documents.tokenizers import encode_document, is_byte_tokenizer
from .columns import LENGTH, slices_of, text_of, value_of
from .loading import Data, Source
from .reading import fingerprint, warn_of_skipped

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

HUNDRED = 100
# characters that are encoded at once, to the end of a line, and texts that are encoded together
PIECE, TEXTS = 1 << 18, 1000
# a single token predicts nothing
FEWEST = 2
NUM_BYTES = "num_bytes"


class Document(NamedTuple):
    """A text, its place in words, and the values of its columns of difficulty.

    `ends` is whether the document ends with the text: one whose end is held out does not.
    """

    where: str
    text: str
    values: Mapping[str, Any]
    ends: bool = True

    @property
    def pieces(self) -> Iterator[str]:
        """The text in pieces, each up to the end of a line."""
        start = 0
        while start < len(self.text):
            end = start + PIECE
            if end < len(self.text) and self.text[end - 1] != "\n":
                end = self.text.find("\n", end) + 1 or len(self.text)
            yield self.text[start:end]
            start = end


@dataclass
class Counts:
    """The documents of a split, those without text, and the broken rows that were left out."""

    documents: int = 0
    empty: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class DocumentSource(Source):
    """A user's own documents. Nothing is read before it is asked for."""

    @property
    def holds_out(self) -> bool:
        """Whether a part of the training documents is held out, as there are no others."""
        return len(self.rows) == 1 and not self.evaluates

    @property
    def all_splits(self) -> list[str]:
        return [*self.rows, *(["validation"] if self.holds_out else [])]

    def place_of(self, split: str) -> str:
        if self.holds_out and split not in self.rows:
            return f"the part of {self.place} that is held out"
        return super().place_of(split)

    def given(self, split: str, counts: Counts | None = None) -> Iterator[Document]:
        """The documents of a place that are not empty, in order.

        Raises:
            ValueError: one is no text.
        """
        counts, place, columns = counts or Counts(), self.place_of(split), self.columns[split]
        (column,), skipped = columns.texts, []
        for number, row in enumerate(self.each_row(split), 1):
            where = f"{place}/{row['name']}" if "name" in row and place.lower() == self.place.lower() else place
            text = value_of(row, column)
            if text is None or (isinstance(text, str) and not text.strip()):
                counts.empty += 1
                continue
            try:
                document = Document(where, text_of(row, column), slices_of(row, columns.slices))
            except ValueError as error:
                if self.reading.on_error != "skip":
                    raise ValueError(f"{place}, row {number}: {error}; correct it, or pass --on_error skip") from error
                skipped.append(f"row {number}: {error}")
                continue
            if not self.arguments.keep_linebreaks:
                document = document._replace(text=document.text.replace("\n", " "))
            counts.documents += 1
            yield document
        counts.skipped = len(skipped)
        if skipped and not self.reading.streaming:
            warn_of_skipped(place, skipped)

    def documents(self, split: str, counts: Counts | None = None) -> Iterator[Document]:
        """The documents of a split; where there is no other than training's, a part of these is "validation".

        Of many documents every n-th is held out, the first among them; of fewer, one of which would be more than its
        share, the end of each.
        """
        if not self.holds_out:
            yield from self.given(split, counts)
            return
        wanted, share = split == "validation", self.arguments.held_out_percentage
        if self.cuts is not None:
            for document, cut in zip(self.given("train", counts), self.cuts, strict=True):
                text = document.text[cut:] if wanted else document.text[:cut]
                if text:
                    # a single document goes on after its part for training
                    yield document._replace(text=text, ends=wanted or len(self.cuts) > 1)
            return
        for number, document in enumerate(self.given("train", counts)):
            if (number * share % HUNDRED < share) is wanted:
                yield document

    @cached_property
    def cuts(self) -> list[int] | None:
        """Of each of a few documents, the character at which the end begins that is held out.

        None if whole documents are held out: there are enough of them, or they are too short to have ends.

        Raises:
            ValueError: there is no document, or a single one is too short.
        """
        share = self.arguments.held_out_percentage
        enough = max(2, math.ceil(HUNDRED / share))
        texts = [document.text for document in islice(self.given("train"), enough)]
        too_short = not any(len(text) * share >= HUNDRED for text in texts)
        if len(texts) == enough or (too_short and len(texts) > 1):
            return None
        if too_short:
            raise ValueError(
                f"{self.place} has {sum(map(len, texts))} characters of text and nothing to evaluate on: give more "
                "text, or name validation data"
            )
        found = []
        for text in texts:
            cut = len(text) - len(text) * share // HUNDRED
            # to the end of its line
            line_end = text.find("\n", cut) + 1
            found.append(line_end if cut and 0 < line_end < len(text) else cut)
        return found

    @cached_property
    def counts(self) -> dict[str, Counts]:
        """Split -> what a pass over it finds.

        Raises:
            ValueError: a text cannot be read, or a split has no text.
        """
        found = {split: Counts() for split in self.all_splits}
        for split, counts in found.items():
            with warnings.catch_warnings():
                # what is held out is read with the training documents
                warnings.simplefilter("ignore" if split not in self.rows else "default")
                number = sum(1 for _ in self.documents(split, counts))
            counts.documents = number
            if not number:
                empty = f" ({counts.empty:,} empty texts were left out)" if counts.empty else ""
                raise ValueError(f"{self.place_of(split)} has no text{empty}: name another file, split or column")
            if counts.empty and split in self.rows:
                warnings.warn(f"{self.place_of(split)}: {counts.empty:,} empty texts were left out", stacklevel=2)
        return found

    def identity(self, split: str) -> list[Any]:
        """Whatever decides the documents of a split."""
        rows = self.rows["train" if self.holds_out else split]
        arguments = self.arguments
        held_out = [arguments.held_out_percentage, self.cuts] if self.holds_out else []
        columns = next(iter(self.columns.values()))
        return [split, rows._fingerprint, columns, arguments.keep_linebreaks, self.reading.on_error, *held_out]

    @cached_property
    def copies(self) -> "dict[str, Dataset]":
        """Split -> its whole documents, with the columns of the benchmark of long documents."""
        from datasets import Dataset, Features, Value

        numbers = {name: Value("int64") for name in (NUM_BYTES, "num_characters", "num_words")}
        features = {"text": Value("large_string"), "name": Value("string"), "source": Value("string"), **numbers}
        return {
            split: Dataset.from_generator(
                whole_documents,
                Features(features),
                self.arguments.cache_dir,
                gen_kwargs={"source": self, "split": split},
                fingerprint=fingerprint("documents", *self.identity(split)),
                writer_batch_size=16,
            )
            for split in self.counts
        }

    def data(self) -> Data:
        """The facts of the documents; `splits` are none, for blocks or copies are made of them."""
        streaming = self.reading.streaming
        columns = next(iter(self.columns.values()))
        facts: dict[str, Any] = {
            "files": {split: str(path).rpartition("/")[2] for split, path in self.paths.items()} or None
        }
        facts |= {"text_column": columns.texts[0], "streaming": streaming or None}
        by_line = getattr(self.arguments, "line_by_line", False)
        facts |= {"line_by_line": by_line or None, "keep_linebreaks": None if self.arguments.keep_linebreaks else False}
        if self.holds_out:
            facts["validation_split_percentage"] = self.arguments.held_out_percentage
        if not streaming:
            facts["documents"] = {split: counts.documents for split, counts in self.counts.items()}
            facts["skipped"] = {
                split: counts.skipped for split, counts in self.counts.items() if counts.skipped
            } or None
        name, config = self.hub_name
        on_hub = not self.paths and "/" in name
        return Data(
            name=self.name,
            config=config or "default",
            # a run of a version that held out whole ones does not go on
            version=f"{self.version}, ends held out" if self.holds_out and len(self.cuts or ()) > 1 else self.version,
            splits={},
            slice_columns=(*self.arguments.slice_by, LENGTH),
            places={split: self.place_of(split) for split in self.all_splits},
            dataset_id=name if on_hub else None,
            revision=self.arguments.dataset_revision,
            facts=facts,
        )


def whole_documents(source: DocumentSource, split: str) -> Iterator[dict[str, object]]:
    for document in source.documents(split):
        yield make_example(document.where, source.place, document.text)


class Tokens(NamedTuple):
    """Tokens of a piece of a document: `ids` (n,) and the bytes of text that each stands for, `num_bytes` (n,).

    A token counts with an even share of its piece's bytes. `last` is whether the document's pieces end here.
    """

    ids: np.ndarray
    num_bytes: np.ndarray
    last: bool
    values: Mapping[str, Any]


def document_tokens(documents: Iterable[Document], tokenizer: "PreTrainedTokenizerBase") -> Iterator[Tokens]:
    """The tokens of documents in order, with the end-of-text token after each document that ends."""
    for group in piece_groups(documents):
        texts = [text for text, *_ in group]
        if is_byte_tokenizer(tokenizer):
            encoded = [encode_document(tokenizer, text) for text in texts]
        else:
            # no warning that a text is longer than a model's context: it is cut
            options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
            encoded = tokenizer(texts, **options)["input_ids"]
        for (text, last, ends, values), ids in zip(group, encoded, strict=True):
            share = len(text.encode()) / max(len(ids), 1)
            end = [tokenizer.eos_token_id] if ends else []
            num_bytes = np.append(np.full(len(ids), share), [0.0] * len(end))
            yield Tokens(np.append(ids, end).astype(np.int32), num_bytes, last, values)


def piece_groups(documents: Iterable[Document]) -> Iterator[list[tuple[str, bool, bool, Mapping[str, Any]]]]:
    """Pieces to encode together; of each, whether no piece follows, whether the document ends, and its values."""
    group, characters = [], 0
    for document in documents:
        pieces = list(document.pieces)
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            group.append((piece, last, last and document.ends, document.values))
            characters += len(piece)
            if len(group) == TEXTS or characters >= PIECE:
                yield group
                group, characters = [], 0
    if group:
        yield group


def packed(tokens: Iterable[Tokens], block_size: int) -> Iterator[dict[str, Any]]:
    """All tokens in order, cut into blocks: `input_ids` (N,) and `num_bytes`.

    The last block may be shorter; one of a single token, which predicts nothing, is left out.
    """
    ids, num_bytes = np.zeros(0, np.int32), np.zeros(0)
    for piece in tokens:
        ids, num_bytes = np.append(ids, piece.ids), np.append(num_bytes, piece.num_bytes)
        whole = len(ids) // block_size * block_size
        for start in range(0, whole, block_size):
            yield block(ids[start : start + block_size], num_bytes[start : start + block_size])
        ids, num_bytes = ids[whole:], num_bytes[whole:]
    if len(ids) >= FEWEST:
        yield block(ids, num_bytes)


def by_document(tokens: Iterable[Tokens], block_size: int) -> Iterator[dict[str, Any]]:
    """The beginning of each document, at most `block_size` tokens, with its `length` in tokens and its values.

    Documents of a single token, which predicts nothing, are left out.
    """
    parts, length = [], 0
    for piece in tokens:
        if length < block_size:
            parts.append(piece)
        length += len(piece.ids)
        if not piece.last:
            continue
        ids, num_bytes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "num_bytes"))
        if length >= FEWEST:
            yield {**block(ids[:block_size], num_bytes[:block_size]), LENGTH: length, **piece.values}
        parts, length = [], 0


def block(ids: np.ndarray, num_bytes: np.ndarray) -> dict[str, Any]:
    return {"input_ids": ids, NUM_BYTES: float(num_bytes.sum())}


@dataclass(frozen=True)
class Blocks:
    """How documents become blocks: joined and cut (`pack`), or the beginning of each document."""

    source: DocumentSource
    tokenizer: Any
    block_size: int
    pack: bool

    def __call__(self, split: str) -> Iterator[dict[str, Any]]:
        """The blocks of a split in order."""
        tokens = document_tokens(self.source.documents(split), self.tokenizer)
        return (packed if self.pack else by_document)(tokens, self.block_size)

    def dataset(self, split: str, limit: int | None) -> "Dataset":
        """The first blocks of a split, at most `limit`, as a `Dataset`; those of a stream are in memory."""
        from datasets import Dataset, Features, List, Value

        features = {"input_ids": List(Value("int32")), NUM_BYTES: Value("float64")}
        if not self.pack:
            slices = next(iter(self.source.columns.values())).slices
            features |= {LENGTH: Value("int64"), **dict.fromkeys(slices, Value("string"))}
        if self.source.reading.streaming:
            found = list(islice(self(split), limit))
            return Dataset.from_dict({name: [block[name] for block in found] for name in features}, Features(features))
        tokenizer = [self.tokenizer.backend_tokenizer.to_str(), self.tokenizer.eos_token_id]
        found = Dataset.from_generator(
            blocks_of,
            Features(features),
            self.source.arguments.cache_dir,
            gen_kwargs={"blocks": self, "split": split},
            fingerprint=fingerprint(*self.source.identity(split), *tokenizer, self.block_size, self.pack),
        )
        return found if limit is None or limit >= len(found) else found.select(range(limit))


def blocks_of(blocks: Blocks, split: str) -> Iterator[dict[str, Any]]:
    return blocks(split)
