"""Batches of training: their samplers, and the weights of batches that are of different size.

Examples are drawn with replacement or batched by length, as the Neural Data Router was trained, drawn so that all
lengths are alike often, the short ones first or not, or batched up to so many tokens, as fairseq does. The
examples of an epoch follow from seed and epoch alone, so that a resumed run goes on with the batches it would have had.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch.utils.data import Sampler

from ..models.ops.losses import NO_TARGET


class EpochSampler(Sampler):
    """Indices of examples, one epoch after another, in whole batches and at least one.

    - with_replacement: independent uniform draws, as many as there are examples.
    - balanced_lengths: the same, but every length is drawn equally often, however few examples have it.
    - short_first: the same, but at first of the shortest lengths only; once all of them are drawn, as by_length.
    - by_length: a random permutation, sorted by length, cut into batches, and these shuffled.

    Args:
        sampling: `batch_sampling` of `RecurrentTrainingArguments`.
        lengths: tokens of each example (N,).
        batch_size: examples of an optimiser step, over all processes and accumulated batches.
        steps: optimiser steps until short_first draws all lengths; 0: those of the first epoch.
        share: share of the lengths that short_first draws from the first step on.
        power: exponent with which the others grow with these steps.
    """

    def __init__(
        self,
        sampling: str,
        lengths: np.ndarray,
        batch_size: int,
        seed: int,
        steps: int = 0,
        share: float = 0.0,
        power: float = 1.0,
    ):
        self.sampling, self.lengths, self.seed, self.epoch = sampling, lengths, seed, 0
        self.batch_size = min(batch_size, len(lengths)) if sampling == "by_length" else batch_size
        self.batches = max(len(lengths) // self.batch_size, 1)
        self.steps, self.share, self.power = steps or self.batches, share, power

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches * self.batch_size

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices(np.random.default_rng([self.seed, self.epoch])).tolist())

    def indices(self, rng: np.random.Generator) -> np.ndarray:
        lengths, first = self.lengths, self.epoch * self.batches
        if self.sampling == "with_replacement":
            return rng.integers(len(lengths), size=len(self))
        grows = self.sampling == "short_first" and (first < self.steps or len(lengths) < self.batch_size)
        if self.sampling != "balanced_lengths" and not grows:
            chosen = rng.permutation(len(lengths))[: len(self)]
            batches = chosen[np.argsort(lengths[chosen], kind="stable")].reshape(-1, self.batch_size)
            return batches[rng.permutation(len(batches))].reshape(-1)
        order = np.argsort(lengths, kind="stable")
        _, starts, counts = np.unique(lengths[order], return_index=True, return_counts=True)
        if grows:
            grown = np.minimum((np.arange(self.batches) + first + 1) / self.steps, 1) ** self.power
            shortest = np.ceil(len(counts) * (self.share + (1 - self.share) * grown)).astype(int)
            drawn = rng.integers(np.repeat(shortest, self.batch_size))
        else:
            drawn = rng.integers(len(counts), size=len(self))
        return order[starts[drawn] + rng.integers(counts[drawn])]


class TokenBatchSampler(Sampler):
    """Batches of indices of examples, one epoch after another, those of one process.

    All examples are sorted by length, in random order where these are equal, and cut into batches, which are shuffled
    and dealt to the processes in turn. If these cannot have equally many, the deal begins again. A batch of n examples
    has n times the tokens of the longest one, padding counted.

    Args:
        lengths: (N,) tokens that each example costs; of sources and targets, those of the longer one.
        max_tokens: maximum tokens of a batch.

    Raises:
        ValueError: an example alone is longer.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        max_tokens: int,
        seed: int,
        process: int = 0,
        num_processes: int = 1,
    ):
        super().__init__()
        self.lengths, self.seed, self.epoch = lengths, seed, 0
        self.process, self.num_processes = process, num_processes
        if lengths.max() > max_tokens:
            raise ValueError(
                f"batch_tokens is {max_tokens}, but an example has {lengths.max()} tokens: raise it, or drop long ones "
                "by max_length"
            )
        # the same in each epoch, as only examples of equal length change places
        self.starts = [0]
        for place, length in enumerate(np.sort(lengths)):
            if (place - self.starts[-1] + 1) * length > max_tokens:
                self.starts.append(place)

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
        cut = np.split(order, self.starts[1:])
        dealt = [cut[place].tolist() for place in rng.permutation(len(cut))]
        return dealt + [dealt[place % len(dealt)] for place in range(-len(dealt) % self.num_processes)]

    def __len__(self) -> int:
        return -(-len(self.starts) // self.num_processes)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches()[self.process :: self.num_processes])


def amounts_of(batch: Mapping[str, torch.Tensor], *, shifted: bool = True) -> torch.Tensor:
    """Examples of a batch, and the labels that its loss is the mean over: (2,) integers.

    Labels (B,) are one an example.

    Args:
        shifted: of labels (B, S), one a token, those alone count that have a token before them, as in the loss of a
            causal language model.
    """
    labels = batch["labels"] if "labels" in batch else batch["start_positions"]
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
