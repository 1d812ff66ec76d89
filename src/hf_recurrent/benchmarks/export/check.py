"""Whether a folder is an export that can be published as a data set."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .digest import rows_digest
from .metadata import DIGEST_PREFIX, EVAL_FILE, README_FILE, data_files, eval_tasks, feature_list, read_metadata
from .shards import ROWS_PER_GROUP, shard_name


@dataclass(frozen=True)
class DatasetFacts:
    """What a checked folder holds: numbers of rows by config and split, digests by config, and its `files`,
    relative to it."""

    benchmark: str
    generator_version: str
    rows: dict[str, dict[str, int]]
    digests: dict[str, str]
    files: list[str]


def check_dataset_folder(folder: str | os.PathLike, repo_name: str | None = None) -> DatasetFacts:
    """Reads an exported folder from end to end, and returns what it holds.

    Args:
        folder: what `export_benchmark` wrote.
        repo_name: the repository that it is for (with or without the namespace), if known.

    Raises:
        ValueError: with every problem found: it is no export, a file is missing, unexpected or damaged, a script
            would make `load_dataset` refuse the repository, rows are not those of the card's digests.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r}: there is no such folder; make it with export_benchmark")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    problems = _script_problems(files, {folder.resolve().name, (repo_name or "").rpartition("/")[2]} - {""})
    facts = None
    try:
        card = _Card.of(read_metadata(folder))
    except ValueError as error:
        problems.append(f"not an export of a benchmark: {error}")
    else:
        problems += _file_problems(card, files)
        problems += _evaluation_problems(card, folder)
        digests = {}
        for config in card.splits:
            found, digests[config] = _content_problems(card, config, folder, files)
            problems += found
        facts = DatasetFacts(card.benchmark, card.generator_version, card.splits, digests, files)
    if problems:
        raise ValueError(f"{folder} cannot be published as a data set:\n" + "\n".join(f"- {text}" for text in problems))
    return facts


@dataclass(frozen=True)
class _Card:
    """What the front matter says, in the shape in which we write it; `splits` are rows by config and split."""

    benchmark: str
    generator_version: str
    splits: dict[str, dict[str, int]]
    digests: dict[str, str]
    features: dict[str, list[dict[str, Any]]]
    labels: dict[str, list[str]]

    @classmethod
    def of(cls, data: dict[str, Any]) -> "_Card":
        """Raises ValueError where the front matter is not of our shape, or its parts contradict each other."""
        try:
            own = data["hf_recurrent"]
            card = cls(
                benchmark=own["benchmark"],
                generator_version=own["generator_version"],
                splits={config: dict(facts["splits"]) for config, facts in own["configs"].items()},
                digests={config: facts["digest"] for config, facts in own["configs"].items()},
                features={entry["config_name"]: entry["features"] for entry in data["dataset_info"]},
                labels={entry["config_name"]: _labels(entry["features"]) for entry in data["dataset_info"]},
            )
            described = {
                entry["config_name"]: (
                    entry["description"],
                    {(file["split"], file["path"]) for file in entry["data_files"]},
                )
                for entry in data["configs"]
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the front matter of {README_FILE} is not as an export writes it ({error!r})") from error
        expected = {
            config: (card.digests[config], {(split, data_files(config, split)) for split in splits})
            for config, splits in card.splits.items()
        }
        if described != expected or set(card.features) != set(expected):
            raise ValueError(f"in {README_FILE}, 'configs', 'dataset_info' and 'hf_recurrent' contradict each other")
        return card


def _script_problems(files: Sequence[str], names: set[str]) -> list[str]:
    refused = {f"{name}.py" for name in names}
    return [
        f"{file}: `load_dataset` refuses a repository with a script of its own name"
        if file in refused
        else f"{file}: a script; a data set holds data only"
        for file in files
        if file.endswith(".py")
    ]


def _shards(config: str, split: str, files: Sequence[str]) -> list[str]:
    return [file for file in files if fnmatchcase(file, data_files(config, split)) and file.count("/") == 1]


def _file_problems(card: _Card, files: Sequence[str]) -> list[str]:
    """Files that the card names and are not there, and the other way round."""
    problems = [f"{file} is missing" for file in (README_FILE, EVAL_FILE) if file not in files]
    expected = {README_FILE, EVAL_FILE}
    for config, splits in card.splits.items():
        for split in splits:
            found = _shards(config, split, files)
            expected.update(found)
            whole = [f"{config}/{shard_name(split, i, len(found))}" for i in range(len(found))]
            if not found:
                problems.append(f"config {config!r}, split {split!r}: no file matches {data_files(config, split)}")
            elif found != whole:
                problems.append(f"config {config!r}, split {split!r}: {', '.join(found)} is no whole series of files")
    for file in files:
        if file not in expected and not file.endswith(".py"):
            unnamed = file.endswith(".parquet") and file.count("/") == 1
            problems.append(f"{file}: {'no config names it' if unnamed else 'does not belong to an export'}")
    return problems


def _evaluation_problems(card: _Card, folder: Path) -> list[str]:
    import yaml

    if not (folder / EVAL_FILE).is_file():
        return []
    try:
        found = yaml.safe_load((folder / EVAL_FILE).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        return [f"{EVAL_FILE} is not YAML: {error}"]
    if not isinstance(found, dict) or found.get("tasks") != eval_tasks(card.splits):
        return [f"{EVAL_FILE}: its tasks are not the validation and test splits of {README_FILE}"]
    return []


def _content_problems(card: _Card, config: str, folder: Path, files: Sequence[str]) -> tuple[list[str], str]:
    """What is wrong with the rows of a config, and their digest."""
    import pyarrow

    paths = {split: [folder / file for file in _shards(config, split, files)] for split in card.splits[config]}
    counts = dict.fromkeys(paths, 0)
    try:
        if any(_features(path) != card.features[config] for found in paths.values() for path in found):
            return [f"config {config!r}: the columns of its files are not those of {README_FILE}"], ""
        rows = {split: _rows(found, split, counts) for split, found in paths.items()}
        digest = DIGEST_PREFIX + rows_digest(rows, card.labels[config])
    except (pyarrow.ArrowException, KeyError, OSError, TypeError, ValueError) as error:
        return [f"config {config!r}: a file cannot be read ({error})"], ""
    problems = [
        f"config {config!r}, split {split!r}: {counts[split]} rows, but {expected} in {README_FILE}"
        for split, expected in card.splits[config].items()
        if counts[split] != expected
    ]
    if digest != card.digests[config]:
        problems.append(f"config {config!r}: its rows do not have the digest in {README_FILE}")
    return problems, digest


def _features(path: Path) -> list[dict[str, Any]]:
    import datasets
    import pyarrow.parquet

    return feature_list(datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(path)))


def _labels(features: list[dict[str, Any]]) -> list[str]:
    found = [entry["dtype"]["class_label"]["names"] for entry in features if isinstance(entry["dtype"], dict)]
    # benchmarks of language modelling have no label
    (names,) = found or [{}]
    return list(names.values())


def _rows(paths: Sequence[Path], split: str, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """The rows of some files; `counts[split]` grows with them."""
    import pyarrow.parquet

    for path in paths:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
                counts[split] += batch.num_rows
                yield from batch.to_pylist()
