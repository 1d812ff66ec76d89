"""From a config and its parameters to the rows of every split.

Rows come in one of two ways, chosen by the shortest trees asked for:

- short trees repeat, so a *pool* of distinct trees is drawn once and dealt out to the splits (`pools.py`);
- of trees with at least `ALWAYS_DISTINCT` words no two are ever equal (they hold 34 digits or more), so row i
  of a split is drawn by itself, from a seed made of the parameters, the split and i.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from ..sampling import Shard, digest, make_rng, make_shards, shuffled
from .conditional import length_tables
from .configs import ARGUMENT_LIMITS, LENGTH_RANGES, grammar_of
from .expressions import make_row
from .pools import AUTHORS_TRAIN, fill_splits
from .sources import Request, Source, conditional_sampler, draw

ALWAYS_DISTINCT = 100
# free sampling of a grammar whose mean tree is longer than this would take for ever
MAX_EXPECTED_LENGTH = 2000


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


def _base(split: str) -> str:
    """`test` for splits such as `test_200_300`."""
    return split.split("_")[0]


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
            conditional_sampler(source)
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
        for split, rows in fill_splits(source, parts, seed).items():
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
