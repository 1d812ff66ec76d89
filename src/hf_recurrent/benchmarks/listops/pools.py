"""Pools of distinct short trees, dealt out to splits.

A hash of its first words decides which split a tree may be in. So the splits of calls with other sizes, seeds or
difficulty are disjoint as well: what was trained on is never in another call's test split. (Only a grammar with
hardly more trees than rows asked for is dealt out without regard to that.)
"""

import hashlib
import math
from dataclasses import asdict
from itertools import islice
from random import Random

from ..sampling import keep_probability, make_rng, shuffled
from .expressions import END
from .grammar import Grammar, draw_tree
from .sources import Request, Source, draw

AUTHORS_TREES = 100_000
AUTHORS_TRAIN = 89_000
# draws, bare digits included, until 100,000 trees are distinct: mean of six runs (all within 0.5%)
AUTHORS_DRAWS = 514_700
# share of the authors' trees that have at most 100 words
AUTHORS_SHORT_SHARE = 0.89

# which part of all trees a split may take; the authors' sizes fit into a pool of little over 100,000 trees
REGIONS = {"test": (0.0, 0.1), "validation": (0.1, 0.12), "train": (0.12, 1.0)}
# trees that agree in so many words are in the same part: it is known before a long tree is drawn to its end
PREFIX = 12


def _keep_probability(tokens: list[str], grammar: Grammar, fraction: float) -> float:
    """See `keep_probability`; long trees are too improbable to be drawn twice."""
    if len(tokens) > PREFIX:
        return 1.0
    lists = tokens.count(END)
    digit = grammar.value_probability / 10
    node = grammar.arity_probability / len(grammar.operators)
    return keep_probability(AUTHORS_DRAWS * digit ** (len(tokens) - 2 * lists) * node**lists, fraction)


def _draw_pool(source: Source, size: int, fraction: float, rng: Random, parts: set[str]) -> list[str]:
    """Those of `size` distinct trees that are in the `parts` wanted (see `REGIONS`), in random order.

    Long trees of other parts are counted, but not drawn to their end.
    """
    unfiltered = source.max_length is not None or "train" in parts
    pool: dict[str, None] = {}
    others = 0

    def wanted(words: list[str]) -> bool:
        return _region(words) in parts

    for _ in range(50 * size + 100_000):
        tokens = draw(source, rng) if unfiltered else draw_tree(source.grammar, rng, wanted, PREFIX)
        if tokens is None:
            others += 1
        elif fraction >= 1.0 or rng.random() < _keep_probability(tokens, source.grammar, fraction):
            pool[" ".join(tokens)] = None
        if len(pool) + others == size:
            return shuffled(list(pool), rng)
    raise ValueError(
        f"found only {len(pool)} of {size} distinct trees with {source.describe()}: the others are too rare; "
        "ask for fewer rows or allow more depth, arguments, operators or words"
    )


def _base(split: str) -> str:
    """`test` for splits such as `test_200_300`."""
    return split.split("_")[0]


def _region(tokens: list[str]) -> str:
    """The only split a tree may be in, by a hash of its first words: the same for all seeds and parameters."""
    prefix = " ".join(tokens[:PREFIX]).encode()
    place = int.from_bytes(hashlib.blake2b(prefix, digest_size=8).digest(), "big") / 2**64
    if place < REGIONS["test"][1]:
        return "test"
    return "validation" if place < REGIONS["validation"][1] else "train"


def _pool_size(source: Source, wanted: list[Request]) -> int:
    """How many distinct trees to draw first; an error when there are not so many."""
    sizes = [AUTHORS_TRAIN if request.size is None else request.size for request in wanted]
    count = source.count()
    if sum(sizes) > count:
        hint = " (num_train=None asks for the authors' 89000)" if None in [r.size for r in wanted] else ""
        raise ValueError(
            f"there are only {count} different trees with {source.describe()}, but the splits need "
            f"{sum(sizes)}{hint}; ask for fewer rows or allow more depth, arguments, operators or words"
        )
    needed = [sum(sizes)]
    for request, size in zip(wanted, sizes, strict=True):
        low, high = REGIONS[_base(request.split)]
        passing = AUTHORS_SHORT_SHARE if request.limit is not None and request.size is not None else 1.0
        # three standard deviations more than the mean needs
        needed.append(math.ceil((size + 3 * math.sqrt(size) + 3) / (high - low) / passing))
    return min(max(needed), count)


def _deal(pool: list[str], wanted: list[Request], regions: bool) -> dict[str, list[str]] | None:
    """Gives each request in turn its first trees that are short enough; None when the pool is too small."""
    left = {text: _region(text.split(" ", PREFIX)) for text in pool}
    dealt: dict[str, list[str]] = {}
    for request in wanted:
        own = (text for text, region in left.items() if region == _base(request.split) or not regions)
        if request.size is None:
            # the authors' rows are counted before the long ones are left out
            own = islice(own, AUTHORS_TRAIN)
        short = (text for text in own if request.limit is None or text.count(" ") < request.limit)
        dealt[request.split] = list(islice(short, request.size))
        if len(dealt[request.split]) < (request.size or 0):
            return None
        for text in dealt[request.split]:
            del left[text]
    return dealt


def fill_splits(source: Source, wanted: list[Request], seed: int) -> dict[str, list[str]]:
    """The trees of every split that draws from `source`."""
    size, count = _pool_size(source, wanted), source.count()
    largest = min(count, 20 * size)
    parts = {_base(request.split) for request in wanted}
    while True:
        fraction = size / AUTHORS_TREES if source == Source(Grammar()) else 1.0
        pool = _draw_pool(source, size, fraction, make_rng("listops", asdict(source), seed), parts)
        dealt = _deal(pool, wanted, regions=True)
        if dealt is None and size == count:
            # all trees there are: too few to keep the splits of other calls apart as well
            dealt = _deal(pool, wanted, regions=False)
        if dealt is not None:
            return dealt
        if size == largest:
            raise ValueError(
                f"too few trees with {source.describe()} have at most max_train_length={wanted[-1].limit} "
                "words; raise it or ask for fewer rows"
            )
        size = min(2 * size, largest)
