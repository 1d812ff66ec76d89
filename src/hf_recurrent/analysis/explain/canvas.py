"""The pixels of a square picture, or the bytes of a text, among the tokens of an example.

Shapes: S tokens of an example, n tokens of one of its texts, a square of `side` x `side` pixels.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...benchmarks.byte_text import BYTES
from ...benchmarks.special_tokens import SPECIAL_TOKENS, token_ids

PIXELS, BYTES_OF_TEXT = "pixels", "bytes"


class NotDrawableError(ValueError):
    """An example, or a model, of which there is no such picture; the message has the reason."""


@dataclass(frozen=True)
class Canvas:
    """Places of the pixels or bytes of one example, which has one text, or the two of a pair.

    Attributes:
        kind: "pixels" or "bytes".
        columns: of each text, the places of its n tokens in the sequence; special tokens are of no text.
        values: of each text, (n,) its pixels or bytes.
        brightest: the largest value that a pixel can have; 255 for bytes.
    """

    kind: str
    columns: list[np.ndarray]
    values: list[np.ndarray]
    brightest: int

    @property
    def sides(self) -> list[int]:
        """Pixels along an edge of each picture."""
        return [math.isqrt(len(own)) for own in self.columns]

    def select(self, values: np.ndarray, text: int) -> np.ndarray:
        """Values (..., S) of tokens -> those of one text: (..., side, side) of pixels, (..., n) of bytes."""
        return self.shaped(values[..., self.columns[text]], text)

    def shaped(self, values: np.ndarray, text: int) -> np.ndarray:
        """(..., n) as (..., side, side), row by row, if they are of pixels."""
        if self.kind == BYTES_OF_TEXT:
            return values
        return values.reshape(*values.shape[:-1], self.sides[text], self.sides[text])


def canvas_of(tokenizer: Any, inputs: Mapping[str, torch.Tensor]) -> Canvas:
    """The pixels or bytes of an example (1, S) without padding.

    Raises:
        NotDrawableError: the tokens are neither pixels nor bytes, a text has none, or its pixels make no square.
    """
    ids = inputs["input_ids"][0].cpu().numpy()
    kind = symbol_kind(tokenizer)
    if kind is None:
        raise NotDrawableError(
            f"tokenizer has {len(tokenizer)} tokens that are neither numbers, the values of pixels, nor the 256 bytes: "
            "there is no picture of other texts"
        )
    types = inputs.get("token_type_ids")
    texts = np.zeros_like(ids) if types is None else types[0].cpu().numpy()
    values = values_of(tokenizer, kind)
    known = values[ids] >= 0
    columns = [np.flatnonzero(known & (texts == text)) for text in range(texts.max() + 1)]
    if not all(map(len, columns)):
        raise NotDrawableError(f"text {[*map(len, columns)].index(0) + 1} of the row has no {kind}: nothing to draw")
    canvas = Canvas(kind, columns, [values[ids[own]] for own in columns], int(values.max()))
    if kind == PIXELS:
        for own, side in zip(columns, canvas.sides, strict=True):
            if side * side != len(own) or side < 2:
                less = max(side, 2)
                raise NotDrawableError(
                    f"text has {len(own)} pixels, which make no square: pass {less} x {less} = {less**2} or "
                    f"{less + 1} x {less + 1} = {(less + 1) ** 2} of them"
                )
    return canvas


def symbol_kind(tokenizer: Any) -> str | None:
    """Kind of a tokenizer's symbols: "pixels" if all are numbers, "bytes" if they are the 256 bytes; None of others."""
    vocabulary = tokenizer.get_vocab()
    symbols = set(vocabulary) - set(tokenizer.all_special_tokens)
    if symbols and all(symbol.isascii() and symbol.isdigit() for symbol in symbols):
        return PIXELS
    return BYTES_OF_TEXT if vocabulary == token_ids(BYTES) else None


def values_of(tokenizer: Any, kind: str) -> np.ndarray:
    """The pixel or byte that each token id stands for, -1 for special tokens: (V,)."""
    values = np.full(len(tokenizer), -1)
    if kind == BYTES_OF_TEXT:
        first = len(SPECIAL_TOKENS)
        values[first : first + len(BYTES)] = np.arange(len(BYTES))
        return values
    special = set(tokenizer.all_special_tokens)
    for symbol, index in tokenizer.get_vocab().items():
        if symbol not in special:
            values[index] = int(symbol)
    return values
