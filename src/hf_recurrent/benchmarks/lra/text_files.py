"""IMDB: from the authors' files, or those of the Hub, to the rows of every split.

- The authors' archive (aclImdb): `train/neg/*.txt`, `train/pos/*.txt`, `test/neg/*.txt`, `test/pos/*.txt`, in a folder
  or a zip file, or in the folder `aclImdb` there. The reviews without labels, `train/unsup`, are not read.
- The data set on the Hub: `plain_text/<split>-*.parquet` with the columns `text` and `label`.

Negative reviews come first, as in both. Texts stay as they are, HTML line ends included; bytes that are no UTF-8 are
data (`byte_text`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..archive import open_files
from ..sampling import Shard, digest
from .hub_tables import Table, count_rows, divide, has_tables, root, split_tables, table_rows  # noqa: F401
from .labelled_texts import FOLDERS, PATTERN, Text, Texts, labelled, text_paths, text_rows, text_shards
from .rows import text_row

_ROOTS = ("", "aclImdb/")
_COLUMNS = ("text", "label")


class ReviewTable(NamedTuple):
    """A table of the Hub."""

    table: Table
    max_bytes: int


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of train, validation and test; without `num_validation`, validation is test.

    Raises:
        ValueError: folders or tables are missing, or validation would leave nothing to train on.
    """
    planned = (_plan_tables if has_tables(data_dir) else _plan_texts)(params, data_dir)
    return {split: planned[split] for split in ("train", "validation", "test") if planned[split]}


def held_out(total: int, num_validation: int) -> frozenset[int]:
    """The places of the validation rows among the `total` rows of train: those whose hashes are the smallest.

    Raises:
        ValueError: nothing is left to train on.
    """
    if num_validation >= total:
        raise ValueError(
            f"num_validation={num_validation}: train has {total} rows, and some must stay there: give fewer"
        )
    return frozenset(sorted(range(total), key=lambda place: digest("lra", "text", place))[:num_validation])


def _plan_tables(params: Mapping[str, Any], folder: Path) -> dict[str, list[Shard]]:
    tables, num_validation = split_tables(folder), params["num_validation"]
    splits = {split: [Table(path) for path in paths] for split, paths in tables.items()}
    if num_validation is None:
        splits["validation"] = splits["test"]
    else:
        counts = [count_rows(path, "label") for path in tables["train"]]
        for split, places in divide(counts, held_out(sum(counts), num_validation)).items():
            splits[split] = [Table(*part) for part in zip(tables["train"], places, strict=True) if part[1]]
    return {
        split: [Shard(number, "file", ReviewTable(table, params["max_bytes"])) for number, table in enumerate(members)]
        for split, members in splits.items()
    }


def _plan_texts(params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    splits, num_validation = _splits(data_dir), params["num_validation"]
    if num_validation is None:
        splits["validation"] = splits["test"]
    else:
        texts = splits["train"]
        for split, (places,) in divide([len(texts)], held_out(len(texts), num_validation)).items():
            splits[split] = [texts[place] for place in sorted(places)]
    return {split: text_shards(data_dir, texts, params["max_bytes"]) for split, texts in splits.items()}


def _splits(data_dir: Path) -> dict[str, list[Text]]:
    """The authors' train and test texts."""
    with open_files(data_dir) as files:
        found = {base: {split: labelled(files, f"{base}{split}/") for split in ("train", "test")} for base in _ROOTS}
    missing = {
        base: [folder for folders in splits.values() for folder, texts in folders.items() if not texts]
        for base, splits in found.items()
    }
    best = min(_ROOTS, key=lambda base: len(missing[base]))
    if missing[best]:
        raise ValueError(
            f"data_dir={str(data_dir)!r} has no {', '.join(f'{folder}/{PATTERN}' for folder in missing[best])}: "
            f"expected train and test, each with {' and '.join(FOLDERS)}, there or in its folder aclImdb"
        )
    return {split: [text for texts in folders.values() for text in texts] for split, folders in found[best].items()}


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    payload = shard.payload
    return text_paths(payload) if isinstance(payload, Texts) else (payload.table.path,)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: a file or table is damaged, or a review has no text or label.
    """
    payload = shard.payload
    if isinstance(payload, Texts):
        yield from text_rows(payload)
        return
    for place, row in table_rows(payload.table, _COLUMNS):
        text, label = (row[column] for column in _COLUMNS)
        if not isinstance(text, str) or not text:
            raise ValueError(f"{place}: expected text in 'text', got {text!r:.80}")
        if type(label) is not int or label not in range(len(FOLDERS)):
            raise ValueError(f"{place}: expected 0 or 1 in 'label', got {label!r:.80}")
        yield text_row(text.encode(), label, payload.max_bytes)
