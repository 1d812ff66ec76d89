"""Batches of training: their samplers, and the weights of batches that are of different size.

Examples are drawn with replacement or batched by length, as the Neural Data Router was trained, drawn so that all
lengths are alike often, the short ones first or not, or batched up to so many tokens, as fairseq does. The
examples of an epoch follow from seed and epoch alone, so that a resumed run goes on with the batches it would have had.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, Sampler

from ..models.common.token_targets import NO_TARGET

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainingArguments


def drawn_with_replacement(num_examples: int, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Independent uniform indices, as many as there are examples, in whole batches and at least one."""
    return rng.integers(num_examples, size=max(num_examples // batch_size, 1) * batch_size)


def length_groups(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices sorted by length (N,); where each length's begin among them, and how many it has (L,)."""
    order = np.argsort(lengths, kind="stable")
    _, starts, counts = np.unique(lengths[order], return_index=True, return_counts=True)
    return order, starts, counts


def balanced_lengths(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """As `drawn_with_replacement`, but every length is drawn equally often, however few examples have it."""
    order, starts, counts = length_groups(lengths)
    drawn = rng.integers(len(counts), size=max(len(lengths) // batch_size, 1) * batch_size)
    return order[starts[drawn] + rng.integers(counts[drawn])]


def bucketed_by_length(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """A random permutation (whole batches of it), sorted by length, cut into batches, and these shuffled."""
    batch_size = min(batch_size, len(lengths))
    whole = len(lengths) // batch_size * batch_size
    chosen = rng.permutation(len(lengths))[:whole]
    batches = chosen[np.argsort(lengths[chosen], kind="stable")].reshape(-1, batch_size)
    return batches[rng.permutation(len(batches))].reshape(-1)


def short_first(
    lengths: np.ndarray,
    batch_size: int,
    rng: np.random.Generator,
    first_batch: int,
    num_batches: int,
    share: float = 0.0,
    power: float = 1.0,
) -> np.ndarray:
    """As `balanced_lengths`, but of the shortest lengths only in early batches.

    Args:
        first_batch: batches drawn before these.
        num_batches: batches until all lengths are drawn.
        share: the share of the lengths that are drawn in the first batch.
        power: of the other lengths, the share of these batches to this power is drawn.
    """
    order, starts, counts = length_groups(lengths)
    batches = np.arange(max(len(lengths) // batch_size, 1)) + first_batch
    grown = np.minimum((batches + 1) / num_batches, 1) ** power
    shortest = np.ceil(len(counts) * (share + (1 - share) * grown)).astype(int)
    drawn = rng.integers(np.repeat(shortest, batch_size))
    return order[starts[drawn] + rng.integers(counts[drawn])]


class EpochSampler(Sampler):
    """Indices of examples, one epoch after another.

    Args:
        sampling: `batch_sampling` of `RecurrentTrainingArguments`.
        lengths: tokens of each example (N,).
        batch_size: examples of an optimiser step, over all processes and accumulated batches.
        short_first_steps: optimiser steps until "short_first" draws all lengths; 0: those of the first epoch.
        short_first_share: share of the lengths that "short_first" draws from the first step on.
        short_first_power: exponent with which the others grow with these steps.
    """

    def __init__(
        self,
        sampling: str,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        short_first_steps: int = 0,
        short_first_share: float = 0.0,
        short_first_power: float = 1.0,
    ):
        self.sampling, self.lengths, self.batch_size, self.seed = sampling, lengths, batch_size, seed
        self.short_first_steps = short_first_steps
        self.short_first_share, self.short_first_power = short_first_share, short_first_power
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def indices(self) -> np.ndarray:
        rng = np.random.default_rng([self.seed, self.epoch])
        if self.sampling == "short_first":
            batches = len(self) // self.batch_size
            first, growing = self.epoch * batches, self.short_first_steps or batches
            if first < growing or len(self.lengths) < self.batch_size:
                growth = (growing, self.short_first_share, self.short_first_power)
                return short_first(self.lengths, self.batch_size, rng, first, *growth)
            return bucketed_by_length(self.lengths, self.batch_size, rng)
        if self.sampling == "by_length":
            return bucketed_by_length(self.lengths, self.batch_size, rng)
        if self.sampling == "balanced_lengths":
            return balanced_lengths(self.lengths, self.batch_size, rng)
        return drawn_with_replacement(len(self.lengths), self.batch_size, rng)

    def __len__(self) -> int:
        num_examples = len(self.lengths)
        batch_size = min(self.batch_size, num_examples) if self.sampling == "by_length" else self.batch_size
        return max(num_examples // batch_size, 1) * batch_size

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices().tolist())


def cut_by_tokens(lengths: np.ndarray, max_tokens: int, setting: str = "max_tokens") -> list[tuple[int, int]]:
    """Where to cut examples of ascending `lengths` (N,), so that no batch has more tokens than `max_tokens`.

    A batch of n examples has n times the length of the longest one, padding counted. `setting` names the limit in
    messages.

    Raises:
        ValueError: an example alone is longer.
    """
    if len(lengths) and lengths[-1] > max_tokens:
        raise ValueError(
            f"{setting} is {max_tokens}, but an example has {lengths[-1]} tokens: raise it, or drop long ones by "
            "max_length"
        )
    cuts, start = [], 0
    for place, length in enumerate(lengths):
        if (place - start + 1) * length > max_tokens:
            cuts.append((start, place))
            start = place
    return [*cuts, (start, len(lengths))]


class TokenBatchSampler(Sampler):
    """Batches of indices of examples, one epoch after another, those of one process.

    All examples are sorted by length, in random order where these are equal, and cut into batches, which are shuffled
    and dealt to the processes in turn. If these cannot have equally many, the deal begins again. All follows from seed
    and epoch alone, so that a resumed run goes on with the batches it would have had.

    Args:
        lengths: (N,) tokens that each example costs; of sources and targets, those of the longer one.
        max_tokens: maximum tokens of a batch, padding counted.
        setting: the name of that limit in messages.

    Raises:
        ValueError: an example alone is longer.
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
        # the same in each epoch, as only examples of equal length change places
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

    def __len__(self) -> int:
        return -(-len(self.cuts) // self.num_processes)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches()[self.process :: self.num_processes])


def token_loader(
    examples: "Dataset", batches: TokenBatchSampler, collate: Callable[[list[dict]], Any], args: "TrainingArguments"
) -> DataLoader:
    """The batches of this process, padded and on its device."""
    loader = DataLoader(
        examples,
        batch_sampler=batches,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        prefetch_factor=args.dataloader_prefetch_factor,
        pin_memory=args.dataloader_pin_memory,
        persistent_workers=args.dataloader_persistent_workers,
    )
    # each process has batches of its own already: accelerate shares out batches of equal size only
    return prepare_data_loader(loader, args.device, num_processes=1, process_index=0, put_on_device=True)


def targets_of(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The labels of a batch or, of spans, their first tokens (B,)."""
    return batch["labels"] if "labels" in batch else batch["start_positions"]


def amounts_of(batch: Mapping[str, torch.Tensor], *, shifted: bool = True) -> torch.Tensor:
    """Examples of a batch, and the labels that its loss is the mean over: (2,) integers.

    Labels (B,) are one an example.

    Args:
        shifted: of labels (B, S), one a token, those alone count that have a token before them, as in the loss of a
            causal language model.
    """
    labels = targets_of(batch)
    examples = torch.tensor(labels.shape[0], device=labels.device)
    if labels.dim() == 1:
        return torch.stack([examples, examples])
    if not shifted:
        return torch.stack([examples, (labels != NO_TARGET).sum()])
    predicted = labels[:, 1:] != NO_TARGET
    if batch.get("attention_mask") is not None:
        tokens = batch["attention_mask"].bool()
        predicted = predicted & tokens[:, 1:] & tokens[:, :-1]
    return torch.stack([examples, predicted.sum()])


def weighted_loss(loss: torch.Tensor, aux_loss: torch.Tensor | None, fractions: torch.Tensor) -> torch.Tensor:
    """A batch's part of the loss of a whole optimiser step.

    Args:
        loss: of the batch, `aux_loss` included, of which the rest is a mean over its labels.
        aux_loss: a mean over its examples; None if there is none.
        fractions: (2,) `amounts_of` the batch as fractions of those of the step.
    """
    by_examples, by_labels = fractions
    if aux_loss is None:
        return loss * by_labels
    return (loss - aux_loss) * by_labels + aux_loss * by_examples
