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
from ...benchmarks.special_tokens import token_ids

PIXELS, BYTES_OF_TEXT = "pixels", "bytes"


class NotDrawableError(ValueError):
    """There is no picture of this example or model; the message has the reason."""


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

    def shaped(self, values: np.ndarray) -> np.ndarray:
        """(..., n) values of pixels, row by row, as (..., side, side)."""
        side = math.isqrt(values.shape[-1])
        return values.reshape(*values.shape[:-1], side, side)


def symbol_values(tokenizer: Any) -> tuple[str | None, dict[int, int]]:
    """Kind of a tokenizer's symbols, and the value of each token id that is one.

    "pixels" if all symbols are numbers, "bytes" if they are the 256 bytes, None for others.
    """
    vocabulary = tokenizer.get_vocab()
    if vocabulary == (of_bytes := token_ids(BYTES)):
        return BYTES_OF_TEXT, {of_bytes[symbol]: value for value, symbol in enumerate(BYTES)}
    symbols = set(vocabulary) - set(tokenizer.all_special_tokens)
    if symbols and all(symbol.isascii() and symbol.isdigit() for symbol in symbols):
        return PIXELS, {vocabulary[symbol]: int(symbol) for symbol in symbols}
    return None, {}


def symbol_kind(tokenizer: Any) -> str | None:
    """Kind of a tokenizer's symbols: "pixels", "bytes", or None."""
    return symbol_values(tokenizer)[0]


def canvas_of(tokenizer: Any, inputs: Mapping[str, torch.Tensor]) -> Canvas:
    """The pixels or bytes of an example (1, S) without padding.

    Raises:
        NotDrawableError: the tokens are neither pixels nor bytes, a text has none, or its pixels make no square.
    """
    kind, of_token = symbol_values(tokenizer)
    if kind is None:
        raise NotDrawableError(
            f"tokenizer has {len(tokenizer)} tokens that are neither numbers, the values of pixels, nor the 256 bytes: "
            "there is no picture of other texts"
        )
    ids = inputs["input_ids"][0].tolist()
    values = np.array([of_token.get(token, -1) for token in ids])
    texts = inputs["token_type_ids"][0].cpu().numpy() if "token_type_ids" in inputs else np.zeros(len(ids), dtype=int)
    columns = [np.flatnonzero((values >= 0) & (texts == text)) for text in range(texts.max() + 1)]
    for number, own in enumerate(columns, 1):
        if not len(own):
            raise NotDrawableError(f"text {number} of the row has no {kind}: nothing to draw")
        side = max(math.isqrt(len(own)), 2)
        if kind == PIXELS and side * side != len(own):
            raise NotDrawableError(
                f"text has {len(own)} pixels, which make no square: pass {side} x {side} = {side**2} or "
                f"{side + 1} x {side + 1} = {(side + 1) ** 2} of them"
            )
    return Canvas(kind, columns, [values[own] for own in columns], max(of_token.values()))
