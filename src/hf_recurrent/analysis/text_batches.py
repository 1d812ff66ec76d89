"""Texts as batches of token ids: encoded together, sorted by length, padded to the longest of a batch.

Shapes: N texts, T tokens of all of them, B texts of a batch, S tokens of the longest one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

# tokenizers that know no limit have a number of this size or more
NO_LIMIT = 10**9


class EncodedTexts(NamedTuple):
    """Token ids (T,) of all texts one after another, their `types` (T,) or None, and `lengths` (N,).

    `cut` texts were longer than the encoder's limit. `offsets` (T, 2), if they were asked for, are the characters of
    each token in its text.
    """

    ids: np.ndarray
    types: np.ndarray | None
    lengths: np.ndarray
    cut: int
    offsets: np.ndarray | None = None

    def parts(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of all tokens (T, ...) as those of each text."""
        return np.split(values, self.lengths.cumsum()[:-1]) if len(self.lengths) else []


class TextEncoder:
    """Token ids of texts or pairs by a tokenizer, many at a time and without padding.

    Args:
        tokenizer: the tokenizer of a checkpoint.
        max_seq_length: tokens that are kept of a text or pair; None: as many as the tokenizer's `model_max_length`.
        offsets: whether encoded texts have them.

    Raises:
        ValueError: a tokenizer that does not know offsets.
    """

    def __init__(self, tokenizer: Any, max_seq_length: int | None = None, offsets: bool = False):
        self.tokenizer, self.offsets = tokenizer, offsets
        if offsets and not tokenizer.is_fast:
            raise ValueError(
                f"the tokenizer, a {type(tokenizer).__name__}, does not tell which characters a token is of: save the "
                "checkpoint with a fast one"
            )
        if max_seq_length is None and tokenizer.model_max_length < NO_LIMIT:
            max_seq_length = tokenizer.model_max_length
        self.max_seq_length = max_seq_length

    def __call__(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> EncodedTexts:
        """Encode N texts, or pairs with `seconds`; pairs have types."""
        encoded = self._encode(texts, seconds)
        ids = encoded["input_ids"]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        too_long = np.flatnonzero(lengths > self.max_seq_length) if self.max_seq_length is not None else []
        if len(too_long):
            chosen = ([side[index] for index in too_long] for side in (texts, seconds) if side is not None)
            shorter = self._encode_cut(*chosen)
            for name, lists in encoded.items():
                for index, place in enumerate(too_long):
                    lists[place] = shorter[name][index]
            lengths[too_long] = [len(ids[place]) for place in too_long]
            if lengths.max() > self.max_seq_length:
                raise self._too_short(f"the tokenizer adds {lengths.max()} tokens of its own")
        types, offsets = encoded.get("token_type_ids"), encoded.get("offset_mapping")
        return EncodedTexts(
            joined(ids, lengths),
            None if types is None else joined(types, lengths),
            lengths,
            len(too_long),
            None if offsets is None else joined(map(chain.from_iterable, offsets), 2 * lengths).reshape(-1, 2),
        )

    def _encode(self, texts: Sequence[str], seconds: Sequence[str] | None) -> dict[str, list]:
        """Lists of each text, by the names of a tokenizer's output."""
        if not self.tokenizer.is_fast:
            pairs = () if seconds is None else (list(seconds),)
            encoded = self.tokenizer(list(texts), *pairs, return_token_type_ids=seconds is not None, verbose=False)
            return {name: encoded[name] for name in ("input_ids", "token_type_ids") if name in encoded}
        # transformers makes five Python lists of each encoding, which takes longer than encoding it
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        encode = backend.encode_batch if self.offsets else backend.encode_batch_fast
        encodings = encode(texts if seconds is None else list(zip(texts, seconds, strict=True)))
        found = {"input_ids": [encoding.ids for encoding in encodings]}
        if seconds is not None:
            found["token_type_ids"] = [encoding.type_ids for encoding in encodings]
        if self.offsets:
            found["offset_mapping"] = [encoding.offsets for encoding in encodings]
        return found

    def _encode_cut(self, *sides: list[str]) -> Any:
        options = {"return_token_type_ids": len(sides) == 2, "return_offsets_mapping": self.offsets}
        try:
            return self.tokenizer(*sides, truncation=True, max_length=self.max_seq_length, **options)
        # the tokenizers library raises an exception of no class
        except Exception as error:
            raise self._too_short(error) from error

    def _too_short(self, reason: Any) -> ValueError:
        return ValueError(f"max_seq_length is {self.max_seq_length}: no text can be cut to so few tokens ({reason})")


def joined(lists: Iterable[Iterable[int]], lengths: np.ndarray) -> np.ndarray:
    """The numbers of all lists (T,), one after another."""
    return np.fromiter(chain.from_iterable(lists), np.int64, int(lengths.sum()))


def batches_by_length(lengths: np.ndarray, batch_size: int, batch_tokens: int | None = None) -> Iterator[np.ndarray]:
    """Indices (B,) of the texts of each batch, the longest first; texts without tokens are in none.

    Args:
        lengths: tokens of each text (N,).
        batch_size: the most texts in a batch.
        batch_tokens: the most tokens in a batch, padding included; a text that is longer is alone. None: any number.
    """
    order, start = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)], 0
    while start < len(order):
        size = batch_size
        if batch_tokens is not None:
            size = min(size, max(1, batch_tokens // int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def padded_batches(
    texts: EncodedTexts, batch_size: int, batch_tokens: int | None, pad_token_id: int, left: bool = False
) -> Iterator[tuple[np.ndarray, dict[str, torch.Tensor]]]:
    """Indices (B,) and model inputs (B, S) of each batch of `batches_by_length`, padded on the right or left."""
    starts = np.cumsum(texts.lengths) - texts.lengths
    for rows in batches_by_length(texts.lengths, batch_size, batch_tokens):
        lengths = texts.lengths[rows, None]
        place = np.arange(lengths.max()) - (lengths.max() - lengths if left else 0)
        real = (place >= 0) & (place < lengths)
        source = np.where(real, starts[rows, None] + place, 0)
        inputs = {"input_ids": np.where(real, texts.ids[source], pad_token_id), "attention_mask": real.astype(np.int64)}
        if texts.types is not None:
            inputs["token_type_ids"] = np.where(real, texts.types[source], 0)
        yield rows, {name: torch.from_numpy(values) for name, values in inputs.items()}
