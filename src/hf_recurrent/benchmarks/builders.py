"""The `datasets` builders, made by one factory.

The cache of `datasets` knows nothing of a builder's code or defaults, so `make_builder` names the data set
and hashes everything the rows depend on: the class, the generator version, all resolved parameters and, where
files are read, their contents.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from datasets.builder import Key

from .registry import (
    CFQ,
    COMPOSITIONAL_TABLE_LOOKUP,
    FLIP_FLOP,
    LISTOPS,
    LISTOPS_DEPTH,
    LOGICAL_INFERENCE,
    LOGICAL_INFERENCE_TRANSLATION,
    LONG_DOCUMENTS,
    LRA,
    LRA_STAND_IN,
    SIMPLE_ARITHMETIC,
    WMT14_EN_DE,
    Family,
    get_family,
)
from .sampling import Shard, digest


@dataclass
class BenchmarkConfig(datasets.BuilderConfig):
    """`params` are all parameters of the config; `files_dir` is the folder of the authors' files, or None."""

    params: dict[str, Any] = field(default_factory=dict)
    files_dir: str | None = None


class BenchmarkBuilder(datasets.GeneratorBasedBuilder):
    """A thin shell: `family` plans the splits as lists of shards and turns each shard into rows."""

    BUILDER_CONFIG_CLASS = BenchmarkConfig
    family: Family

    @property
    def member(self) -> Family:
        return self.family.member(self.config.name)

    def _info(self) -> datasets.DatasetInfo:
        info = self.member.info
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
        name, params, files_dir = self.config.name, self.config.params, self.config.files_dir
        if files_dir is None:
            plan = self.member.splits.plan(name, params)
        else:
            plan = self.member.files.plan(name, params, Path(files_dir))
        return [datasets.SplitGenerator(name=split, gen_kwargs={"shards": shards}) for split, shards in plan.items()]

    def _generate_examples(self, shards: list[Shard]) -> Iterator[tuple[Key, dict[str, Any]]]:
        for shard in shards:
            for i, row in enumerate(self.member.rows(shard)):
                yield Key(shard.number, i), row


class ListOps(BenchmarkBuilder):
    family = LISTOPS


class LogicalInference(BenchmarkBuilder):
    family = LOGICAL_INFERENCE


class FlipFlop(BenchmarkBuilder):
    family = FLIP_FLOP


class CompositionalTableLookup(BenchmarkBuilder):
    family = COMPOSITIONAL_TABLE_LOOKUP


class SimpleArithmetic(BenchmarkBuilder):
    family = SIMPLE_ARITHMETIC


class ListOpsDepth(BenchmarkBuilder):
    family = LISTOPS_DEPTH


class LongDocuments(BenchmarkBuilder):
    family = LONG_DOCUMENTS
    # a row can be as large as a library: few are held at a time
    DEFAULT_WRITER_BATCH_SIZE = 16


class LogicalInferenceTranslation(BenchmarkBuilder):
    family = LOGICAL_INFERENCE_TRANSLATION


class CompositionalFreebaseQuestions(BenchmarkBuilder):
    family = CFQ


class WMT14EnglishGerman(BenchmarkBuilder):
    family = WMT14_EN_DE


class LongRangeArena(BenchmarkBuilder):
    family = LRA


class LongRangeArenaStandIn(BenchmarkBuilder):
    family = LRA_STAND_IN


_BUILDERS = {
    builder.family.info.name: builder
    for builder in (
        ListOps,
        LogicalInference,
        FlipFlop,
        CompositionalTableLookup,
        SimpleArithmetic,
        ListOpsDepth,
        LongDocuments,
        LogicalInferenceTranslation,
        CompositionalFreebaseQuestions,
        WMT14EnglishGerman,
        LongRangeArena,
        LongRangeArenaStandIn,
    )
}


def make_builder(
    name: str, config_name: str, params: dict[str, Any], files_dir: Path | None, cache_dir: str | None
) -> BenchmarkBuilder:
    """The builder of one config with all its parameters resolved."""
    family, builder = get_family(name, config_name), _BUILDERS[name]
    contents = None if files_dir is None else _contents(family, config_name, params, files_dir)
    key = digest(builder.__qualname__, config_name, params, contents)[:16]
    return builder(
        cache_dir=cache_dir,
        dataset_name=name,
        config_name=config_name,
        config_id=f"{config_name}-{key}",
        hash=key,
        version=datasets.Version(family.info.version),
        params=params,
        files_dir=None if files_dir is None else str(files_dir),
    )


def _contents(family: Family, config_name: str, params: dict[str, Any], files_dir: Path) -> dict[str, str]:
    """The hash of every file that the config reads from `files_dir`."""
    plan = family.files.plan(config_name, params, files_dir)
    paths = {path for shards in plan.values() for shard in shards for path in family.files.paths(shard)}
    hashes = {}
    for path in sorted(paths):
        stored = Path(path).resolve()
        if stored.parent.name == "blobs":
            # the Hub's cache has hashed it already, and calls it by its hash
            hashes[path] = stored.name
            continue
        content = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                content.update(block)
        hashes[path] = content.hexdigest()
    return hashes
