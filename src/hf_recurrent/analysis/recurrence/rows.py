"""A split of documents as text -> its table."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...benchmarks.long_documents.tokenizers import token_num_bytes
from ...documents import DocumentReader, encode_documents
from .evaluate import check_carries, collect
from .record import DOCUMENT
from .table import Corpus, recurrence_table

if TYPE_CHECKING:
    from datasets import Dataset

# configurations of the benchmark that hold prose, of which a perplexity by words means something
PROSE = ("pg19", "folder")
# windows or chunks of a segment that nobody asked for, and its tokens where a model has neither
BLOCKS, TOKENS = 8, 512


def evaluate_rows(
    model: Any,
    tokenizer: Any,
    rows: "Dataset",
    *,
    segment_length: int | None = None,
    batch_size: int = 8,
    carries: Iterable[str] | None = None,
    by_words: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Read a split of documents to their ends -> `recurrence_table`.

    Args:
        rows: with the columns `text`, `num_bytes` and `num_words`, one document a row.
        segment_length: tokens a segment; None: `default_segment_length`.
        batch_size: documents that are read at a time.
        carries: as for `collect`; the document is carried in any case.
        by_words: whether to give a perplexity by words.

    Raises:
        ValueError: a model or tokenizer that cannot read the documents, or nothing to predict.
    """
    carries = None if carries is None else tuple(dict.fromkeys((DOCUMENT, *carries)))
    check_carries(model, carries or (DOCUMENT,))
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, but the model {model.config.vocab_size}: take the one that it "
            "was trained with"
        )
    documents = encode_documents(rows, tokenizer)
    reader = DocumentReader(
        documents,
        min(batch_size, len(documents)),
        default_segment_length(model.config) if segment_length is None else segment_length,
        pad_token_id=model.config.pad_token_id or 0,
    )
    record = collect(model, reader, carries, progress=progress)
    words = np.array(rows["num_words"][:]) if by_words else None
    sizes = Corpus(np.array(rows["num_bytes"][:]), documents.lengths, words, bytes_of_tokens(tokenizer))
    return recurrence_table(record, sizes)


def bytes_of_tokens(tokenizer: Any) -> np.ndarray | None:
    """(V,) bytes of each token id; None where they depend on the text around it."""
    try:
        return token_num_bytes(tokenizer)
    except ValueError:
        return None


def default_segment_length(config: Any) -> int:
    """Some blocks of the model, whatever they are called; the paper's segments have 8 windows."""
    block = getattr(config, "window_size", None) or getattr(config, "chunk_size", None)
    return TOKENS if block is None else BLOCKS * block
