"""Documents as token ids, one by one, and batches of their segments: each row of a batch goes through its document
segment by segment.

A row that has come to the end of its document takes the next unread one, in the order of rows ("Block-Recurrent
Transformers", arXiv 2203.07852, and its code). Rows are dealt out to processes; each follows all of them, so that what
a row reads does not depend on their number. Shapes: B rows of a process's batch, N tokens a segment.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..benchmarks import encode_document
from ..models.ops.losses import NO_TARGET

if TYPE_CHECKING:
    from datasets import Dataset

NO_DOCUMENT = -1
# documents encoded together: each may have millions of tokens
BATCH_SIZE = 16
# tokens at either end of a document that go into the fingerprint
FINGERPRINT_TOKENS = 1024


class TokenDocuments:
    """Documents of token ids.

    Args:
        documents: `documents[i]` is a sequence of ids.
        lengths: tokens of each document; counted if not given.
    """

    def __init__(self, documents: Sequence[Sequence[int]], lengths: Sequence[int] | None = None):
        self.documents = documents
        self.lengths = np.array([len(ids) for ids in documents] if lengths is None else lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        """Token ids (tokens,) of a document."""
        return np.asarray(self.documents[int(index)], dtype=np.int64)

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the lengths of all documents and the tokens at both ends of each."""
        content = hashlib.blake2b(self.lengths.tobytes(), digest_size=8)
        for tokens in self:
            content.update(tokens[:FINGERPRINT_TOKENS].tobytes())
            content.update(tokens[-FINGERPRINT_TOKENS:].tobytes())
        return content.hexdigest()

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))


def encode_documents(dataset: "Dataset", tokenizer: Any, num_proc: int | None = None) -> TokenDocuments:
    """The documents of the column `text`, as token ids of the whole text, without BOS and EOS."""

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        ids = [encode_document(tokenizer, text) for text in batch["text"]]
        return {"input_ids": ids, "num_tokens": list(map(len, ids))}

    encoded = dataset.map(
        tokenize,
        batched=True,
        batch_size=BATCH_SIZE,
        writer_batch_size=BATCH_SIZE,
        remove_columns=dataset.column_names,
        num_proc=num_proc,
        desc="encoding",
    )
    return TokenDocuments(encoded.with_format("numpy")["input_ids"], encoded["num_tokens"][:])


