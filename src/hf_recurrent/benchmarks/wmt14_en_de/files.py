"""From parallel texts, or the tables of the Hub, to the rows of every split.

- Files: `train.en` and `train.de`, `valid.en` and `valid.de`, `test.en` and `test.de`; line n of one is the
  translation of line n of the other.
- The data set on the Hub: `de-en/<split>-*.parquet` with the column `translation`, which holds `en` and `de`.

Of train pairs, those are left out in which a text is too short or too long. Every pair of the other splits is kept.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ..hub_files import snapshot
from ..parquet import parquet_rows
from ..sampling import Shard
from ..sequences import check_pair
from .words import count_words

SOURCE, TARGET = "en", "de"
FOLDER = "de-en"
_STEMS = {"train": ("train",), "validation": ("valid", "validation"), "test": ("test",)}


class Pairs(NamedTuple):
    """Where the pairs of a shard are: in two text files, or in a table."""

    paths: tuple[str, ...]
    split: str
    params: Mapping[str, Any]


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """The folder of the tables of the Hub; what is not here yet is downloaded.

    Raises:
        ValueError: the data set cannot be had, or has no such tables.
    """
    folder = snapshot(params["dataset"], params["revision"], [f"{FOLDER}/*.parquet"])
    if not _tables(params, folder):
        raise ValueError(
            f"dataset={params['dataset']!r} has no files {FOLDER}/<split>-*.parquet: name another one, or give data_dir"
        )
    return folder


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split that there are files for: one for two texts, or one for each table.

    Raises:
        ValueError: a text is there without its translation, or no pair can have the lengths that are asked for.
    """
    if params["min_length"] > params["max_length"]:
        raise ValueError(
            f"min_length={params['min_length']}, max_length={params['max_length']}: no pair of texts is between them"
        )
    planned = {}
    for split, stems in _STEMS.items():
        for stem in stems:
            pair = [data_dir / f"{stem}.{language}" for language in (SOURCE, TARGET)]
            there = [path for path in pair if path.is_file()]
            if len(there) == 1:
                (missing,) = set(pair) - set(there)
                raise ValueError(f"data_dir={str(data_dir)!r}: {there[0].name} is there, but {missing.name} is not")
            if there and split not in planned:
                planned[split] = [Shard(0, "file", Pairs(tuple(map(str, pair)), split, params))]
    return planned or _tables(params, data_dir)


def _tables(params: Mapping[str, Any], folder: Path) -> dict[str, list[Shard]]:
    found = {split: sorted((folder / FOLDER).glob(f"{split}-*.parquet")) for split in _STEMS}
    return {
        split: [Shard(number, "file", Pairs((str(path),), split, params)) for number, path in enumerate(paths)]
        for split, paths in found.items()
        if paths
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    return shard.payload.paths


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: files are damaged or have different numbers of lines, or a pair of validation or test is not whole.
    """
    pairs = shard.payload
    form = pairs.params["text_form"]
    for source, target, place in _texts(pairs.paths):
        source, target = source.strip(), target.strip()
        row = {
            "source": source,
            "target": target,
            "length": count_words(source, form),
            "target_length": count_words(target, form),
        }
        if pairs.split != "train":
            check_pair(source, target, place)
        elif not all(
            pairs.params["min_length"] <= row[name] <= pairs.params["max_length"]
            for name in ("length", "target_length")
        ):
            continue
        yield row


def _texts(files: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """The two texts of each pair, and their place for messages."""
    if len(files) == 2:
        yield from _lines(*files)
        return
    for number, row in enumerate(parquet_rows(files[0], ("translation",)), start=1):
        place, found = f"{files[0]}, row {number}", row["translation"]
        texts = [found.get(name) if isinstance(found, dict) else None for name in (SOURCE, TARGET)]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{place}: expected texts in {SOURCE} and {TARGET} of 'translation', got {found!r:.80}")
        yield *texts, place


def _lines(source: str, target: str) -> Iterator[tuple[str, str, str]]:
    try:
        # other line ends than this one are characters of crawled texts
        with (
            open(source, encoding="utf-8", newline="\n") as first,
            open(target, encoding="utf-8", newline="\n") as second,
        ):
            for number, (left, right) in enumerate(zip_longest(first, second), start=1):
                if left is None or right is None:
                    longer, shorter = (source, target) if right is None else (target, source)
                    raise ValueError(f"{longer} has more lines than {shorter}, which ends after {number - 1}")
                yield left, right, f"{source}:{number}"
    except UnicodeDecodeError as error:
        raise ValueError(f"{source}, {target}: expected UTF-8 text ({error})") from error
