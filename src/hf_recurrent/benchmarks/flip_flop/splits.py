"""From a config and its parameters to the rows of every split.

Row i of a split is string i of a stream of its own (`sampling.py`). Short strings repeat: one that an earlier row
has, or a row of a split before, is replaced by the first new one of a second stream. The tests come before
validation and train, so that they do not depend on how much is trained on. Long strings never repeat.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..sampling import Shard, make_shards
from .sampling import Source, draw, last_write
from .strings import READ, VOCABULARY

# two strings of so many words are equal with a probability below 2 ** -127, whatever p_i is
ALWAYS_DISTINCT = 256
# strings of the second stream that are drawn at a time
_REPLACEMENTS = 64

_HINT = "ask for fewer rows (num_train, num_validation, num_test) or longer strings (train_length, test_lengths)"
_LETTERS = np.frombuffer("".join(VOCABULARY).encode(), dtype=np.uint8)
_R = VOCABULARY.index(READ)


class Request(NamedTuple):
    """`size` rows of a split; the `sources` take turns."""

    split: str
    size: int
    sources: tuple[Source, ...]

    def part(self, turn: int) -> int:
        """How many of the rows are from source number `turn`."""
        return len(range(turn, self.size, len(self.sources)))


class Run(NamedTuple):
    """Rows `indices` of a request; `replaced` maps those that repeat others to strings of the second stream."""

    request: Request
    seed: int
    indices: range
    replaced: Mapping[int, int]


def requests(params: Mapping[str, Any]) -> list[Request]:
    """What every split asks for, in the order in which strings are dealt out."""
    tests = [Source(length, round(100 * p)) for length in params["test_lengths"] for p in params["test_p_ignore"]]
    train = Source(params["train_length"], round(100 * params["p_ignore"]))
    wanted = [
        *(Request(f"test_{source.length}_p{source.ignore_percent}", params["num_test"], (source,)) for source in tests),
        Request("validation", params["num_validation"], tuple(tests)),
        Request("train", params["num_train"], (train,)),
    ]
    wanted = [request for request in wanted if request.size]
    if not wanted:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    _check_counts(wanted)
    return wanted


def _check_counts(wanted: Sequence[Request]) -> None:
    """Raises ValueError where there are fewer strings of a length than rows."""
    needed: dict[int, int] = {}
    for request in wanted:
        for turn, source in enumerate(request.sources):
            needed[source.length] = needed.get(source.length, 0) + request.part(turn)
    for length, rows in needed.items():
        count = Source(length, 1).count()
        if rows > count:
            raise ValueError(
                f"there are only {count} different strings of {length} words, but the splits need {rows} of them; "
                + _HINT
            )


def split_names(config_name: str, params: Mapping[str, Any]) -> list[str]:
    """The splits of a config that have rows, train and validation first."""
    names = [request.split for request in requests(params)]
    return [name for name in ("train", "validation") if name in names] + [
        name for name in names if name.startswith("test")
    ]


def plan(config_name: str, params: Mapping[str, Any]) -> dict[str, list[Shard]]:
    """The shards of every split that has rows."""
    seed, seen = params["seed"], set()
    shards = {}
    for request in requests(params):
        replaced = _replacements(request, seed, seen)
        shards[request.split] = [
            Shard(shard.number, shard.source, _run(request, seed, shard.payload, replaced))
            for shard in make_shards("draw", range(request.size))
        ]
    return {split: shards[split] for split in split_names(config_name, params)}


def _run(request: Request, seed: int, indices: range, replaced: Mapping[int, int]) -> Run:
    return Run(request, seed, indices, {i: place for i, place in replaced.items() if i in indices})


def _replacements(request: Request, seed: int, seen: set[bytes]) -> dict[int, int]:
    """The rows that need another string, with its place in their second streams; `seen` grows with all strings."""
    replaced: dict[int, int] = {}
    for turn, source in enumerate(request.sources):
        if source.length >= ALWAYS_DISTINCT:
            continue
        rows = request.part(turn)
        budget = 50 * rows + 100_000
        blocks = draw(source, (seed, request.split), 0, rows)
        for number, codes in enumerate(codes for block in blocks for codes in block):
            text = codes.tobytes()
            if text in seen:
                place, text = _first_new(source, (seed, request.split, number), seen, budget)
                replaced[turn + number * len(request.sources)] = place
                budget -= place
                if text is None:
                    raise ValueError(
                        f"split {request.split!r}: found only {number} of {rows} new strings of {source.describe()}: "
                        f"the others are too rare; {_HINT}"
                    )
            seen.add(text)
    return replaced


def _first_new(source: Source, key: tuple, seen: set[bytes], budget: int) -> tuple[int, bytes | None]:
    """The first string of a stream that is not in `seen`, and its place; no string where `budget` ends before."""
    for first in range(0, max(budget, 0), _REPLACEMENTS):
        for block in draw(source, key, first, first + _REPLACEMENTS):
            for place, codes in enumerate(block, start=first):
                text = codes.tobytes()
                if text not in seen:
                    return place, text
    return budget, None


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    run: Run = shard.payload
    sources, split = run.request.sources, run.request.split
    turns = [_part(run, turn) for turn in range(len(sources))]
    for i in run.indices:
        turn = i % len(sources)
        row = next(turns[turn])
        if i in run.replaced:
            place = run.replaced[i]
            key = (run.seed, split, i // len(sources))
            (row,) = _rows(sources[turn], draw(sources[turn], key, place, place + 1))
        yield row


def _part(run: Run, turn: int) -> Iterator[dict[str, object]]:
    """The rows of source number `turn`, none replaced."""
    source, count = run.request.sources[turn], len(run.request.sources)
    numbers = [-(-(end - turn) // count) for end in (run.indices.start, run.indices.stop)]
    return _rows(source, draw(source, (run.seed, run.request.split), *numbers))


def _rows(source: Source, blocks: Iterator[np.ndarray]) -> Iterator[dict[str, object]]:
    """The rows of the data set for strings in blocks `(B, length)`."""
    for block in blocks:
        letters = np.full((len(block), 2 * source.length), ord(" "), dtype=np.uint8)
        letters[:, ::2] = _LETTERS[block]
        reads = (block[:, ::2] == _R).sum(axis=1)
        # a read and its write are two words each: so many words lie between them
        distances = source.length - 4 - 2 * last_write(block[:, ::2])[:, -1]
        for text, num_reads, distance in zip(letters, reads.tolist(), distances.tolist(), strict=True):
            yield {
                "text": text[:-1].tobytes().decode(),
                "length": source.length,
                "ignore_percent": source.ignore_percent,
                "num_reads": num_reads,
                "distance": distance,
            }
