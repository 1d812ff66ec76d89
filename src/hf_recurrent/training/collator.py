"""Padded batches of encoded examples. Transformers' collators give the same, but look at each number in Python.

Shapes: B examples of a batch, S tokens of the longest one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..analysis.text_batches import joined
from .metrics import IGNORED


class PaddingCollator:
    """Batches of examples, padded on the tokenizer's side to the longest, with a mask of tokens.

    Args:
        tokenizer: of the examples, with a padding token.
        lists_of_labels: whether labels are one a token, which are padded with -100, instead of one value or set of
            values (C,) an example.

    Raises:
        ValueError: the tokenizer has no padding token.
    """

    def __init__(self, tokenizer: Any, lists_of_labels: bool = False):
        if tokenizer.pad_token_id is None:
            raise ValueError("the tokenizer has no padding token: set tokenizer.pad_token")
        self.left = tokenizer.padding_side == "left"
        self.fills = {
            "input_ids": tokenizer.pad_token_id,
            "attention_mask": 0,
            "token_type_ids": tokenizer.pad_token_type_id,
        }
        if lists_of_labels:
            self.fills["labels"] = IGNORED

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        columns = {name: [example[name] for example in examples] for name in examples[0]}
        batch = {
            name: padded(values, self.fills[name], self.left) if name in self.fills else torch.tensor(values)
            for name, values in columns.items()
        }
        if "attention_mask" not in columns:
            batch["attention_mask"] = torch.from_numpy(filled(lengths_of(columns["input_ids"]), self.left)).long()
        return batch


def lengths_of(rows: Sequence[Sequence[int]]) -> np.ndarray:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def filled(lengths: np.ndarray, left: bool) -> np.ndarray:
    """Bool (B, S), the places of rows of these lengths (B,), padded on one side."""
    columns, longest = np.arange(lengths.max()), lengths.max()
    return columns >= longest - lengths[:, None] if left else columns < lengths[:, None]


def padded(rows: Sequence[Sequence[int]], fill: int, left: bool = False) -> torch.Tensor:
    """Rows of integers as one tensor (B, S), with `fill` after each row, or before it if `left`."""
    lengths = lengths_of(rows)
    real = filled(lengths, left)
    values = np.full(real.shape, fill, np.int64)
    values[real] = joined(rows, lengths)
    return torch.from_numpy(values)
