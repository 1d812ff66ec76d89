"""What the package knows about a benchmark family, in one record."""

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .info import BenchmarkInfo
from .sampling import GENERATOR_VERSION, Shard


@dataclass(frozen=True)
class Family:
    """A benchmark and the modules that make it.

    `configs` holds its parameters, `splits` makes generated rows (None where no rows are generated: then `files.root`
    says where those of a config are), `files` reads the authors' or the user's (None where they cannot be read), and
    `trees` shows rows to people (None where they have no parse). In given files, only the configs `file_configs` and
    the parameters `file_parameters` have a meaning. `export_configs` are those that are ours to publish; None: all.
    """

    info: BenchmarkInfo
    configs: types.ModuleType
    splits: types.ModuleType | None
    trees: types.ModuleType | None
    normalize: Callable[[str], str]
    files: types.ModuleType | None = None
    file_parameters: tuple[str, ...] = ()
    file_configs: tuple[str, ...] = ()
    file_names: str = ""
    export_configs: tuple[str, ...] | None = None

    def rows(self, shard: Shard) -> Iterator[dict[str, Any]]:
        return (self.files if shard.source == "file" else self.splits).rows(shard)


def family_info(configs: types.ModuleType, *, default_config: str = "original", **facts: Any) -> BenchmarkInfo:
    """The facts about a family, of which its module `configs` holds the parameters."""
    facts = {"license": "Apache-2.0 (generated data)", **facts}
    return BenchmarkInfo(
        version=GENERATOR_VERSION,
        configs=MappingProxyType(configs.CONFIGS),
        default_config=default_config,
        parameters=configs.DEFAULTS,
        parameter_meanings=MappingProxyType({name: known.meaning for name, known in configs.PARAMETERS.items()}),
        **facts,
    )
