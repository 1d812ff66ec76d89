"""Documents as blocks of tokens, for language models: joined and cut, or one document a block.

Shapes: N tokens of a block.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..benchmarks.long_documents.tokenizers import encode_document, is_byte_tokenizer
from .documents import PIECE, Document

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# texts that are encoded together
TEXTS = 1000
# a single token predicts nothing
FEWEST = 2
LENGTH, NUM_BYTES = "length", "num_bytes"


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
    for group in _groups(documents):
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


def _groups(documents: Iterable[Document]) -> Iterator[list[tuple[str, bool, bool, Mapping[str, Any]]]]:
    """Pieces to encode together, with about the characters of a piece; of each, whether no piece follows, whether the
    document ends, and the document's values."""
    group, characters = [], 0
    for document in documents:
        pieces = iter(document.pieces)
        piece = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            group.append((piece, following is None, following is None and document.ends, document.values))
            characters += len(piece)
            if len(group) == TEXTS or characters >= PIECE:
                yield group
                group, characters = [], 0
            piece = following
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
            yield _block(ids[start : start + block_size], num_bytes[start : start + block_size])
        ids, num_bytes = ids[whole:], num_bytes[whole:]
    if len(ids) >= FEWEST:
        yield _block(ids, num_bytes)


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
            yield {**_block(ids[:block_size], num_bytes[:block_size]), LENGTH: length, **piece.values}
        parts, length = [], 0


def _block(ids: np.ndarray, num_bytes: np.ndarray) -> dict[str, Any]:
    return {"input_ids": ids, NUM_BYTES: float(num_bytes.sum())}
