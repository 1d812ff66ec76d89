"""Seeds, shards, and the thinning that gives small data sets the distribution of the authors' large ones."""

import hashlib
import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, TypeVar

# part of every seed and cache key: raise it when a change alters the generated examples
GENERATOR_VERSION = "1.0.0"

EXAMPLES_PER_SHARD = 1000

T = TypeVar("T")


def digest(*parts: object) -> str:
    """A hash of plain values that is the same in every process and on every machine."""
    return hashlib.sha256(json.dumps([GENERATOR_VERSION, *parts], sort_keys=True).encode()).hexdigest()


def make_rng(*parts: object) -> Random:
    """A generator seeded by everything that identifies its use: benchmark, parameters, seed, split, example.

    Only `random()` of the result is used in this package: Python keeps that sequence stable across versions.
    """
    return Random(int(digest(*parts)[:32], 16))


def shuffled(items: Sequence[T], rng: Random) -> list[T]:
    keys = [rng.random() for _ in items]
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


def keep_probability(expected_draws: float, fraction: float) -> float:
    """The probability of keeping a drawn item so that the kept ones are a `fraction` of the authors' pool.

    Both ListOps and the logic data were made by drawing items M times and keeping the distinct ones, so an
    item of probability p is in the pool with probability 1 - exp(-x), x = M p: frequent (short) items are
    rarer in the data than in free sampling. Drawing only `fraction` * M times without care would bring the
    frequent ones back. Keeping each draw with the probability below makes the inclusion probability exactly
    `fraction` * (1 - exp(-x)), as if the whole pool had been drawn and a part of it picked at random:

        1 - exp(-fraction x keep) = fraction (1 - exp(-x))
    """
    if fraction >= 1.0 or expected_draws < 1e-9:
        return 1.0
    return -math.log1p(fraction * math.expm1(-expected_draws)) / (fraction * expected_draws)


class Choice:
    """A random choice between outcomes with given weights."""

    def __init__(self, outcomes: Sequence[Any], weights: Sequence[float]):
        kept = [i for i, weight in enumerate(weights) if weight > 0.0]
        self.outcomes = [outcomes[i] for i in kept]
        self.cumulative = array("d", accumulate(weights[i] for i in kept))

    def draw(self, place: float) -> Any:
        """The outcome at `place`, uniform in [0, 1)."""
        # only rounding gets past the last one
        last = len(self.outcomes) - 1
        return self.outcomes[min(bisect_right(self.cumulative, place * self.cumulative[-1]), last)]


class Shard(NamedTuple):
    """A run of examples that one process makes: those of `make(*arguments)`; `paths` are the files it reads."""

    make: Callable[..., Iterable[dict[str, Any]]]
    arguments: tuple
    paths: tuple[str, ...] = ()

    def examples(self) -> Iterable[dict[str, Any]]:
        return self.make(*self.arguments)


def parts(items: Sequence[T]) -> list[Sequence[T]]:
    """Cuts `items` into the runs of shards by their number alone, never by the number of processes."""
    # at least 16 shards where there are as many examples: small sets can be made by several processes too
    size = max(1, min(EXAMPLES_PER_SHARD, math.ceil(len(items) / 16)))
    return [items[start : start + size] for start in range(0, len(items), size)]


def make_shards(make: Callable[..., Iterable[dict[str, Any]]], items: Sequence[Any], *arguments: Any) -> list[Shard]:
    """The shards of one split; each makes the examples `make(part of items, *arguments)`."""
    return [Shard(make, (part, *arguments)) for part in parts(items)]


def non_empty(sizes: Mapping[str, int | None]) -> dict[str, int | None]:
    """The splits that have examples, with their sizes; None is a size too.

    Raises ValueError where no split has any.
    """
    found = {split: size for split, size in sizes.items() if size != 0}
    if not found:
        raise ValueError("every split has 0 examples; give num_train, num_validation or num_test a positive value")
    return found


def in_order(splits: Iterable[str]) -> list[str]:
    """The names of splits, each once, those of train and validation before those of test."""
    return sorted(dict.fromkeys(splits), key=lambda split: ("train", "validation", "test").index(split.split("_")[0]))
