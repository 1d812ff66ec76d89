"""Batches: rows drawn with replacement or of like length, as the Neural Data Router was trained, or all lengths alike.

In each case batches are full, and the rows of an epoch follow from seed and epoch alone, so that a resumed run goes on
with the batches it would have had.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Sampler

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

    from .arguments import RecurrentTrainingArguments

SAMPLINGS = ("with_replacement", "by_length", "balanced_lengths")
# rows that are looked at together
PIECE = 10_000


def row_lengths(rows: "Dataset", column: str = "input_ids") -> np.ndarray:
    """Tokens of each row (N,)."""
    if not hasattr(rows, "with_format"):
        return np.array([len(row[column]) for row in rows])
    import pyarrow.compute as pc

    # the lists themselves would be millions of Python integers
    pieces = rows.select_columns([column]).with_format("arrow").iter(PIECE)
    return np.concatenate([np.zeros(0, int), *(pc.list_value_length(piece[column]).to_numpy() for piece in pieces)])


def siamese_lengths(rows: "Dataset") -> np.ndarray:
    """What a model that encodes both sentences of a row apart computes of it (N,): twice the tokens of the longer one.

    So many rows as these have a batch of n times the largest: the sentences of a batch are padded to its longest one.
    """
    pieces = rows.select_columns(["token_type_ids"]).with_format("arrow").iter(PIECE)
    second = [sums_of_lists(piece["token_type_ids"]) for piece in pieces]
    second = np.concatenate([np.zeros(0, int), *second])
    return 2 * np.maximum(second, row_lengths(rows) - second)


def sums_of_lists(lists: "pa.ChunkedArray") -> np.ndarray:
    """The sum of each list of integers (N,)."""
    import pyarrow.compute as pc

    ends = np.cumsum(pc.list_value_length(lists).to_numpy())
    sums = np.concatenate([[0], np.cumsum(pc.list_flatten(lists).to_numpy(), dtype=int)])
    return np.diff(sums[np.concatenate([[0], ends])])


def drawn_with_replacement(num_rows: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Independent uniform indices, as many as there are rows, in whole batches and at least one."""
    return rng.integers(num_rows, size=max(num_rows // batch_size, 1) * batch_size)


def balanced_lengths(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """As `drawn_with_replacement`, but every length is drawn equally often, however few rows have it."""
    order = np.argsort(lengths, kind="stable")
    _, starts, counts = np.unique(lengths[order], return_index=True, return_counts=True)
    drawn = rng.integers(len(counts), size=max(len(lengths) // batch_size, 1) * batch_size)
    return order[starts[drawn] + rng.integers(counts[drawn])]


def bucketed_by_length(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation (whole batches of it), sorted by length, cut into batches, and these shuffled."""
    batch_size = min(batch_size, len(lengths))
    whole = len(lengths) // batch_size * batch_size
    chosen = rng.permutation(len(lengths))[:whole]
    batches = chosen[np.argsort(lengths[chosen], kind="stable")].reshape(-1, batch_size)
    return batches[rng.permutation(len(batches))].reshape(-1)


def require_one_choice_of_rows(args: "RecurrentTrainingArguments") -> None:
    """Raise a ValueError if `batch_tokens` is no limit, or more than one setting chooses the rows of a batch."""
    limit = args.batch_tokens
    if limit is not None and limit < 1:
        raise ValueError(f"batch_tokens is {limit}: expected at least 1, or nothing")
    strategy = args.train_sampling_strategy
    choices = {
        "batch_tokens": limit,
        "batch_sampling": args.batch_sampling,
        "train_sampling_strategy": None if strategy == "random" else strategy,
    }
    if limit is not None:
        choices["per_device_train_batch_size"] = args.per_device_train_batch_size
        choices["auto_find_batch_size"] = args.auto_find_batch_size or None
    made = [f"{name} {value!r}" for name, value in choices.items() if value is not None]
    if len(made) > 1:
        first, second = made[0].replace(" ", " is ", 1), made[1]
        raise ValueError(f"{first} and {second}: both choose the rows of a batch, set one of them")


class EpochSampler(Sampler):
    """Row indices of one epoch after another.

    Args:
        sampling: one of `SAMPLINGS`.
        lengths: tokens of each row (N,).
        batch_size: rows of an optimiser step, over all processes and accumulated batches.
    """

    def __init__(self, sampling: str, lengths: np.ndarray, batch_size: int, seed: int):
        self.sampling, self.lengths, self.batch_size, self.seed = sampling, lengths, batch_size, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def indices(self) -> np.ndarray:
        rng = np.random.default_rng([self.seed, self.epoch])
        if self.sampling == "by_length":
            return bucketed_by_length(self.lengths, self.batch_size, rng)
        if self.sampling == "balanced_lengths":
            return balanced_lengths(self.lengths, self.batch_size, rng)
        return drawn_with_replacement(len(self.lengths), self.batch_size, rng)

    def __len__(self) -> int:
        num_rows = len(self.lengths)
        batch_size = min(self.batch_size, num_rows) if self.sampling == "by_length" else self.batch_size
        return max(num_rows // batch_size, 1) * batch_size

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())
