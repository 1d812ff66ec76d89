"""The `datasets` builder of all benchmarks.

The cache of `datasets` knows nothing of a builder's code or defaults, so `make_builder` names the data set and hashes
everything its examples depend on: the benchmark, the generator version, all resolved parameters, the packages' versions
and, where files are read, their contents.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from datasets.builder import Key

from ..utils import file_hash, reader_versions
from .benchmark import Benchmark
from .registry import get_benchmark
from .sampling import Shard, digest

# names of files in the Hub's cache: sums by git, or by SHA-256 of large files
HUB_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass
class BenchmarkConfig(datasets.BuilderConfig):
    """`params` are all parameters of the config; `files_dir` is the folder of the files to read, or None."""

    benchmark: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    files_dir: str | None = None

    def member(self) -> Benchmark:
        return get_benchmark(self.benchmark, self.name)


class BenchmarkBuilder(datasets.GeneratorBasedBuilder):
    """A thin shell: the benchmark plans its splits as lists of shards, each of which makes its examples."""

    BUILDER_CONFIG_CLASS = BenchmarkConfig

    def _info(self) -> datasets.DatasetInfo:
        info = self.config.member().info
        label = {"label": datasets.ClassLabel(names=list(info.label_names))} if info.label_names else {}
        features = {
            **{column: datasets.Value(info.text_type) for column in info.text_columns},
            **{column: datasets.Value("string") for column in info.name_columns},
            **label,
            **{column: datasets.Value(info.slice_type) for column in info.slice_columns},
        }
        return datasets.DatasetInfo(
            description=info.description,
            features=datasets.Features(features),
            homepage=info.paper,
            citation=info.citation,
        )

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        config, benchmark = self.config, self.config.member()
        if config.files_dir is None:
            plan = benchmark.plan(config.name, config.params)
        else:
            plan = benchmark.plan_files(config.name, config.params, Path(config.files_dir))
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"shards": list(enumerate(shards))})
            for split, shards in plan.items()
        ]

    def _generate_examples(self, shards: list[tuple[int, Shard]]) -> Iterator[tuple[Key, dict[str, Any]]]:
        for number, shard in shards:
            for i, example in enumerate(shard.examples()):
                yield Key(number, i), example


def make_builder(
    name: str,
    config_name: str,
    params: dict[str, Any],
    files_dir: Path | None,
    cache_dir: str | None,
) -> BenchmarkBuilder:
    """The builder of one config, with all its parameters resolved."""
    whole, benchmark = get_benchmark(name), get_benchmark(name, config_name)
    contents = None
    if files_dir is not None:
        plan = benchmark.plan_files(config_name, params, files_dir)
        paths = sorted({path for shards in plan.values() for shard in shards for path in shard.paths})
        # the Hub's cache calls a file by its hash
        stored = {path: Path(path).resolve() for path in paths}
        contents = {
            path: file.name if file.parent.name == "blobs" and HUB_HASH.fullmatch(file.name) else file_hash(path)
            for path, file in stored.items()
        }
    key = digest(type(whole).__name__, config_name, params, contents, reader_versions())[:16]
    return BenchmarkBuilder(
        cache_dir=cache_dir,
        dataset_name=name,
        config_name=config_name,
        config_id=f"{config_name}-{key}",
        hash=key,
        version=datasets.Version(benchmark.info.version),
        writer_batch_size=benchmark.writer_batch_size,
        benchmark=name,
        params=params,
        files_dir=None if files_dir is None else str(files_dir),
    )
