"""From a config and its parameters to the trees of every split.

Trees come in one of two ways, chosen by the shortest ones asked for:

- short trees repeat, so a *pool* of distinct trees is drawn once and dealt out to the splits;
- of trees with at least `ALWAYS_DISTINCT` tokens no two are ever equal (they hold 34 digits or more), so example i
  of a split is drawn by itself, from a seed made of the parameters, the split and i.

In pools, a hash of its first tokens decides which split a tree may be in. So the splits of calls with other sizes,
seeds or difficulty are disjoint as well: no tree that was trained on is in another call's test split. (Only a grammar
with hardly more trees than examples asked for is dealt out without regard to that.)
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from random import Random
from typing import Any

from ..benchmark import Plan
from ..sampling import digest, in_order, keep_probability, make_rng, make_shards, non_empty, shuffled
from .distribution import Grammar, Request, Source, conditional_sampler, draw, draw_tree, length_tables
from .expressions import END, make_example

LENGTH_RANGES = tuple((start, start + 100) for start in range(200, 1000, 100))
ARGUMENT_LIMITS = (10, 15)
ALWAYS_DISTINCT = 100
# free sampling of a grammar whose mean tree is longer than this would take for ever
MAX_EXPECTED_LENGTH = 2000


def grammar_of(params: Mapping[str, Any], max_arguments: int | None = None) -> Grammar:
    return Grammar(
        max_depth=params["max_depth"],
        max_arguments=max_arguments or params["max_arguments"],
        value_probability=params["value_probability"],
        operators=tuple(params["operators"]),
    )


def requests(config_name: str, params: Mapping[str, Any]) -> list[Request]:
    """The requests of all splits of a config that have examples, in the order in which a pool is dealt out."""
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
    filled = non_empty({request.split: request.size for request in whole})
    whole = [request for request in whole if request.split in filled]
    return [part for request in whole for part in _by_depth(request)] if params["depth_balanced"] else whole


def _by_depth(request: Request) -> list[Request]:
    """One request per depth that is possible; what does not divide evenly goes to the shallowest."""
    source = request.source
    tables, low = length_tables(source.grammar, source.max_length, counting=True), source.min_length or 1
    depths = [d for d in range(1, source.grammar.max_depth + 1) if any(tables.root(d)[low:])]
    sources = [Source(source.grammar, source.min_length, source.max_length, d) for d in depths]
    if not sources:
        raise ValueError(f"there is no tree with {source.describe()}; widen the lengths, depth or arguments")
    size = AUTHORS_TRAIN if request.size is None else request.size
    quotient, remainder = divmod(size, len(sources))
    sizes = [quotient + (i < remainder) for i in range(len(sources))]
    return [Request(request.split, n, s, request.limit) for n, s in zip(sizes, sources, strict=True) if n]


def _base(split: str) -> str:
    """`test` for splits such as `test_200_300`."""
    return split.split("_")[0]


def plan(config_name: str, params: Mapping[str, Any]) -> Plan:
    """The shards of every split, in the order train, validation, tests."""
    wanted = requests(config_name, params)
    for source in {r.source: None for r in wanted}:
        if source.max_length is not None:
            conditional_sampler(source)
        elif source.grammar.expected_length() > MAX_EXPECTED_LENGTH:
            raise ValueError(
                f"value_probability={source.grammar.value_probability}: trees with {source.describe()} have "
                f"{source.grammar.expected_length():.3g} tokens on average; give max_length"
            )
    long = all((r.source.min_length or 0) >= ALWAYS_DISTINCT for r in wanted)
    splits: Plan = {}
    if long and all(r.limit is None and r.size is not None for r in wanted):
        # example i is drawn by itself; examples of several sources (depths) take turns
        for split in dict.fromkeys(r.split for r in wanted):
            own = [r for r in wanted if r.split == split]
            # the sizes of the requests differ by one at most and the larger come first, so taking turns is exact
            drawn, size = tuple(r.source for r in own), sum(r.size for r in own)
            splits[split] = make_shards(drawn_examples, range(size), drawn, params["seed"], split)
    else:
        texts: dict[str, list[str]] = {r.split: [] for r in wanted}
        sources = list(dict.fromkeys(r.source for r in wanted))
        for source in sources:
            own = [r for r in wanted if r.source == source]
            for split, dealt in fill_splits(source, own, params["seed"]).items():
                texts[split] += dealt
        for split, found in texts.items():
            mixed = shuffled(found, make_rng("listops", params["seed"], split)) if len(sources) > 1 else found
            splits[split] = make_shards(text_examples, mixed)
    return {split: splits[split] for split in in_order(splits)}


def text_examples(texts: Iterable[str]) -> Iterator[dict[str, object]]:
    return (make_example(text.split()) for text in texts)


def drawn_examples(
    indices: Iterable[int], sources: Sequence[Source], seed: int, split: str
) -> Iterator[dict[str, object]]:
    """Examples `indices` of a split; the sources take turns."""
    keys = [digest("listops", asdict(source), seed, split) for source in sources]
    for i in indices:
        turn = i % len(sources)
        yield make_example(draw(sources[turn], make_rng(keys[turn], i)))


AUTHORS_TREES = 100_000
AUTHORS_TRAIN = 89_000
# draws, bare digits included, until 100,000 trees are distinct: mean of six runs (all within 0.5%)
AUTHORS_DRAWS = 514_700
# fraction of the authors' trees that have at most 100 tokens
AUTHORS_SHORT_FRACTION = 0.89

# the part of all trees that a split may take; the authors' sizes fit into a pool of little over 100,000 trees
REGIONS = {"test": (0.0, 0.1), "validation": (0.1, 0.12), "train": (0.12, 1.0)}
# trees that agree in so many tokens are in the same part: it is known before a long tree is drawn to its end
PREFIX = 12


def _draw_pool(source: Source, size: int, fraction: float, rng: Random, parts: set[str]) -> list[str]:
    """The trees, of `size` distinct ones, that are in the `parts` wanted (see `REGIONS`), in random order.

    Long trees of other parts are counted, but not drawn to their end.
    """
    unfiltered = source.max_length is not None or "train" in parts
    grammar = source.grammar
    digit, node = grammar.value_probability / 10, grammar.arity_probability / len(grammar.operators)
    pool: dict[str, None] = {}
    others = 0

    def wanted(tokens: list[str]) -> bool:
        return _region(tokens) in parts

    for _ in range(50 * size + 100_000):
        tokens = draw(source, rng) if unfiltered else draw_tree(source.grammar, rng, wanted, PREFIX)
        if tokens is None:
            others += 1
        else:
            kept = 1.0
            # long trees are too improbable to be drawn twice
            if fraction < 1.0 and len(tokens) <= PREFIX:
                lists = tokens.count(END)
                draws = AUTHORS_DRAWS * digit ** (len(tokens) - 2 * lists) * node**lists
                kept = keep_probability(draws, fraction)
            if fraction >= 1.0 or rng.random() < kept:
                pool[" ".join(tokens)] = None
        if len(pool) + others == size:
            return shuffled(list(pool), rng)
    raise ValueError(
        f"found only {len(pool)} of {size} distinct trees with {source.describe()}: the others are too rare; "
        "ask for fewer examples or allow more depth, arguments, operators or tokens"
    )


def _region(tokens: list[str]) -> str:
    """The only split a tree may be in, by a hash of its first tokens: the same for all seeds and parameters."""
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
            f"{sum(sizes)}{hint}; ask for fewer examples or allow more depth, arguments, operators or tokens"
        )
    needed = [sum(sizes)]
    for request, size in zip(wanted, sizes, strict=True):
        low, high = REGIONS[_base(request.split)]
        passing = AUTHORS_SHORT_FRACTION if request.limit is not None and request.size is not None else 1.0
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
            # the authors' trees are counted before the long ones are left out
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
                "tokens; raise it or ask for fewer examples"
            )
        size = min(2 * size, largest)
