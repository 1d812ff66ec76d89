"""An export that several machines share: each writes a part, and the parts together are the export of one machine."""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...changes import new_folder
from ...files import absolute, file_hash, plain, read_json, write_json
from ..api import known_part, load_benchmark
from ..registry import get_benchmark
from ..sampling import Part
from .api import package_versions, progress_bars, refusal, write_export
from .parquet import write_split
from .settings import ConfigChoice, choose

PART_FILE = "part.json"
# <config>/<split>-00000-of-00001.parquet
FILE = re.compile(r"\w+/\w+-\d{5}-of-\d{5}\.parquet")


class Facts(NamedTuple):
    """What a part says of itself.

    Attributes:
        part: its number, and how many there are.
        whole: what all parts have in common: benchmark, parameters by config, and versions.
        files: hashes of its files by relative path.
        splits: the files of each split that it has examples of, by config.
    """

    part: Part
    whole: dict[str, Any]
    files: dict[str, str]
    splits: dict[str, dict[str, list[str]]]


def export_part(
    name: str,
    folder: str | os.PathLike,
    part: tuple[int, int],
    *,
    configs: Sequence[str] | None = None,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    params: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Path:
    """Write one machine's part of an export: Parquet files and part.json, for `merge_parts`.

    Args:
        folder: a folder that does not exist, is empty, or holds a part.
        part: `(number, count)`: the `number`-th of `count` parts, counted from 1.
        name, configs, num_proc, cache_dir, params, progress: as for `export_benchmark`; the same for all parts.

    Returns:
        The folder, as an absolute path.

    Raises:
        ValueError: as for `export_benchmark`, or `part` is not as it should be.
    """
    benchmark, chosen = get_benchmark(name), known_part(part)
    choices = choose(benchmark, configs, params or {})
    with new_folder(folder, _check_earlier_part) as built, progress_bars(progress):
        splits: dict[str, dict[str, list[str]]] = {}
        for choice in choices:
            options = {"part": chosen, "num_proc": num_proc, "cache_dir": cache_dir}
            made = load_benchmark(name, choice.name, **options, **choice.given)
            splits[choice.name] = {
                split: [path.relative_to(built).as_posix() for path in write_split(rows, built / choice.name, split)[0]]
                for split, rows in made.items()
            }
        whole = {
            "benchmark": name,
            "configs": {choice.name: plain(choice.given) for choice in choices},
            "versions": package_versions([benchmark.member(choice.name).info for choice in choices]),
        }
        files = {name: file_hash(built / name) for own in splits.values() for names in own.values() for name in names}
        write_json(built / PART_FILE, Facts(chosen, whole, files, splits)._asdict())
    return absolute(folder)


def merge_parts(parts: Sequence[str | os.PathLike], folder: str | os.PathLike, *, progress: bool = False) -> Path:
    """Write the export of which these folders are all parts, in any order: the bytes that `export_benchmark` writes.

    Args:
        parts: folders that `export_part` wrote.
        folder, progress: as for `export_benchmark`.

    Returns:
        The folder, as an absolute path.

    Raises:
        ValueError: a folder is no part, is damaged or of another export, or parts are missing or there twice.
    """
    from datasets import Dataset, DatasetDict, concatenate_datasets

    found = _in_order({Path(place): read_part(Path(place)) for place in parts})
    whole = next(iter(found.values())).whole
    benchmark = get_benchmark(whole["benchmark"])
    given = {name: value for own in whole["configs"].values() for name, value in own.items()}
    choices = choose(benchmark, list(whole["configs"]), given)
    versions = package_versions([benchmark.member(choice.name).info for choice in choices])
    if whole["versions"] != versions:
        raise ValueError(
            f"the parts were made by {_shown(whole['versions'])}, and here is {_shown(versions)}: use the same versions"
        )

    with tempfile.TemporaryDirectory() as cache, progress_bars(progress):

        def splits_of(choice: ConfigChoice) -> DatasetDict:
            runs: dict[str, list[Dataset]] = {}
            for place, facts in found.items():
                for split, names in facts.splits[choice.name].items():
                    paths = [str(place / name) for name in names]
                    runs.setdefault(split, []).append(Dataset.from_parquet(paths, cache_dir=cache))
            return DatasetDict({split: concatenate_datasets(own) for split, own in runs.items()})

        return write_export(benchmark, choices, splits_of, folder)


def read_part(folder: Path) -> Facts:
    """The facts about a part, whose files are all there and as they were written.

    Raises ValueError where they are not, or where the folder is no part.
    """
    if not (folder / PART_FILE).is_file():
        raise ValueError(f"parts: {folder} has no {PART_FILE}; make it with `hf-recurrent benchmark export --part`")
    data = read_json(folder / PART_FILE)
    try:
        facts = Facts(**{**data, "part": known_part(data["part"])})
        listed = {name for own in facts.splits.values() for names in own.values() for name in names}
        if set(facts.whole) != {"benchmark", "configs", "versions"} or set(facts.splits) != set(facts.whole["configs"]):
            raise ValueError("its configs contradict each other")
        if listed != set(facts.files) or not all(map(FILE.fullmatch, listed)):
            raise ValueError("its files contradict each other")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"parts: {folder / PART_FILE} is not as `export_part` writes it ({error})") from error
    for name, stored in facts.files.items():
        path = folder / name
        if not path.is_file() or file_hash(path) != stored:
            raise ValueError(f"parts: {path} is missing or damaged: copy or make part {facts.part} again")
    return facts


def _in_order(found: Mapping[Path, Facts]) -> dict[Path, Facts]:
    """The parts by number. Raises ValueError unless they are all parts of one export, each of them once."""
    if not found:
        raise ValueError("parts: expected folders that `export_part` wrote, found none")
    (first, facts), *others = found.items()
    for place, other in others:
        if (other.whole, other.part.count) != (facts.whole, facts.part.count):
            raise ValueError(
                f"parts: {first} is part {facts.part} of {json.dumps(facts.whole)}, and {place} is part {other.part} "
                f"of {json.dumps(other.whole)}: make both by the same command and versions"
            )
    numbers = [facts.part.number for facts in found.values()]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    missing = sorted(set(range(1, facts.part.count + 1)) - set(numbers))
    if twice or missing:
        told = [f"{word} {', '.join(map(str, own))}" for word, own in (("missing:", missing), ("twice:", twice)) if own]
        raise ValueError(f"parts: of {facts.part.count}, {'; '.join(told)}")
    return dict(sorted(found.items(), key=lambda item: item[1].part.number))


def _shown(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{package} {version}" for package, version in versions.items())


def _check_earlier_part(folder: Path) -> None:
    """Raise ValueError unless everything in `folder` is of a part."""
    try:
        own = {PART_FILE, *read_part(folder).files}
    except ValueError as error:
        raise refusal(folder, f"is not empty, and no whole part: {error}") from error
    other = sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()} - own)
    if other:
        raise refusal(folder, f"holds a part and {len(other)} more file(s) that would be lost ({', '.join(other[:5])})")
