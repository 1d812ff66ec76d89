"""Batches: rows drawn with replacement or of like length, as the Neural Data Router was trained, or all lengths alike.

In each case batches are full, and the rows of an epoch follow from seed and epoch alone, so that a resumed run goes on
with the batches it would have had.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Sampler

if TYPE_CHECKING:
    from datasets import Dataset

SAMPLINGS = ("with_replacement", "by_length", "balanced_lengths")


def row_lengths(rows: "Dataset", column: str = "input_ids") -> np.ndarray:
    """Tokens of each row (N,)."""
    if not hasattr(rows, "with_format"):
        return np.array([len(row[column]) for row in rows])
    import pyarrow.compute as pc

    # the lists themselves would be millions of Python integers
    return pc.list_value_length(rows.with_format("arrow")[:][column]).to_numpy()


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
