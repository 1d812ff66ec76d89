"""From the parameters to the rows of every split.

The authors draw samples, leave out those that they have had, and keep one if its depth is still wanted. Of each
depth they so keep the first n different samples of that depth. Here each depth has draws of its own, of that depth
alone, which is the same in distribution: row number k of a depth is the first draw of a stream of its own, made of the
source, seed, split, depth and k, that no row before it has. Depths take turns.

Tests come first, then validation, then train, and no row is in two splits. So held-out rows do not depend on how much
is trained on. What they take from train is 400 rows of each depth, by default, and of depth 1 the most frequent: of the
400 lists of two digits, 26 are held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from ..sampling import Shard, digest, make_rng, make_shards
from .counts import count, fewest
from .expressions import make_row
from .rules import Source
from .sampler import depth_sampler

# draws of rows that are there already, before the others are taken for too rare; 50 more for each row
PATIENCE = 100_000
_HINT = "ask for fewer rows (num_train, num_validation, num_test), other depths or a larger length_limit"


class Request(NamedTuple):
    """`size` rows of a split, the depths of whose source take turns."""

    split: str
    size: int
    source: Source

    def parts(self) -> dict[int, int]:
        """How many of the rows are of each depth."""
        depths = range(self.source.low, self.source.high + 1)
        return {depth: len(range(turn, self.size, len(depths))) for turn, depth in enumerate(depths)}


def requests(params: Mapping[str, Any]) -> list[Request]:
    """What every split asks for, in the order in which rows are drawn."""
    train, test = params["max_train_depth"], params["max_test_depth"]
    deepest = train + params["valid_extra_depth"]
    depths = {
        "test_ood": (deepest + 1, test),
        "validation_ood": (train + 1, deepest),
        "test": (1, train),
        "validation": (1, train),
        "train": (1, train),
    }
    limits = params["length_limit"], params["value_probability"]
    sizes = {split: params[f"num_{split.removesuffix('_ood')}"] for split in depths}
    wanted = [Request(split, size, Source(*depths[split], *limits)) for split, size in sizes.items() if size]
    if not wanted:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    _check_counts(wanted)
    return wanted


def _check_counts(wanted: Sequence[Request]) -> None:
    """Raises ValueError where there are fewer expressions of a depth than rows."""
    for source in {request.source: None for request in wanted}:
        for depth in range(source.low, source.high + 1):
            rows = sum(request.parts()[depth] for request in wanted if request.source == source)
            if rows > fewest(source, depth) and rows > count(source, depth):
                raise ValueError(
                    f"there are only {count(source, depth)} different expressions that depend on {depth} operation(s) "
                    f"with length_limit={source.length_limit}, but the splits need {rows} of them; {_HINT}"
                )


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits that have rows, train first."""
    return [request.split for request in _ordered(requests(params))]


def _ordered(wanted: Sequence[Request]) -> list[Request]:
    order = ("train", "validation", "validation_ood", "test", "test_ood")
    return sorted(wanted, key=lambda request: order.index(request.split))


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows."""
    wanted = requests(params)
    # equal expressions have equal depths
    seen: dict[int, set[str]] = {}
    texts = {request.split: _texts(request, params["seed"], seen) for request in wanted}
    return {request.split: make_shards("texts", texts[request.split]) for request in _ordered(wanted)}


def _texts(request: Request, seed: int, seen: dict[int, set[str]]) -> list[str]:
    """The expressions of a split; `seen` grows with them."""
    texts = [""] * request.size
    parts = request.parts()
    for turn, (depth, size) in enumerate(parts.items()):
        if size:
            texts[turn :: len(parts)] = _distinct(request, depth, size, seed, seen.setdefault(depth, set()))
    return texts


def _distinct(request: Request, depth: int, size: int, seed: int, seen: set[str]) -> Iterator[str]:
    """`size` expressions of a depth that are not in `seen`, which grows with them."""
    sampler = depth_sampler(request.source, depth)
    key = digest("listops_depth", asdict(request.source), seed, request.split, depth)
    repeated = 50 * size + PATIENCE
    for number in range(size):
        rng = make_rng(key, number)
        while (text := " ".join(sampler.draw(rng))) in seen:
            repeated -= 1
            if not repeated:
                raise ValueError(
                    f"split {request.split!r}: found only {number} of {size} new expressions that depend on {depth} "
                    f"operation(s): the others are too rare; {_HINT}"
                )
        seen.add(text)
        yield text


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    for text in shard.payload:
        yield make_row(text.split(" "))
