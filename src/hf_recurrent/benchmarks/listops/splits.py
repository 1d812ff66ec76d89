"""From a config and its parameters to the rows of every split.

Rows come in one of two ways, chosen by the shortest trees asked for:

- short trees repeat, so a *pool* of distinct trees is drawn once and dealt out to the splits. A hash of the
  tree decides which split it may be in, so the splits of calls with other sizes, seeds or difficulty are
  disjoint too: what was trained on is never in another call's test split;
- of trees with at least `ALWAYS_DISTINCT` words no two are ever equal (they hold 34 digits or more), so row i
  of a split is drawn by itself, from a seed made of the parameters, the split and i.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Any

from ..sampling import Shard, digest, keep_probability, make_rng, make_shards, shuffled
from .conditional import COUNT_CEILING, ConditionalSampler, length_tables
from .configs import ARGUMENT_LIMITS, LENGTH_RANGES, grammar_of
from .expressions import END, make_row
from .grammar import Grammar, count_trees, draw_tree

ALWAYS_DISTINCT = 100
AUTHORS_TREES = 100_000
AUTHORS_TRAIN = 89_000
# draws, bare digits included, until 100,000 trees are distinct: mean of six runs (all within 0.5%)
AUTHORS_DRAWS = 514_700
# share of the authors' trees that have at most 100 words
AUTHORS_SHORT_SHARE = 0.89
# free sampling of a grammar whose mean tree is longer than this would take for ever
MAX_EXPECTED_LENGTH = 2000


# which trees of a pool a split may take, by `_place`; the authors' sizes fit into a pool of little over 100,000
REGIONS = {"test": (0.0, 0.1), "validation": (0.1, 0.12), "train": (0.12, 1.0)}


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
def _conditional(source: Source) -> ConditionalSampler:
    low, high = source.min_length or 1, source.max_length
    sampler = ConditionalSampler(source.grammar, low, high, source.depth) if low <= high else None
    if sampler is None or not sampler.total > 0.0:
        raise ValueError(f"there is no tree with {source.describe()}; widen the lengths, depth or arguments")
    return sampler


def draw(source: Source, rng: Random) -> list[str]:
    if source.max_length is None:
        return draw_tree(source.grammar, rng)
    return _conditional(source).draw(rng)


def requests(config_name: str, params: Mapping[str, Any]) -> list[Request]:
    """What every split of a config asks for, in the order in which a pool is dealt out."""
    low, high = params["min_length"], params["max_length"]
    if config_name == "length_generalization":
        ranges = LENGTH_RANGES if low is None else ((low, high),)
        whole = [Request(f"test_{a}_{b}", params["num_test"], Source(grammar_of(params), a, b)) for a, b in ranges]
    elif config_name == "argument_generalization":
        limits = ARGUMENT_LIMITS if params["max_arguments"] is None else (params["max_arguments"],)
        whole = [
            Request(f"test_arguments_{n}", params["num_test"], Source(grammar_of(params, n), low, high)) for n in limits
        ]
    else:
        source = Source(grammar_of(params), low, high)
        # train comes last: it leaves out long trees, and must not leave the others with too many of them
        whole = [
            Request(
                split,
                params[f"num_{split}"],
                source,
                params.get("max_train_length") if split == "train" else None,
            )
            for split in ("test", "validation", "train")
        ]
    whole = [request for request in whole if request.size != 0]
    if not whole:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    return [part for request in whole for part in _by_depth(request)] if params["depth_balanced"] else whole


def _by_depth(request: Request) -> list[Request]:
    """One request per depth that is possible; what does not divide evenly goes to the shallowest."""
    source = request.source
    sources = [Source(source.grammar, source.min_length, source.max_length, d) for d in _depths(source)]
    if not sources:
        raise ValueError(f"there is no tree with {source.describe()}; widen the lengths, depth or arguments")
    size = AUTHORS_TRAIN if request.size is None else request.size
    quotient, remainder = divmod(size, len(sources))
    sizes = [quotient + (i < remainder) for i in range(len(sources))]
    return [Request(request.split, n, s, request.limit) for n, s in zip(sizes, sources, strict=True) if n]


def _depths(source: Source) -> list[int]:
    tables = length_tables(source.grammar, source.max_length, counting=True)
    low = source.min_length or 1
    return [d for d in range(1, source.grammar.max_depth + 1) if any(tables.root(d)[low:])]


def _draw_pool(source: Source, size: int, fraction: float, rng: Random) -> list[str]:
    """`size` distinct trees as text, in random order; see `keep_probability` for `fraction`."""
    pool: dict[str, None] = {}
    arities = len(source.grammar.arities) * len(source.grammar.operators)
    digit = source.grammar.value_probability / 10
    node = (1 - source.grammar.value_probability) / arities
    for _ in range(50 * size + 100_000):
        tokens = draw(source, rng)
        if fraction < 1.0 and len(tokens) < 20:
            lists = tokens.count(END)
            expected = AUTHORS_DRAWS * digit ** (len(tokens) - 2 * lists) * node**lists
            if rng.random() >= keep_probability(expected, fraction):
                continue
        pool[" ".join(tokens)] = None
        if len(pool) == size:
            return shuffled(list(pool), rng)
    raise ValueError(
        f"found only {len(pool)} of {size} distinct trees with {source.describe()}: the others are too rare; "
        "ask for fewer rows or allow more depth, arguments, operators or words"
    )


def _place(text: str) -> float:
    """A number in [0, 1) that decides which split a tree may be in, the same for all seeds and parameters."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64


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
        low, high = REGIONS[request.split.split("_")[0]]
        passing = AUTHORS_SHORT_SHARE if request.limit is not None and request.size is not None else 1.0
        # three standard deviations more than the mean needs
        needed.append(math.ceil((size + 3 * math.sqrt(size) + 3) / (high - low) / passing))
    return min(max(needed), count)


