"""`export_benchmark`: from a benchmark's name to a folder that can be published as it is."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...metrics.serialize import new_folder, write_bytes
from ..api import load_benchmark
from ..benchmark import Benchmark
from ..registry import get_benchmark
from ..show import describe_example
from .card import ConfigFacts, DatasetCard, render_card
from .digest import rows_digest
from .metadata import EVAL_FILE, README_FILE, dump_yaml, evaluation, feature_list, read_metadata
from .settings import ConfigChoice, choose, regenerate_command
from .shards import row_groups, write_split
from .statistics import split_facts, typical_row

if TYPE_CHECKING:
    import datasets

# what the bytes of an export depend on
PACKAGES = ("hf-recurrent", "pyarrow", "datasets")
TREE_LINES = 16


def export_benchmark(
    name: str,
    folder: str | os.PathLike,
    *,
    configs: Sequence[str] | None = None,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    params: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Path:
    """Writes a benchmark as a dataset repository: Parquet files, README.md and eval.yaml, and nothing else.

    The same call gives the same bytes in any folder, on any day and for any `num_proc`. An earlier export of the
    benchmark in `folder` is replaced as a whole; an export that fails leaves everything as it was.

    Args:
        name: one of `list_benchmarks()`.
        folder: a folder that does not exist, is empty, or holds an earlier export of the benchmark.
        configs: which configs; None: all of them.
        num_proc: processes that compute rows.
        cache_dir: where `load_benchmark` keeps the rows, instead of the cache of `datasets`.
        params: parameters of `load_benchmark`; each config takes those that it has.
        progress: whether `datasets` shows its progress bars.

    Returns:
        The folder, as an absolute path.

    Raises:
        ValueError: for a name, config or parameter that is not as it should be, and for a folder that holds
            anything else.
    """
    benchmark = get_benchmark(name)
    choices = choose(benchmark, configs, params or {})
    with new_folder(folder, lambda place: _check_earlier_export(name, place)) as built, _progress_bars(progress):
        facts = []
        for choice in choices:
            splits = load_benchmark(name, choice.name, num_proc=num_proc, cache_dir=cache_dir, **choice.given)
            facts.append(_write_config(benchmark.member(choice.name), choice, splits, built))
        card = DatasetCard(
            info=benchmark.info,
            configs=facts,
            command=regenerate_command(benchmark, choices),
            versions=_versions(facts),
        )
        write_bytes(built / README_FILE, render_card(card).encode())
        write_bytes(built / EVAL_FILE, dump_yaml(evaluation(card)).encode())
    return Path(folder).expanduser().resolve()


def _write_config(
    benchmark: Benchmark, choice: ConfigChoice, splits: "datasets.DatasetDict", folder: Path
) -> ConfigFacts:
    info = benchmark.info
    num_bytes, facts = 0, []
    for split, dataset in splits.items():
        num_bytes += write_split(dataset, folder / choice.name, split)
        paths = sorted((folder / choice.name).glob(f"{split}-*"))
        facts.append(split_facts(info, split, dataset, paths))
    example_split, dataset = next(iter(splits.items()))
    return ConfigFacts(
        name=choice.name,
        info=info,
        description=info.configs[choice.name],
        parameters=choice.changed,
        digest=rows_digest({split: _rows(dataset) for split, dataset in splits.items()}, info.label_names),
        features=feature_list(dataset.features),
        num_bytes=num_bytes,
        splits=facts,
        example=describe_example(info.name, typical_row(info, dataset), TREE_LINES, choice.name),
        example_split=example_split,
    )


def _versions(facts: Sequence[ConfigFacts]) -> dict[str, str]:
    packages = dict.fromkeys([*PACKAGES, *(package for config in facts for package in config.info.packages)])
    versions = {package: importlib.metadata.version(package) for package in packages}
    # the texts are those of its library
    if all(config.info.synthetic for config in facts):
        return versions
    return {"python": platform.python_version(), **versions}


def _rows(dataset: "datasets.Dataset") -> Iterator[dict[str, Any]]:
    for table in row_groups(dataset, 0, dataset.num_rows):
        yield from table.to_pylist()


def _check_earlier_export(name: str, folder: Path) -> None:
    """Raises ValueError unless everything in `folder` is from an export of the benchmark."""
    try:
        found = read_metadata(folder)["hf_recurrent"].get("benchmark")
    except ValueError as error:
        raise _refusal(folder, f"is not empty, and no earlier export: {error}") from error
    if found != name:
        raise _refusal(folder, f"holds an export of {found!r}, not of {name!r}")
    own = {folder / README_FILE, folder / EVAL_FILE, *folder.glob("*/*.parquet")}
    other = sorted(path for path in folder.rglob("*") if not path.is_dir() and path not in own)
    if other:
        names = ", ".join(str(path.relative_to(folder)) for path in other[:5])
        raise _refusal(folder, f"holds an earlier export and {len(other)} more file(s) that would be lost ({names})")


def _refusal(folder: Path, reason: str) -> ValueError:
    return ValueError(f"folder={str(folder)!r} {reason}; name another folder, or empty this one")


@contextmanager
def _progress_bars(wanted: bool) -> Iterator[None]:
    """Shows or hides the bars of `datasets` for a while."""
    import datasets

    show = {True: datasets.enable_progress_bars, False: datasets.disable_progress_bars}
    before = not datasets.are_progress_bars_disabled()
    show[bool(wanted)]()
    try:
        yield
    finally:
        show[before]()