class Segment(NamedTuple):
    """A batch of segments.

    `input_ids` (B, N), the pad id at padding, and `attention_mask` (B, N); `labels` (B, N) the next token of the
    document, also across the end of the segment, -100 after a document's last token and at padding;
    `start_of_document` (B,) bool; `position` (B,) tokens of the document before the segment; `document` (B,) its index,
    -1 where a row has none.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    labels: torch.Tensor
    start_of_document: torch.Tensor
    position: torch.Tensor
    document: torch.Tensor

    def to(self, device: torch.device | str) -> "Segment":
        return Segment(*(tensor.to(device) for tensor in self))

    def rows(self, rows: slice) -> "Segment":
        """Some rows of the batch, as views."""
        return Segment(*(tensor[rows] for tensor in self))


@dataclass
class Row:
    """State of a row of the batch: `position` tokens of `document` are read, in pass `epoch` over all documents."""

    document: int = NO_DOCUMENT
    position: int = 0
    epoch: int = 0


class DocumentReader:
    """Iterator over segments that continues where it stopped when iterated again; after the last one, it starts anew.

    A document's last segment is padded on the right, and a row for which no document is left is all padding: documents
    shorter than a segment are neither dropped nor joined. Empty documents are skipped.

    Args:
        documents: the corpus.
        batch_size: B, rows of a process; the documents of a row depend on all rows of all processes.
        segment_length: N.
        shuffle_seed: another order of documents in each epoch, from this seed; None: the order of the corpus.
        rewind: begin the next epoch when all documents are read, without end.
        shard: (process, processes): rows are every `shard[1]`-th of B * `shard[1]`.
        predict_across_segments: False leaves the last token of each segment without a label, as the authors' code does.

    Raises:
        ValueError: an argument out of range, a corpus without tokens, or with `rewind` fewer documents than processes.
    """

    def __init__(
        self,
        documents: TokenDocuments,
        batch_size: int,
        segment_length: int,
        *,
        shuffle_seed: int | None = None,
        rewind: bool = False,
        shard: tuple[int, int] = (0, 1),
        pad_token_id: int = 0,
        predict_across_segments: bool = True,
    ):
        if min(batch_size, segment_length) < 1 or not 0 <= shard[0] < shard[1]:
            raise ValueError(
                f"batch_size is {batch_size}, segment_length {segment_length} and shard {shard}: expected 1 or more, "
                "and (process, processes), counted from 0"
            )
        self.documents, self.shard, self.pad_token_id = documents, tuple(shard), pad_token_id
        self.batch_size, self.segment_length = batch_size, segment_length
        self.shuffle_seed, self.rewind, self.predict_across_segments = shuffle_seed, rewind, predict_across_segments
        self.not_empty = np.flatnonzero(documents.lengths)
        if len(self.not_empty) < (shard[1] if rewind else 1):
            raise ValueError(
                f"documents has {len(self.not_empty)} that are not empty, for {shard[1]} processes: each needs one of "
                "its own, so give more, or use fewer processes"
            )
        self.reset()

    @property
    def num_rows(self) -> int:
        """Rows of all processes."""
        return self.batch_size * self.shard[1]

    def reset(self) -> None:
        """Go back to the beginning of the first epoch."""
        self.rows = [Row() for _ in range(self.num_rows)]
        # the tokens of each row's document, where they are needed
        self.texts: list[np.ndarray | None] = [None] * self.num_rows
        self.epoch, self.given, self.order = 0, 0, self.document_order(0)

    def document_order(self, epoch: int) -> np.ndarray:
        """Indices of the documents of an epoch, in order."""
        if self.shuffle_seed is None:
            return self.not_empty
        return np.random.default_rng([self.shuffle_seed, epoch]).permutation(self.not_empty)

    def __iter__(self) -> Iterator[Segment]:
        while (segment := self.next_segment()) is not None:
            yield segment
        self.reset()

    def next_segment(self) -> Segment | None:
        """The next segment of this process's rows; None where none of them has tokens left."""
        starts = [self.advance(index) for index in range(self.num_rows)]
        segment = self.segment(starts)
        if (segment.document == NO_DOCUMENT).all():
            return None
        for row in self.rows:
            if row.document != NO_DOCUMENT:
                row.position += int(min(self.segment_length, self.documents.lengths[row.document] - row.position))
        return segment

    def segment(self, starts: Sequence[bool]) -> Segment:
        """The segment at the positions of this process's rows; before the first one is read, padding alone.

        Args:
            starts: whether each row, of all processes, begins a document.
        """
        own = range(self.num_rows)[self.shard[0] :: self.shard[1]]
        shape, length = (self.batch_size, self.segment_length), self.segment_length
        ids, mask = np.full(shape, self.pad_token_id), np.zeros(shape, np.int64)
        labels = np.full(shape, NO_TARGET)
        for place, index in enumerate(own):
            row = self.rows[index]
            if row.document == NO_DOCUMENT:
                continue
            if self.texts[index] is None:
                self.texts[index] = self.documents[row.document]
            # the token after the segment's last one is its label
            ahead = self.texts[index][row.position : row.position + length + 1]
            tokens = ahead[:length]
            following = ahead[1:] if self.predict_across_segments else tokens[1:]
            ids[place, : len(tokens)], mask[place, : len(tokens)] = tokens, 1
            labels[place, : len(following)] = following
        positions, documents = ([getattr(self.rows[index], name) for index in own] for name in ("position", "document"))
        columns = (ids, mask, labels, [starts[index] for index in own], positions, documents)
        return Segment(*map(torch.as_tensor, columns))

    def advance(self, index: int) -> bool:
        """Whether a row begins a document, which it takes if it has read its own."""
        row = self.rows[index]
        if row.document != NO_DOCUMENT and row.position < self.documents.lengths[row.document]:
            return False
        self.texts[index] = None
        if self.given == len(self.order) and self.rewind:
            self.epoch, self.given = self.epoch + 1, 0
            self.order = self.document_order(self.epoch)
        if self.given == len(self.order):
            self.rows[index] = Row(epoch=row.epoch)
            return False
        self.rows[index] = Row(int(self.order[self.given]), 0, self.epoch)
        self.given += 1
        return True

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the positions in a state depend on."""
        names = ("batch_size", "segment_length", "shuffle_seed", "rewind", "predict_across_segments")
        return {
            **{name: getattr(self, name) for name in names},
            "processes": self.shard[1],
            "documents": len(self.documents),
            "tokens": self.documents.num_tokens,
            "fingerprint of the corpus": self.documents.fingerprint,
        }

    def state_dict(self) -> dict[str, Any]:
        """The positions of the rows of all processes and the settings they depend on, as numbers and strings."""
        rows = [asdict(row) for row in self.rows]
        return {"settings": self.settings, "epoch": self.epoch, "given": self.given, "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the positions of `state`, in the middle of documents.

        Raises:
            ValueError: the state is of another segment length, number of rows or corpus.
        """
        saved = state["settings"]
        # rows may be dealt out to another number of processes
        alike = saved["batch_size"] * saved["processes"] == self.num_rows
        different = [
            f"{name} was {saved.get(name)!r} and is {value!r}"
            for name, value in self.settings.items()
            if saved.get(name) != value and not (alike and name in ("batch_size", "processes"))
        ]
        if different:
            raise ValueError(
                f"the reader's state does not fit: {'; '.join(different)}. Resume with the settings of the saved state"
            )
        self.reset()
        self.rows = [Row(**row) for row in state["rows"]]
        self.epoch, self.given, self.order = state["epoch"], state["given"], self.document_order(state["epoch"])
