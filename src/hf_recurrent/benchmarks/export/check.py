"""Check of a folder: whether it is an export that can be published as a data set."""

import logging
import os
import re
from pathlib import Path
from typing import NamedTuple

from ...utils import one_line, read_yaml
from .card import DIGEST_PREFIX, EVAL_FILE, README_FILE, eval_tasks, read_metadata
from .parquet import rows_digest

# <split>-<number>-of-<count>.parquet
SHARD = re.compile(r"(\w+)-\d{5}-of-\d{5}\.parquet")


class DatasetFacts(NamedTuple):
    """Content of a checked folder: numbers of rows by config and split, digests by config, and its files' paths."""

    benchmark: str
    generator_version: str
    rows: dict[str, dict[str, int]]
    digests: dict[str, str]
    files: list[str]


def check_dataset_folder(folder: str | os.PathLike) -> DatasetFacts:
    """The facts about an exported folder, after `datasets` has read it from end to end.

    Raises:
        ValueError: it is no export, has files that no export has, or its rows are not those of the card's digests.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r}: there is no such folder; make it with export_benchmark")
    try:
        own = read_metadata(folder)["hf_recurrent"]
        digests = {config: entry["digest"] for config, entry in own["configs"].items()}
        splits = {config: dict(entry["splits"]) for config, entry in own["configs"].items()}
        facts = DatasetFacts(own["benchmark"], own["generator_version"], splits, digests, [])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder} cannot be published as a data set: it is not an export of a benchmark ({error})"
        ) from error
    problems = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        config, _, file = name.rpartition("/")
        shard = SHARD.fullmatch(file)
        if path.is_file() and (name in (README_FILE, EVAL_FILE) or (shard and shard[1] in splits.get(config, ()))):
            facts.files.append(name)
        elif not path.is_dir() or path.is_symlink():
            problems.append(f"{name} does not belong to an export: remove it")
    if EVAL_FILE not in facts.files:
        problems.append(f"{EVAL_FILE} is missing")
    else:
        found = read_yaml(folder / EVAL_FILE)
        if not isinstance(found, dict) or found.get("tasks") != eval_tasks(splits):
            problems.append(f"{EVAL_FILE}: its tasks are not the validation and test splits of {README_FILE}")
    for config in splits if not problems else ():
        try:
            problems += _content_problems(folder, config, facts)
        # a damaged file makes the loader fail in whatever way it happens to
        except Exception as error:
            problems.append(f"config {config!r} does not load ({one_line(error.__cause__ or error)})")
    if problems:
        raise ValueError(f"{folder} cannot be published as a data set:\n" + "\n".join(f"- {text}" for text in problems))
    return facts


def _content_problems(folder: Path, config: str, facts: DatasetFacts) -> list[str]:
    """Differences between the card and what users will load, which is read as a stream: nothing of it is kept."""
    import datasets

    level = datasets.logging.get_verbosity()
    # the error says what `datasets` logs
    datasets.logging.set_verbosity(logging.CRITICAL)
    try:
        splits = datasets.load_dataset(str(folder), config, streaming=True)
        features = next(iter(splits.values())).features
        digest = DIGEST_PREFIX + rows_digest(splits, getattr(features.get("label"), "names", ()))
    finally:
        datasets.logging.set_verbosity(level)
    if digest != facts.digests[config]:
        return [f"config {config!r}: its rows do not have the digest in {README_FILE}"]
    return []
