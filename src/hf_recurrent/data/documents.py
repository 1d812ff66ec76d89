"""Documents for language models, of which some are held out, and blocks of tokens that they are cut into.

A text file is a document, as is each text file of a folder or zip file, and each row of a table. With `line_by_line`
each line is one.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..benchmarks.long_documents.documents import make_example
from ..benchmarks.tokenizers import encode_document, is_byte_tokenizer
from .loading import Data, Source
from .reading import LENGTH, fingerprint, slices_of, text_of, value_of, warn_of_skipped

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

HUNDRED = 100
# characters of a text that are encoded at once, to the end of a line, and about as many of texts together
PIECE = 1 << 18
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
        return super().place_of(split) if split in self.rows else f"the part of {self.place} that is held out"

    def given(self, split: str, counts: Counter | None = None) -> Iterator[Document]:
        """The documents of a place that are not empty, in order.

        Args:
            counts: takes the numbers of texts that are "empty" and of broken rows that are "skipped".

        Raises:
            ValueError: one is no text.
        """
        place, columns, empty, skipped = self.place_of(split), self.columns[split], 0, []
        (column,) = columns.texts
        for number, row in enumerate(self.each_row(split), 1):
            text = value_of(row, column)
            if text is None or (isinstance(text, str) and not text.strip()):
                empty += 1
                continue
            try:
                text, values = text_of(row, column), slices_of(row, columns.slices)
            except ValueError as error:
                if self.reading.on_error != "skip":
                    raise ValueError(f"{place}, row {number}: {error}; correct it, or pass --on_error skip") from error
                skipped.append(f"row {number}: {error}")
                continue
            where = f"{place}/{row['name']}" if "name" in row else place
            yield Document(where, text if self.arguments.keep_linebreaks else text.replace("\n", " "), values)
        if counts is not None:
            counts.update(empty=empty, skipped=len(skipped))
        if not self.reading.streaming:
            warn_of_skipped(place, skipped)

    def documents(self, split: str, counts: Counter | None = None) -> Iterator[Document]:
        """The documents of a split; where there is no other than training's, a part of these is "validation".

        Of many documents every n-th is held out, the first among them; of fewer, one of which would be more than its
        share, the end of each.
        """
        if not self.holds_out:
            yield from self.given(split, counts)
            return
        wanted, share = split == "validation", self.arguments.held_out_percentage
        for number, document in enumerate(self.given("train", counts)):
            if self.cuts is not None:
                cut = self.cuts[number]
                text = document.text[cut:] if wanted else document.text[:cut]
                if text:
                    # a single document goes on after its part for training
                    yield document._replace(text=text, ends=wanted or len(self.cuts) > 1)
            elif (number * share % HUNDRED < share) is wanted:
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
    def counts(self) -> dict[str, Counter]:
        """Split -> the numbers of its "documents", and of texts that are "empty" and rows that are "skipped".

        Raises:
            ValueError: a text cannot be read, or a split has no text.
        """
        found = {split: Counter() for split in self.all_splits}
        for split, counts in found.items():
            with warnings.catch_warnings():
                if split not in self.rows:
                    # it was read with the training documents
                    warnings.simplefilter("ignore")
                counts["documents"] = sum(1 for _ in self.documents(split, counts))
            place, empty = self.place_of(split), f"{counts['empty']:,} empty texts were left out"
            if not counts["documents"]:
                reason = f" ({empty})" * (counts["empty"] > 0)
                raise ValueError(f"{place} has no text{reason}: name another file, split or column")
            if counts["empty"] and split in self.rows:
                warnings.warn(f"{place}: {empty}", stacklevel=2)
        return found

    def identity(self, split: str) -> list[Any]:
        """Whatever decides the documents of a split."""
        rows, arguments = self.rows["train" if self.holds_out else split], self.arguments
        held_out = [arguments.held_out_percentage, self.cuts] if self.holds_out else []
        columns = next(iter(self.columns.values()))
        return [split, rows._fingerprint, columns, arguments.keep_linebreaks, self.reading.on_error, *held_out]

    def whole_documents(self, split: str) -> Iterator[dict[str, object]]:
        """The documents of a split as examples of the benchmark of long documents."""
        for document in self.documents(split):
            yield make_example(document.where, self.place, document.text)

    @cached_property
    def copies(self) -> "dict[str, Dataset]":
        """Split -> its whole documents, with the columns of the benchmark of long documents."""
        from datasets import Dataset, Features, Value

        numbers = {name: Value("int64") for name in (NUM_BYTES, "num_characters", "num_words")}
        features = {"text": Value("large_string"), "name": Value("string"), "source": Value("string"), **numbers}
        return {
            split: Dataset.from_generator(
                self.whole_documents,
                Features(features),
                self.arguments.cache_dir,
                gen_kwargs={"split": split},
                fingerprint=fingerprint("documents", *self.identity(split)),
                writer_batch_size=16,
            )
            for split in self.counts
        }

    def data(self) -> Data:
        """The facts of the documents; `splits` are none, for blocks or copies are made of them."""
        arguments, streaming = self.arguments, self.reading.streaming
        files = {split: str(path).rpartition("/")[2] for split, path in self.paths.items()}
        facts = {"files": files or None, "text_column": next(iter(self.columns.values())).texts[0]}
        facts |= {"streaming": streaming or None, "line_by_line": getattr(arguments, "line_by_line", False) or None}
        facts["keep_linebreaks"] = None if arguments.keep_linebreaks else False
        if self.holds_out:
            facts["validation_split_percentage"] = arguments.held_out_percentage
        if not streaming:
            facts["documents"] = {split: counts["documents"] for split, counts in self.counts.items()}
            skipped = {split: counts["skipped"] for split, counts in self.counts.items() if counts["skipped"]}
            facts["skipped"] = skipped or None
        # a run of a version that held out whole ones does not go on
        ends = ", ends held out" if self.holds_out and len(self.cuts or ()) > 1 else ""
        places = {split: self.place_of(split) for split in self.all_splits}
        return self.described({}, facts, version=f"{self.version}{ends}", places=places)


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

    def pieces() -> Iterator[tuple[int, Document, str, bool]]:
        """Pieces, whether each is the last of its document, and the number of the group that is encoded with it."""
        characters = 0
        for document in documents:
            texts = [*document.pieces]
            for number, text in enumerate(texts, 1):
                yield characters // PIECE, document, text, number == len(texts)
                characters += len(text)

    # no warning that a text is longer than a model's context: it is cut
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    for _, pieces_together in groupby(pieces(), itemgetter(0)):
        group = [*pieces_together]
        texts = [text for _, _, text, _ in group]
        if is_byte_tokenizer(tokenizer):
            encoded = [encode_document(tokenizer, text) for text in texts]
        else:
            encoded = tokenizer(texts, **options)["input_ids"]
        for (_, document, text, last), ids in zip(group, encoded, strict=True):
            end = [tokenizer.eos_token_id] if last and document.ends else []
            num_bytes = np.full(len(ids), len(text.encode()) / max(len(ids), 1))
            num_bytes = np.append(num_bytes, np.zeros(len(end)))
            yield Tokens(np.append(ids, end).astype(np.int32), num_bytes, last, document.values)


def cut_into_blocks(tokens: Iterable[Tokens], block_size: int, pack: bool) -> Iterator[dict[str, Any]]:
    """Blocks of at most `block_size` tokens: `input_ids` (N,) and `num_bytes`.

    With `pack` all tokens in order, of which the last block may have fewer. Else the beginning of each document, with
    its `length` in tokens and its values. Blocks of a single token, which predicts nothing, are left out.
    """
    ids, num_bytes, length = np.zeros(0, np.int32), np.zeros(0), 0
    for piece in tokens:
        length += len(piece.ids)
        if pack or len(ids) < block_size:
            ids, num_bytes = np.append(ids, piece.ids), np.append(num_bytes, piece.num_bytes)
        if pack:
            whole = len(ids) // block_size * block_size
            for start in range(0, whole, block_size):
                yield block(ids[start : start + block_size], num_bytes[start : start + block_size])
            ids, num_bytes = ids[whole:], num_bytes[whole:]
        elif piece.last:
            if length >= FEWEST:
                yield {**block(ids[:block_size], num_bytes[:block_size]), LENGTH: length, **piece.values}
            ids, num_bytes, length = ids[:0], num_bytes[:0], 0
    if len(ids) >= FEWEST:
        yield block(ids, num_bytes)


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
        return cut_into_blocks(tokens, self.block_size, self.pack)

    def dataset(self, split: str, limit: int | None) -> "Dataset":
        """The first blocks of a split, at most `limit`, as a `Dataset`; those of a stream are in memory."""
        from datasets import Dataset, Features, List, Value

        features = {"input_ids": List(Value("int32")), NUM_BYTES: Value("float64")}
        if not self.pack:
            slices = next(iter(self.source.columns.values())).slices
            features |= {LENGTH: Value("int64"), **dict.fromkeys(slices, Value("string"))}
        if self.source.reading.streaming:
            found = list(islice(self(split), limit))
            return Dataset.from_dict({name: [own[name] for own in found] for name in features}, Features(features))
        tokenizer = [self.tokenizer.backend_tokenizer.to_str(), self.tokenizer.eos_token_id]
        found = Dataset.from_generator(
            self,
            Features(features),
            self.source.arguments.cache_dir,
            gen_kwargs={"split": split},
            fingerprint=fingerprint(*self.source.identity(split), *tokenizer, self.block_size, self.pack),
        )
        return found if limit is None or limit >= len(found) else found.select(range(limit))
