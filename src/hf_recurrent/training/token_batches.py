"""Batches of rows of like length that hold at most so many tokens, as fairseq makes them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, Sampler

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainingArguments


def cut_by_tokens(lengths: np.ndarray, max_tokens: int, setting: str = "max_tokens") -> list[tuple[int, int]]:
    """Where to cut rows of ascending `lengths` (N,), so that no batch has more tokens than `max_tokens`.

    A batch of n rows has n times the length of its longest row, padding counted. `setting` is what users call the
    limit.

    Raises:
        ValueError: a row alone is longer.
    """
    if len(lengths) and lengths[-1] > max_tokens:
        raise ValueError(
            f"{setting} is {max_tokens}, but a row has {lengths[-1]} tokens: raise it, or drop long rows by max_length"
        )
    cuts, start = [], 0
    for place, length in enumerate(lengths):
        if (place - start + 1) * length > max_tokens:
            cuts.append((start, place))
            start = place
    return [*cuts, (start, len(lengths))]


class TokenBatchSampler(Sampler):
    """Batches of row indices of one epoch after another, those of one process.

    All rows are sorted by length, in random order where these are equal, and cut into batches, which are shuffled and
    dealt to the processes in turn. What is left when these cannot have equally many begins the deal again. All follows
    from seed and epoch alone, so that a resumed run goes on with the batches it would have had.

    Args:
        lengths: (N,) tokens that each row costs; of sources and targets, those of the longer one.
        max_tokens: most tokens of a batch, padding counted.
        setting: what users call that limit.

    Raises:
        ValueError: a row alone is longer.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        max_tokens: int,
        seed: int,
        *,
        process: int = 0,
        num_processes: int = 1,
        setting: str = "max_tokens",
    ):
        super().__init__()
        self.lengths, self.seed, self.process, self.num_processes = lengths, seed, process, num_processes
        # the same in each epoch, as only rows of equal length change places
        self.cuts = cut_by_tokens(np.sort(lengths), max_tokens, setting)
        self.epoch = 0

    @property
    def sampler(self) -> "TokenBatchSampler":
        """Where accelerate looks for `set_epoch` once it skips batches of a resumed epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def batches(self) -> list[list[int]]:
        """The epoch's batches, of all processes."""
        rng = np.random.default_rng([self.seed, self.epoch])
        shuffled = rng.permutation(len(self.lengths))
        order = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        batches = [order[start:end].tolist() for start, end in self.cuts]
        dealt = [batches[place] for place in rng.permutation(len(batches))]
        short = -len(dealt) % self.num_processes
        return dealt + [dealt[place % len(dealt)] for place in range(short)]

    @property
    def mean_rows(self) -> float:
        """Rows of a batch on average."""
        return len(self.lengths) / max(len(self.cuts), 1)

    def __len__(self) -> int:
        return -(-len(self.cuts) // self.num_processes)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches()[self.process :: self.num_processes])


def token_loader(
    rows: "Dataset", batches: TokenBatchSampler, collate: Callable[[list[dict]], Any], args: "TrainingArguments"
) -> DataLoader:
    """The batches of this process, padded and on its device."""
    loader = DataLoader(
        rows,
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        prefetch_factor=args.dataloader_prefetch_factor,
        pin_memory=args.dataloader_pin_memory,
        persistent_workers=args.dataloader_persistent_workers,
    )
    # each process has batches of its own already: accelerate shares out batches of equally many rows only
    return prepare_data_loader(loader, args.device, num_processes=1, process_index=0, put_on_device=True)
