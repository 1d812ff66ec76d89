"""From the authors' files, or those of the Hub, to the rows of every split.

- The authors' archive (cfq1.1.tar.gz, unpacked): `dataset.json`, a list of all questions, and `splits/<config>.json`,
  whose `trainIdxs`, `devIdxs` and `testIdxs` are places in it. Rows are in the order of `dataset.json`.
- The data set on the Hub: `<config>/<split>-*.parquet` with the columns `question` and `query`. It leaves out the
  authors' validation questions.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..hub_files import snapshot
from ..json_array import array_items
from ..parquet import parquet_rows
from ..sampling import Shard
from .questions import make_row

QUESTION, QUERY = "questionPatternModEntities", "sparqlPatternModEntities"
_INDICES = {"train": "trainIdxs", "validation": "devIdxs", "test": "testIdxs"}
_COLUMNS = ("question", "query")


class Places(NamedTuple):
    """The rows of the authors' data set that a split names."""

    dataset: str
    split_file: str
    split: str
    params: Mapping[str, Any]


class Table(NamedTuple):
    """A table of the Hub."""

    path: str
    params: Mapping[str, Any]


def root(config_name: str, params: Mapping[str, Any]) -> Path:
    """The folder of a config's files of the Hub; what is not here yet is downloaded.

    Raises:
        ValueError: the data set cannot be had, or has no such files.
    """
    folder = snapshot(params["dataset"], params["revision"], [f"{config_name}/*.parquet"])
    if not _tables(config_name, params, folder):
        raise ValueError(
            f"dataset={params['dataset']!r} has no files {config_name}/<split>-*.parquet: name another one, or give "
            "data_dir"
        )
    return folder


def plan(config_name: str, params: Mapping[str, Any], data_dir: Path) -> dict[str, list[Shard]]:
    """The shards of every split that there are files for: one for each table, or one for all of the authors' rows."""
    dataset, split_file = data_dir / "dataset.json", data_dir / "splits" / f"{config_name}.json"
    if dataset.is_file() and split_file.is_file():
        return {split: [Shard(0, "file", Places(str(dataset), str(split_file), split, params))] for split in _INDICES}
    return _tables(config_name, params, data_dir)


def _tables(config_name: str, params: Mapping[str, Any], folder: Path) -> dict[str, list[Shard]]:
    found = {split: sorted((folder / config_name).glob(f"{split}-*.parquet")) for split in _INDICES}
    return {
        split: [Shard(number, "file", Table(str(path), params)) for number, path in enumerate(paths)]
        for split, paths in found.items()
        if paths
    }


def paths(shard: Shard) -> tuple[str, ...]:
    """The files that a shard is read from."""
    payload = shard.payload
    return (payload.path,) if isinstance(payload, Table) else (payload.dataset, payload.split_file)


def rows(shard: Shard) -> Iterator[dict[str, object]]:
    """The rows of a planned shard.

    Raises:
        ValueError: a file is damaged, lacks something, or holds a question or query that cannot be read.
    """
    payload = shard.payload
    if isinstance(payload, Table):
        for number, row in enumerate(parquet_rows(payload.path, _COLUMNS), start=1):
            yield _row(row, _COLUMNS, payload.params, f"{payload.path}, row {number}")
        return
    wanted = _indices(payload)
    last = -1
    for last, item in enumerate(array_items(payload.dataset)):
        if last in wanted:
            yield _row(item, (QUESTION, QUERY), payload.params, f"{payload.dataset}, item {last}")
    if wanted and max(wanted) > last:
        raise ValueError(
            f"{payload.split_file}: {_INDICES[payload.split]} names item {max(wanted)}, but {payload.dataset} has "
            f"{last + 1}: are both from the same archive?"
        )


def _indices(places: Places) -> set[int]:
    name = _INDICES[places.split]
    try:
        content = json.loads(Path(places.split_file).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{places.split_file} is not JSON ({error}): is it whole?") from error
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(type(index) is int and index >= 0 for index in found):
        raise ValueError(f"{places.split_file}: expected {name}, a list of whole numbers, places in dataset.json")
    return set(found)


def _row(item: Any, names: tuple[str, str], params: Mapping[str, Any], place: str) -> dict[str, object]:
    found = [item.get(name) if isinstance(item, dict) else None for name in names]
    for name, value in zip(names, found, strict=True):
        if not isinstance(value, str):
            raise ValueError(f"{place}: expected text in {name}, got {value!r:.80}")
    return make_row(*found, params["group_triples"], params["normalize_inverses"], place)
