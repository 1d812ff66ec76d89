"""Pairs of passages of the installed Python standard library: of one module or package, or of two.

Modules and packages are divided into splits by a hash of their names, a tenth for validation and a fifth for test, so
that those of a test pair are unseen. Only those that hold two passages are taken. Each is as likely as any other, and
either passage of a pair has the same distribution whatever the label: the label is in both together only. Passages of
one module share no byte.

Rows with even numbers are pairs of two modules, those with odd numbers of one.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ..long_documents.documents import Document
from ..long_documents.library import library_documents, library_folder
from ..lra.rows import pair_row
from ..sampling import Shard, digest, make_rng, make_shards

SPLITS = ("train", "validation", "test")
_SHARES = {"validation": 0.1, "test": 0.2}
UNRELATED, RELATED = 0, 1


class Pairs(NamedTuple):
    """Pairs `indices` of a split, of passages of `modules` with `max_bytes` bytes each."""

    root: str
    modules: list[Document]
    indices: range
    seed: int
    split: str
    max_bytes: int


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """The folder of the standard library."""
    return library_folder()


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split that has rows.

    Raises:
        ValueError: no split has rows, or a split has fewer than two modules that hold two passages.
    """
    sizes = {split: params[f"num_{split}"] for split in SPLITS if params[f"num_{split}"]}
    if not sizes:
        raise ValueError("every split has 0 rows; give num_train, num_validation or num_test a positive value")
    divided = divide(_modules(data_dir, params["max_bytes"]), params["seed"])
    for split in sizes:
        if len(divided[split]) < 2:
            raise ValueError(
                f"max_bytes={params['max_bytes']}: the {split} split has {len(divided[split])} modules of the standard "
                "library that hold two passages, and pairs need two: give less"
            )
    return {
        split: [
            Shard(
                shard.number,
                "file",
                Pairs(str(data_dir), divided[split], shard.payload, params["seed"], split, params["max_bytes"]),
            )
            for shard in make_shards("file", range(size))
        ]
        for split, size in sizes.items()
    }


def divide(modules: list[Document], seed: int) -> dict[str, list[Document]]:
    """The modules of each split, in the order of their hashes."""
    ordered = sorted(modules, key=lambda module: digest("lra_stand_in", "passages", seed, module.name))
    divided, start = {}, 0
    for split, share in _SHARES.items():
        end = start + round(share * len(ordered))
        divided[split], start = ordered[start:end], end
    return {"train": ordered[start:], **divided}


def _modules(root: Path, max_bytes: int) -> list[Document]:
    """Modules and packages of two passages at least; small ones that `library_documents` puts together are left out."""
    return [
        document
        for document in library_documents(root)
        if document.name in sys.stdlib_module_names
        and sum((root / part).stat().st_size for part in document.parts) >= 2 * max_bytes
    ]


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    pairs = shard.payload
    return tuple(str(Path(pairs.root) / part) for module in pairs.modules for part in module.parts)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard."""
    pairs = shard.payload

    @cache
    def source(number: int) -> bytes:
        return b"".join((Path(pairs.root) / part).read_bytes() for part in pairs.modules[number].parts)

    for index in pairs.indices:
        rng = make_rng("lra_stand_in", "passages", pairs.seed, pairs.split, index)
        label = RELATED if index % 2 else UNRELATED
        passages = draw(source, len(pairs.modules), label, pairs.max_bytes, rng)
        yield pair_row(*passages, label, pairs.max_bytes)


def draw(source: Callable[[int], bytes], count: int, label: int, length: int, rng: Random) -> tuple[bytes, bytes]:
    """A pair of passages of `length` bytes from modules number 0 ... `count` - 1."""
    first = _below(count, rng)
    if label == RELATED:
        content = source(first)
        places = _places(len(content), length, rng)
        return tuple(content[place : place + length] for place in places)
    # two places are drawn in each of both modules: so a place has the distribution that it has in a pair of one module
    second = (first + 1 + _below(count - 1, rng)) % count
    contents = source(first), source(second)
    places = (_places(len(content), length, rng)[side] for side, content in enumerate(contents))
    return tuple(content[place : place + length] for content, place in zip(contents, places, strict=True))


def _places(size: int, length: int, rng: Random) -> tuple[int, int]:
    """Where two passages that do not overlap begin, in either order."""
    low, high = sorted(_below(size - 2 * length + 1, rng) for _ in range(2))
    return (low, high + length) if rng.random() < 0.5 else (high + length, low)


def _below(count: int, rng: Random) -> int:
    return int(rng.random() * count)
