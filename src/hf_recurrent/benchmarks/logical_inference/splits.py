"""From a config and its parameters to the rows of every split."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ..sampling import Shard, make_rng, make_shards, split_names
from .configs import PATTERNS, is_held_out
from .sampling import AUTHORS_PAIRS, Pair, draw_pool
from .sentences import make_row

# share of the authors' pairs of at most 6 operators that a config holds out for testing
_HELD_OUT = {"split_a": 6_560 / 135_529, "split_b": 47_581 / 135_529, "split_c": 83_633 / 135_529}
# twice the authors' draws: beyond, the pairs that are left are too rare to be worth the wait
_MAX_FRACTION = 2.0


def _first_fraction(config_name: str, params: Mapping[str, Any]) -> float:
    """The fraction of the authors' pool that should hold all splits, with a small reserve."""
    most = params["max_train_operators"]
    short, long = sum(AUTHORS_PAIRS[: most + 1]), sum(AUTHORS_PAIRS[most + 1 :])
    held_out = _HELD_OUT.get(config_name, 0.0)
    available_test = held_out * short if held_out else long
    train = params["num_train"] + params["num_validation"]
    needed = ((train, (1 - held_out) * short), (params["num_test"], available_test))
    return max((1.03 * rows + 20) / available for rows, available in needed)


def _is_test(config_name: str, pair: Pair, most: int) -> bool | None:
    """Whether a pair belongs to the test split; None when it belongs to no split."""
    if config_name not in PATTERNS:
        return pair.num_operators > most
    return is_held_out(config_name, pair.text, pair.text_pair) if pair.num_operators <= most else None


def _deal(config_name: str, params: Mapping[str, Any], pool: list[Pair]) -> dict[str, list[Pair]]:
    most = params["max_train_operators"]
    roles = [_is_test(config_name, pair, most) for pair in pool]
    train = (pair for pair, is_test in zip(pool, roles, strict=True) if is_test is False)
    test = (pair for pair, is_test in zip(pool, roles, strict=True) if is_test)
    # validation first: the size of train does not change it
    validation = list(islice(train, params["num_validation"]))
    return {
        "train": list(islice(train, params["num_train"])),
        "validation": validation,
        "test": list(islice(test, params["num_test"])),
    }


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows."""
    sizes = {split: params[f"num_{split}"] for split in split_names(config_name, params)}
    fraction = _first_fraction(config_name, params)
    dealt: dict[str, list[Pair]] = {}
    while fraction <= _MAX_FRACTION:
        rng = make_rng("logical_inference", params["seed"])
        dealt = _deal(config_name, params, draw_pool(fraction, rng))
        if all(len(dealt[split]) == size for split, size in sizes.items()):
            return {split: make_shards("pairs", pairs) for split, pairs in dealt.items() if pairs}
        fraction *= 1.3
    found = ", ".join(f"{split} {len(pairs)}" for split, pairs in dealt.items()) or "not even tried"
    asked = ", ".join(f"num_{split}={size}" for split, size in sizes.items())
    raise ValueError(
        f"config {config_name!r} with max_train_operators={params['max_train_operators']} does not give "
        f"{asked} distinct pairs (found: {found}); "
        "ask for fewer rows"
    )


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    for pair in shard.payload:
        yield make_row(pair.text, pair.text_pair)
