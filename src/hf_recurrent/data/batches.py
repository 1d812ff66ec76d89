"""Encoded examples: their lengths, and padded batches.

Transformers' collators give the same batches, but look at each number in Python.
Shapes: N examples, B examples of a batch, S tokens of the longest one.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..models.ops.losses import NO_TARGET

if TYPE_CHECKING:
    from datasets import Dataset

# examples whose lengths are computed together
PIECE = 10_000
# tokenizers that know no limit have a number of this size or more
NO_LIMIT = 10**9


def token_counts(examples: "Dataset", column: str = "input_ids") -> np.ndarray:
    """Tokens of each example (N,); of several choices, as many of each as of the longest, which a model computes."""
    if not hasattr(examples, "with_format"):
        return np.array([len(example[column]) for example in examples])
    import pyarrow.compute as pc

    # the lists themselves would be millions of Python integers
    pieces = examples.select_columns([column]).with_format("arrow").iter(PIECE)
    found = []
    for piece in pieces:
        lists = piece[column]
        counts = pc.list_value_length(lists).to_numpy()
        if hasattr(lists.type.value_type, "value_type"):
            of_choices = pc.list_value_length(pc.list_flatten(lists)).to_numpy()
            counts = counts * np.maximum.reduceat(of_choices, counts.cumsum() - counts)
        found.append(counts)
    return np.concatenate([np.zeros(0, int), *found])


def siamese_token_counts(examples: "Dataset") -> np.ndarray:
    """Tokens that a model computes of each example if it encodes sentences apart (N,): twice those of the longer one.

    A batch of n examples costs n times the largest of these: its sentences are padded to the longest one.
    """
    pieces = examples.select_columns(["token_type_ids"]).with_format("numpy").iter(PIECE)
    second = np.array([types.sum() for piece in pieces for types in piece["token_type_ids"]], int)
    return 2 * np.maximum(second, token_counts(examples) - second)


def within(tokenizer: Any, limit: int | None, *texts: list[str], **more: Any) -> tuple[dict, list[int]]:
    """Texts as the tokenizer encodes them, cut to `limit` tokens, and their lengths in tokens before that."""
    encoded = dict(tokenizer(*texts, **more, verbose=False))
    lengths = [len(ids) for ids in encoded["input_ids"]]
    if limit is not None and max(lengths) > limit:
        encoded = dict(tokenizer(*texts, **more, truncation=True, max_length=limit))
    return encoded, lengths


class PaddingCollator:
    """Batches of examples, padded on the tokenizer's side to the longest, with a mask of tokens.

    Args:
        tokenizer: of the examples.
        lists_of_labels: whether labels are one a token, which are padded with -100, instead of one value or set of
            values (C,) an example.
        pad_token_id: the token of padding; None: that of the tokenizer.

    Raises:
        ValueError: the tokenizer has no padding token.
    """

    def __init__(self, tokenizer: Any, lists_of_labels: bool = False, pad_token_id: int | None = None):
        pad_token_id = tokenizer.pad_token_id if pad_token_id is None else pad_token_id
        if pad_token_id is None:
            raise ValueError("the tokenizer has no padding token: set tokenizer.pad_token")
        self.left = tokenizer.padding_side == "left"
        self.fills = {
            "input_ids": pad_token_id,
            "attention_mask": 0,
            "token_type_ids": tokenizer.pad_token_type_id,
        }
        if lists_of_labels:
            self.fills["labels"] = NO_TARGET

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        columns = {name: [example[name] for example in examples] for name in examples[0]}
        batch = {
            name: padded(values, self.fills[name], self.left) if name in self.fills else torch.tensor(values)
            for name, values in columns.items()
        }
        if "attention_mask" not in columns:
            batch["attention_mask"] = padded([[1] * len(ids) for ids in columns["input_ids"]], 0, self.left)
        return batch


def padded(rows: Sequence[Sequence[int]], fill: int, left: bool = False) -> torch.Tensor:
    """Rows of integers as one tensor (B, S), with `fill` after each row, or before it if `left`."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    columns, longest = np.arange(lengths.max()), lengths.max()
    real = columns >= longest - lengths[:, None] if left else columns < lengths[:, None]
    values = np.full(real.shape, fill, np.int64)
    values[real] = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return torch.from_numpy(values)


class ChoiceCollator:
    """Pads the choices of all questions of a batch to one length, as tensors (B, C, S), beside `labels` (B,)."""

    def __init__(self, tokenizer: Any):
        self.pad = PaddingCollator(tokenizer)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        names = [name for name in self.pad.fills if name in examples[0]]
        num_choices = len(examples[0]["input_ids"])
        choices = [
            {name: example[name][choice] for name in names} for example in examples for choice in range(num_choices)
        ]
        batch = {name: value.unflatten(0, (-1, num_choices)) for name, value in self.pad(choices).items()}
        return batch | {"labels": torch.tensor([example["labels"] for example in examples])}


class SpanCollator(PaddingCollator):
    """Pads on the right for every tokenizer, because both ends of a span are counted from the first token."""

    ends = ("start_positions", "end_positions")

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer)
        self.left = False


class PairCollator(PaddingCollator):
    """Pads sources, and labels with -100; adds the mask of the decoder's inputs."""

    def __init__(self, tokenizer: Any):
        super().__init__(tokenizer, lists_of_labels=True)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        batch = super().__call__(examples)
        # the decoder's input at a label's place is the token before it
        return {**batch, "decoder_attention_mask": (batch["labels"] != NO_TARGET).long()}
