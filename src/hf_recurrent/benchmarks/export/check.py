"""Check of a folder: whether it is an export that can be published as a data set."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...files import absolute, read_yaml
from ..files import parquet_rows
from .card import DIGEST_PREFIX, EVAL_FILE, README_FILE, data_files, eval_tasks, feature_list, read_metadata
from .parquet import rows_digest, shard_name


@dataclass(frozen=True)
class DatasetFacts:
    """Content of a checked folder: numbers of rows by config and split, digests by config, and its `files`,
    relative to it."""

    benchmark: str
    generator_version: str
    rows: dict[str, dict[str, int]]
    digests: dict[str, str]
    files: list[str]


def check_dataset_folder(folder: str | os.PathLike, repo_name: str | None = None) -> DatasetFacts:
    """The facts about an exported folder, after reading it from end to end.

    Args:
        folder: a folder that `export_benchmark` wrote.
        repo_name: the repository that it is for (with or without the namespace), if known.

    Raises:
        ValueError: with every problem found: it is no export, a file is missing, unexpected or damaged, a script
            would make `load_dataset` refuse the repository, examples do not have the card's digests.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r}: there is no such folder; make it with export_benchmark")
    entries = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = [name for name, path in entries.items() if path.is_file()]
    odd = [name for name, path in entries.items() if not path.is_file() and (path.is_symlink() or not path.is_dir())]
    problems = [f"{name} is neither a file nor a folder: remove it" for name in odd]
    problems += _script_problems(files, {absolute(folder).name, (repo_name or "").rpartition("/")[2]} - {""})
    facts = None
    try:
        facts, features = _read_facts(folder, files)
    except ValueError as error:
        problems.append(f"not an export of a benchmark: {error}")
    else:
        problems += _file_problems(facts)
        problems += _evaluation_problems(facts, folder)
        for config in facts.rows:
            problems += _content_problems(facts, config, features[config], folder)
    if problems:
        raise ValueError(f"{folder} cannot be published as a data set:\n" + "\n".join(f"- {text}" for text in problems))
    return facts


def _read_facts(folder: Path, files: list[str]) -> tuple[DatasetFacts, dict[str, list[dict[str, Any]]]]:
    """The facts on the card, and the features of each config.

    Raises ValueError where the front matter is not of our shape, or its parts contradict each other.
    """
    data = read_metadata(folder)
    try:
        own = data["hf_recurrent"]
        rows = {config: dict(entry["splits"]) for config, entry in own["configs"].items()}
        digests = {config: entry["digest"] for config, entry in own["configs"].items()}
        facts = DatasetFacts(own["benchmark"], own["generator_version"], rows, digests, files)
        features = {entry["config_name"]: entry["features"] for entry in data["dataset_info"]}
        described = {entry["config_name"]: (entry["description"], entry["data_files"]) for entry in data["configs"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the front matter of {README_FILE} is not as an export writes it ({error!r})") from error
    expected = {config: (digests[config], data_files(config, list(splits))) for config, splits in rows.items()}
    if described != expected or set(features) != set(expected):
        raise ValueError(f"in {README_FILE}, 'configs', 'dataset_info' and 'hf_recurrent' contradict each other")
    return facts, features


def _script_problems(files: Sequence[str], names: set[str]) -> list[str]:
    refused = {f"{name}.py" for name in names}
    return [
        f"{file}: `load_dataset` refuses a repository with a script of its own name"
        if file in refused
        else f"{file}: a script; a data set holds data only"
        for file in files
        if file.endswith(".py")
    ]


def _shards(facts: DatasetFacts, config: str, split: str) -> list[str]:
    return [file for file in facts.files if fnmatchcase(file, f"{config}/{split}-*") and file.count("/") == 1]


def _file_problems(facts: DatasetFacts) -> list[str]:
    """Files on the card that are missing, and files that are not on the card."""
    expected = {README_FILE, EVAL_FILE}
    problems = [f"{file} is missing" for file in (README_FILE, EVAL_FILE) if file not in facts.files]
    for config, splits in facts.rows.items():
        for split in splits:
            found = _shards(facts, config, split)
            expected.update(found)
            if not found:
                problems.append(f"config {config!r}, split {split!r}: no file matches {config}/{split}-*")
            elif found != [f"{config}/{shard_name(split, i, len(found))}" for i in range(len(found))]:
                problems.append(f"config {config!r}, split {split!r}: {', '.join(found)} is no whole series of files")
    for file in facts.files:
        if file not in expected and not file.endswith(".py"):
            unnamed = file.endswith(".parquet") and file.count("/") == 1
            problems.append(f"{file}: {'no config names it' if unnamed else 'does not belong to an export'}")
    return problems


def _evaluation_problems(facts: DatasetFacts, folder: Path) -> list[str]:
    if not (folder / EVAL_FILE).is_file():
        return []
    try:
        found = read_yaml(folder / EVAL_FILE)
    except ValueError as error:
        return [str(error)]
    if not isinstance(found, dict) or found.get("tasks") != eval_tasks(facts.rows):
        return [f"{EVAL_FILE}: its tasks are not the validation and test splits of {README_FILE}"]
    return []


def _content_problems(facts: DatasetFacts, config: str, features: list[dict[str, Any]], folder: Path) -> list[str]:
    """Differences between the card and the examples of a config."""
    import pyarrow

    paths = {split: [folder / file for file in _shards(facts, config, split)] for split in facts.rows[config]}
    counts = dict.fromkeys(paths, 0)
    try:
        if any(_features(path) != features for found in paths.values() for path in found):
            return [f"config {config!r}: the columns of its files are not those of {README_FILE}"]
        rows = {split: _count_rows(found, split, counts) for split, found in paths.items()}
        digest = DIGEST_PREFIX + rows_digest(rows, _label_names(features))
    except (pyarrow.ArrowException, KeyError, OSError, TypeError, ValueError) as error:
        return [f"config {config!r}: a file cannot be read ({error})"]
    problems = [
        f"config {config!r}, split {split!r}: {counts[split]} rows, but {expected} in {README_FILE}"
        for split, expected in facts.rows[config].items()
        if counts[split] != expected
    ]
    if digest != facts.digests[config]:
        problems.append(f"config {config!r}: its rows do not have the digest in {README_FILE}")
    return problems


def _features(path: Path) -> list[dict[str, Any]]:
    import datasets
    import pyarrow.parquet

    return feature_list(datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(path)))


def _label_names(features: list[dict[str, Any]]) -> list[str]:
    """The names of the labels; none for benchmarks of language modelling, which have no label."""
    labels = [entry["dtype"]["class_label"] for entry in features if isinstance(entry["dtype"], dict)]
    return [name for label in labels for name in label["names"].values()]


def _count_rows(paths: Sequence[Path], split: str, counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    """The rows of some files; `counts[split]` grows with them."""
    for path in paths:
        for row in parquet_rows(str(path)):
            counts[split] += 1
            yield row