def _deal(pool: list[str], wanted: list[Request], regions: bool) -> dict[str, list[str]] | None:
    """Gives each request in turn its first trees that are short enough; None when the pool is too small."""
    left = dict.fromkeys(pool)
    dealt: dict[str, list[str]] = {}
    for request in wanted:
        low, high = REGIONS[request.split.split("_")[0]] if regions else (0.0, 1.0)
        own = (text for text in left if low <= _place(text) < high)
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


def _fill(source: Source, wanted: list[Request], seed: int) -> dict[str, list[str]]:
    """The trees of every split that draws from `source`."""
    size, count = _pool_size(source, wanted), source.count()
    largest = min(count, 20 * size)
    while True:
        fraction = size / AUTHORS_TREES if source == Source(Grammar()) else 1.0
        pool = _draw_pool(source, size, fraction, make_rng(*_key(source, seed)))
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


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits of a config, train and validation first."""
    names = dict.fromkeys(request.split for request in requests(config_name, params))
    return [name for name in ("train", "validation") if name in names] + [
        name for name in names if name.startswith("test")
    ]


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split, in the order train, validation, tests."""
    wanted = requests(config_name, params)
    for source in {r.source: None for r in wanted}:
        if source.max_length is not None:
            _conditional(source)
        elif source.grammar.expected_length() > MAX_EXPECTED_LENGTH:
            raise ValueError(
                f"value_probability={source.grammar.value_probability}: trees with {source.describe()} have "
                f"{source.grammar.expected_length():.3g} words on average; give max_length"
            )
    long = all((r.source.min_length or 0) >= ALWAYS_DISTINCT for r in wanted)
    if long and all(r.limit is None and r.size is not None for r in wanted):
        splits = _plan_rows(wanted, params["seed"])
    else:
        splits = _plan_pools(wanted, params["seed"])
    return {split: splits[split] for split in split_names(config_name, params)}


def _plan_rows(wanted: list[Request], seed: int) -> dict[str, list[Shard]]:
    """Row i is drawn by itself; rows of several sources (depths) take turns."""
    splits = {}
    for split in dict.fromkeys(r.split for r in wanted):
        parts = [r for r in wanted if r.split == split]
        # the sizes of the parts differ by one at most and the larger come first, so taking turns is exact
        common = tuple(r.source for r in parts), (seed, split)
        shards = make_shards("draw", range(sum(r.size for r in parts)))
        splits[split] = [replace(shard, payload=(*common, shard.payload)) for shard in shards]
    return splits


def _plan_pools(wanted: list[Request], seed: int) -> dict[str, list[Shard]]:
    texts: dict[str, list[str]] = {r.split: [] for r in wanted}
    sources = list(dict.fromkeys(r.source for r in wanted))
    for source in sources:
        parts = [r for r in wanted if r.source == source]
        for split, rows in _fill(source, parts, seed).items():
            texts[split] += rows
    if len(sources) > 1:
        texts = {split: shuffled(rows, make_rng("listops", seed, split)) for split, rows in texts.items()}
    return {split: make_shards("texts", rows) for split, rows in texts.items()}


def _key(source: Source, *parts: object) -> tuple:
    return ("listops", asdict(source), *parts)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    if shard.source == "texts":
        for text in shard.payload:
            yield make_row(text.split())
        return
    sources, key, indices = shard.payload
    keys = [digest(*_key(source, *key)) for source in sources]
    for i in indices:
        turn = i % len(sources)
        yield make_row(draw(sources[turn], make_rng(keys[turn], i)))
