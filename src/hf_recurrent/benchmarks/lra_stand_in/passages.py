"""Pairs of passages of the installed Python standard library: of one module or package, or of two.

Modules and packages are divided into splits by a hash of their names, a tenth for validation and a fifth for test, so
that those of a test pair are unseen. Only those that hold two passages are taken. Each is as likely as any other, and
either passage of a pair has the same distribution whatever the label: the label is in both together only. Passages of
one module share no byte.

Examples with even numbers are pairs of two modules, those with odd numbers of one.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ..benchmark import Benchmark, Plan
from ..byte_text import BYTES
from ..long_documents.benchmark import LongDocuments
from ..long_documents.documents import Document, library_documents, library_folder
from ..lra.common import pair_example
from ..lra.retrieval import Retrieval
from ..sampling import Shard, digest, make_rng, parts
from .common import NO_ARENA, PARAMETERS, toy_info

_SHARES = {"validation": 0.1, "test": 0.2}
UNRELATED, RELATED = 0, 1


def divide(modules: list[Document], seed: int) -> dict[str, list[Document]]:
    """The modules of each split, in the order of their hashes."""
    ordered = sorted(modules, key=lambda module: digest("lra_stand_in", "passages", seed, module.name))
    divided, start = {}, 0
    for split, share in _SHARES.items():
        end = start + round(share * len(ordered))
        divided[split], start = ordered[start:end], end
    return {"train": ordered[start:], **divided}


def pair_examples(
    indices: Sequence[int], root: str, modules: list[Document], seed: int, split: str, max_bytes: int
) -> Iterator[dict[str, object]]:
    """Pairs `indices` of a split, of passages of `modules` with `max_bytes` bytes each."""

    @cache
    def source(number: int) -> bytes:
        return b"".join((Path(root) / part).read_bytes() for part in modules[number].parts)

    for index in indices:
        rng = make_rng("lra_stand_in", "passages", seed, split, index)
        label = RELATED if index % 2 else UNRELATED
        passages = draw(source, len(modules), label, max_bytes, rng)
        yield pair_example(*passages, label, max_bytes)


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
    """The beginnings of two passages that do not overlap, in either order."""
    low, high = sorted(_below(size - 2 * length + 1, rng) for _ in range(2))
    return (low, high + length) if rng.random() < 0.5 else (high + length, low)


def _below(count: int, rng: Random) -> int:
    return int(rng.random() * count)


class Passages(Benchmark):
    """Pairs of passages of the standard library, in place of pairs of papers."""

    generated = False
    parameters = PARAMETERS
    info = toy_info(
        title="Toy data for Long Range Arena: passages",
        description="Pairs of passages of the Python standard library, read byte by byte; the label is whether they "
        "are from one module or package.",
        label_names=Retrieval.info.label_names,
        text_columns=Retrieval.info.text_columns,
        slice_columns=Retrieval.info.slice_columns,
        column_meanings={
            "text": "the first passage",
            "text_pair": "the second passage, which shares no byte with the first",
            "length": "bytes of the first passage",
            "length_pair": "bytes of the second passage",
        },
        vocabulary=BYTES,
        modality="bytes",
        paper="https://docs.python.org/3/library/",
        citation="The Python Standard Library. Python Software Foundation.",
        bibtex="""@misc{python,
  title = {The Python Standard Library},
  author = {{Python Software Foundation}},
  howpublished = {https://docs.python.org/3/library/}
}""",
        license=LongDocuments.info.license.split(" ")[0] + " (copyright of the Python Software Foundation)",
        license_link=LongDocuments.info.license_link,
        provenance="A hash of its name and of the seed decides the split of a module or package, so that those "
        "of the test split are unseen. Then pairs are drawn: half of them from one module, half from two.",
        limits=(
            NO_ARENA,
            "The texts are those of the interpreter that makes them: another version of Python gives others.",
        ),
    )

    def default_folder(self, config_name: str, params: Mapping[str, Any]) -> Path:
        return library_folder()

    def plan_files(self, config_name: str, params: Mapping[str, Any], folder: Path) -> Plan:
        """The shards of every split that has examples.

        Raises:
            ValueError: no split has any, or a split has fewer than two modules that hold two passages.
        """
        seed, max_bytes = params["seed"], params["max_bytes"]
        # small ones that `library_documents` puts together are left out
        whole = [
            document
            for document in library_documents(folder)
            if document.name in sys.stdlib_module_names
            and sum((folder / part).stat().st_size for part in document.parts) >= 2 * max_bytes
        ]
        divided = divide(whole, seed)
        planned = {}
        for split in self.split_names(config_name, params):
            modules = divided[split]
            if len(modules) < 2:
                raise ValueError(
                    f"max_bytes={max_bytes}: the {split} split has {len(modules)} modules of the standard library that "
                    "hold two passages, and pairs need two: give less"
                )
            paths = tuple(str(folder / part) for module in modules for part in module.parts)
            planned[split] = [
                Shard(pair_examples, (indices, str(folder), modules, seed, split, max_bytes), paths)
                for indices in parts(range(params[f"num_{split}"]))
            ]
        return planned
