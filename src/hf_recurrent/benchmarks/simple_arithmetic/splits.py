"""From a config and its parameters to the rows of every split.

Every depth of a split has a stream of its own (`law.py`), of which the split has the first different expressions. With
`disjoint`, test comes first, then validation, then train, and each leaves out what those before it have. At least
`RESERVED` rows are set aside for test and validation each, however few are asked for: what a model was trained on is
not in the splits of default size either, if only the seed is the same. That costs train little: there are 8,000
expressions of depth 2 with two operators, of which it has 7,546 by default, and 7,988 without `disjoint`.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from ..sampling import Shard, make_rng, make_shards, shuffled
from .bins import LISTED_DEPTH, bin_sizes, capacity, first_different, listed
from .configs import max_operators
from .expressions import make_row
from .law import ConditionalSampler, Law

BRANCH_PROBABILITY, BRANCH_PROBABILITY_OOD = 0.2, 0.3
# the least depth that the process of train, validation and test grows its expressions to
GROWN_DEPTH = 2
RESERVED = 1000

_ORDER = ("train", "validation", "validation_ood", "test", "test_ood")


class Request(NamedTuple):
    """A split: its law, how many of its rows have each depth, and how many of each are set aside for it."""

    split: str
    law: Law
    sizes: dict[int, int]
    reserved: dict[int, int]


def requests(params: Mapping[str, Any]) -> list[Request]:
    """What every split asks for, in the order in which expressions are dealt out.

    Raises ValueError for more rows than there are expressions for.
    """
    trained, validated = params["max_train_depth"], params["max_train_depth"] + params["valid_extra_depth"]
    most = max_operators(params["max_length"])
    law = Law(GROWN_DEPTH, trained, BRANCH_PROBABILITY, most)
    wanted = _distributed(params, law, most)
    for split, low, high in (
        ("validation_ood", trained + 1, validated),
        ("test_ood", validated + 1, params["max_test_depth"]),
    ):
        capacities = {depth: capacity(depth, most) for depth in range(low, high + 1)}
        sizes = _sizes(params, split, capacities)
        wanted.append(Request(split, Law(low, high, BRANCH_PROBABILITY_OOD, most), sizes, sizes))
    if not any(sum(request.sizes.values()) for request in wanted):
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    return wanted


def _distributed(params: Mapping[str, Any], law: Law, most: int) -> list[Request]:
    """The splits of the training distribution."""
    capacities = {depth: capacity(depth, most) for depth in range(LISTED_DEPTH, law.max_depth + 1)}
    if not params["disjoint"]:
        splits = {split: _sizes(params, split, capacities) for split in ("test", "validation", "train")}
        return [Request(split, law, sizes, sizes) for split, sizes in splits.items()]
    wanted = []
    # expressions of one operation are too few to be divided
    left = {depth: most for depth, most in capacities.items() if depth != LISTED_DEPTH}
    for split in ("test", "validation"):
        reserved = _sizes(params, split, left, at_least=RESERVED)
        wanted.append(Request(split, law, _sizes(params, split, left), reserved))
        left = {depth: most - reserved[depth] for depth, most in left.items()}
    left |= {LISTED_DEPTH: capacities[LISTED_DEPTH]}
    sizes = _sizes(params, "train", left)
    return [*wanted, Request("train", law, sizes, sizes)]


def _sizes(params: Mapping[str, Any], split: str, capacities: Mapping[int, int], at_least: int = 0) -> dict[int, int]:
    parameter = f"num_{split.split('_')[0]}"
    sizes = bin_sizes(max(params[parameter], at_least), capacities)
    if sizes is None:
        depths = f"{min(capacities)} to {max(capacities)}" if len(capacities) > 1 else f"{min(capacities)}"
        raise ValueError(
            f"{parameter}={params[parameter]}: split {split!r} can have {sum(capacities.values())} rows at most, of "
            f"depth {depths} and up to {params['max_length']} words; ask for fewer, or raise max_length or the depths"
        )
    return sizes


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits of a config that have rows, train and validation first."""
    names = [request.split for request in requests(params) if sum(request.sizes.values())]
    return [name for name in _ORDER if name in names]


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows."""
    seed, taken = params["seed"], frozenset()
    texts: dict[str, list[str]] = {}
    for request in requests(params):
        drawn = _draw(request, seed, taken)
        rows = [text for depth, size in request.sizes.items() for text in drawn[depth][:size]]
        texts[request.split] = shuffled(rows, make_rng("simple_arithmetic", "order", request.split, seed))
        if params["disjoint"]:
            taken = taken.union(*drawn.values())
    return {split: make_shards("texts", texts[split]) for split in split_names(config_name, params)}


def _draw(request: Request, seed: int, taken: frozenset[str]) -> dict[int, list[str]]:
    """What is set aside for a split, by depth."""
    sampler = ConditionalSampler(request.law)
    drawn = {}
    for depth, size in request.reserved.items():
        rng = make_rng("simple_arithmetic", request.split, list(request.law), depth, seed)
        if depth == LISTED_DEPTH:
            drawn[depth] = shuffled(listed(), rng)[:size]
        else:
            drawn[depth] = list(islice(first_different(sampler, depth, rng, taken), size))
    return drawn


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    return (make_row(text) for text in shard.payload)
