"""Documents as token ids, one by one: a book or a repository is too long to be a sequence of a batch."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..benchmarks import encode_document

if TYPE_CHECKING:
    from datasets import Dataset

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
        for index in range(len(self)):
            tokens = self[index]
            content.update(tokens[:FINGERPRINT_TOKENS].tobytes())
            content.update(tokens[-FINGERPRINT_TOKENS:].tobytes())
        return content.hexdigest()


class _EncodedColumn:
    """The token ids of a `Dataset` as a sequence of arrays."""

    def __init__(self, dataset: "Dataset"):
        self.dataset = dataset.select_columns(["input_ids"]).with_format("numpy")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.dataset[index]["input_ids"]


def encode_documents(dataset: "Dataset", tokenizer: Any, num_proc: int | None = None) -> TokenDocuments:
    """The documents of the column `text`, as token ids of the whole text, without BOS and EOS.

    Raises:
        ValueError: there is no such column, or no text in it.
    """
    if "text" not in dataset.column_names:
        raise ValueError(f"dataset has the columns {', '.join(dataset.column_names)}: expected one named text")

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
    documents = TokenDocuments(_EncodedColumn(encoded), encoded["num_tokens"][:])
    if not documents.num_tokens:
        raise ValueError(f"dataset has {len(dataset)} documents without a single token: there is nothing to read")
    return documents
