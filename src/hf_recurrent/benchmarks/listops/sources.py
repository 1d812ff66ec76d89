"""Distributions of trees, and how many rows of a split come from each."""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

from .conditional import COUNT_CEILING, ConditionalSampler, length_tables
from .grammar import Grammar, count_trees, draw_tree


@dataclass(frozen=True)
class Source:
    """A distribution of trees: a grammar, conditioned on lengths and on an exact depth where given."""

    grammar: Grammar
    min_length: int | None = None
    max_length: int | None = None
    depth: int | None = None

    def count(self) -> int:
        """How many different trees there are (a huge number stands for any huge number)."""
        if self.max_length is None:
            return count_trees(self.grammar)
        counts = length_tables(self.grammar, self.max_length, counting=True).root(self.depth)
        return int(min(COUNT_CEILING, sum(counts[self.min_length or 1 :])))

    def describe(self) -> str:
        depth = f"depth {self.depth}" if self.depth is not None else f"depth up to {self.grammar.max_depth}"
        lengths = f", {self.min_length or 1}-{self.max_length} words" if self.max_length else ""
        operators = " ".join(self.grammar.operators)
        return f"{depth}, up to {self.grammar.max_arguments} arguments{lengths}, operators {operators}"


@dataclass(frozen=True)
class Request:
    """`size` rows of a split, from `source`; with `limit`, only trees of at most so many words."""

    split: str
    size: int | None
    source: Source
    limit: int | None = None


@lru_cache(maxsize=64)
def conditional_sampler(source: Source) -> ConditionalSampler:
    low, high = source.min_length or 1, source.max_length
    sampler = ConditionalSampler(source.grammar, low, high, source.depth) if low <= high else None
    if sampler is None or not sampler.total > 0.0:
        raise ValueError(f"there is no tree with {source.describe()}; widen the lengths, depth or arguments")
    return sampler


def draw(source: Source, rng: Random) -> list[str]:
    if source.max_length is None:
        return draw_tree(source.grammar, rng)
    return conditional_sampler(source).draw(rng)
