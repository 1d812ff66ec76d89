"""Seeds, shards, and the thinning that gives small data sets the distribution of the authors' large ones."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

# part of every seed and cache key: raise it when a change alters the generated rows
GENERATOR_VERSION = "1.0.0"

ROWS_PER_SHARD = 1000

T = TypeVar("T")


def digest(*parts: object) -> str:
    """A hash of plain values that is the same in every process and on every machine."""
    return hashlib.sha256(json.dumps([GENERATOR_VERSION, *parts], sort_keys=True).encode()).hexdigest()


def make_rng(*parts: object) -> Random:
    """A generator seeded by everything that identifies its use: family, parameters, seed, split, row.

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


@dataclass(frozen=True)
class Shard:
    """A run of rows that is made by one process; `number` is its place in the split."""

    number: int
    source: str
    payload: Any


def make_shards(source: str, items: Sequence[Any]) -> list[Shard]:
    """Cuts `items` into shards by their number alone, never by the number of processes."""
    # at least 16 shards where there are as many rows: small sets can be made by several processes too
    size = max(1, min(ROWS_PER_SHARD, math.ceil(len(items) / 16)))
    starts = range(0, len(items), size)
    return [Shard(number, source, items[start : start + size]) for number, start in enumerate(starts)]


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits of a config that have rows."""
    names = [split for split in ("train", "validation", "test") if params[f"num_{split}"]]
    if not names:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    return names


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their 1-based numbers."""
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, start=1):
                yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected UTF-8 text ({error})") from error
