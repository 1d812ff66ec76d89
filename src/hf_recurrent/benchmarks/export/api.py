"""`export_benchmark`: from a benchmark's name to a folder that can be published as it is."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...utils import absolute, new_folder, write_bytes
from ..api import load_benchmark
from ..info import BenchmarkInfo
from ..registry import get_benchmark
from ..show import describe_example
from .card import (
    EVAL_FILE,
    README_FILE,
    ConfigFacts,
    DatasetCard,
    SplitFacts,
    read_metadata,
    render_card,
    render_evaluation,
)
from .parquet import rows_digest, write_split
from .settings import changed, choose, regenerate_command

if TYPE_CHECKING:
    import datasets

# packages that the bytes of an export depend on
PACKAGES = ("hf-recurrent", "pyarrow", "datasets")
TREE_LINES = 16
# examples that the one on the card is chosen from
CANDIDATES = 200


def export_benchmark(
    name: str,
    folder: str | os.PathLike,
    *,
    configs: Sequence[str] | None = None,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    params: Mapping[str, Any] | None = None,
) -> Path:
    """Write a benchmark as a dataset repository: Parquet files, README.md and eval.yaml, and nothing else.

    The same call gives the same bytes in any folder, on any day and for any `num_proc`. An earlier export of the
    benchmark in `folder` is replaced as a whole; an export that fails leaves everything as it was.

    Args:
        name: one of `list_benchmarks()`.
        folder: a folder that does not exist, is empty, or holds an earlier export of the benchmark.
        configs: which configs; None: all of them.
        num_proc: processes that make examples.
        cache_dir: where `load_benchmark` keeps the examples, instead of the cache of `datasets`.
        params: parameters of `load_benchmark`; each config gets those that it takes.

    Returns:
        The folder, as an absolute path.

    Raises:
        ValueError: an unknown name, config or parameter, an unsuitable value, or a folder that holds anything else.
    """
    benchmark = get_benchmark(name)
    choices = choose(benchmark, configs, params or {})
    with new_folder(folder, lambda place: _check_earlier_export(name, place)) as built:
        facts = []
        for config, given in choices.items():
            splits = load_benchmark(name, config, num_proc=num_proc, cache_dir=cache_dir, **given)
            info = benchmark.member(config).info
            facts.append(_write_config(info, config, changed(info, config, given), splits, built / config))
        infos = [config.info for config in facts]
        packages = dict.fromkeys([*PACKAGES, *(package for info in infos for package in info.packages)])
        versions = {package: importlib.metadata.version(package) for package in packages}
        if not all(info.synthetic for info in infos):
            # these read the texts of Python's own library
            versions = {"python": platform.python_version(), **versions}
        card = DatasetCard(benchmark.info, facts, regenerate_command(benchmark.info, choices), versions)
        write_bytes(built / README_FILE, render_card(card).encode())
        write_bytes(built / EVAL_FILE, render_evaluation(card).encode())
    return absolute(folder)


def _write_config(
    info: BenchmarkInfo, name: str, parameters: dict[str, Any], splits: "datasets.DatasetDict", folder: Path
) -> ConfigFacts:
    num_bytes, facts = 0, []
    for split, dataset in splits.items():
        paths, in_memory = write_split(dataset, folder, split)
        num_bytes += in_memory
        labels = ["label"] if info.label_names else []
        table = dataset.select_columns([*info.slice_columns, *labels]).to_pandas()
        counts = table["label"].value_counts() if labels else {}
        facts.append(
            SplitFacts(
                name=split,
                rows=len(table),
                file_bytes=sum(path.stat().st_size for path in paths),
                columns=table[list(info.slice_columns)].agg(["min", "mean", "max"]).to_dict(),
                labels={name: int(counts.get(label, 0)) for label, name in enumerate(info.label_names)},
            )
        )
    dataset = next(iter(splits.values()))
    # an easy but not trivial example: a quarter of the first ones have shorter texts
    examples = dataset.select(range(min(CANDIDATES, dataset.num_rows))).to_list()
    examples.sort(key=lambda example: sum(len(example[column]) for column in info.text_columns))
    return ConfigFacts(
        name=name,
        info=info,
        parameters=parameters,
        digest=rows_digest(splits, info.label_names),
        features=dataset.features._to_yaml_list(),
        num_bytes=num_bytes,
        splits=facts,
        example=describe_example(info.name, examples[len(examples) // 4], TREE_LINES, name),
    )


def _check_earlier_export(name: str, folder: Path) -> None:
    """Raise ValueError unless everything in `folder` is from an export of the benchmark."""
    advice = "name another folder, or empty this one"
    try:
        found = read_metadata(folder)["hf_recurrent"].get("benchmark")
    except ValueError as error:
        raise ValueError(f"folder={str(folder)!r} is not empty, and no earlier export: {error}; {advice}") from error
    if found != name:
        raise ValueError(f"folder={str(folder)!r} holds an export of {found!r}, not of {name!r}; {advice}")
    own = {folder / README_FILE, folder / EVAL_FILE, *folder.glob("*/*.parquet")}
    other = sorted(path for path in folder.rglob("*") if not path.is_dir() and path not in own)
    if other:
        names = ", ".join(str(path.relative_to(folder)) for path in other[:5])
        raise ValueError(
            f"folder={str(folder)!r} holds an earlier export and {len(other)} more file(s) that would be lost "
            f"({names}); {advice}"
        )
