"""What the package knows about a benchmark family, in one record."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from .info import BenchmarkInfo
from .parameters import unknown
from .sampling import GENERATOR_VERSION, Shard


@dataclass(frozen=True)
class Family:
    """A benchmark and the modules that make it.

    `configs` holds its parameters, `splits` makes generated rows (None where no rows are generated: then `files.root`
    says where those of a config are), `files` reads the authors' or the user's (None where they cannot be read), and
    `trees` shows rows to people (None where they have no parse). In given files, only the configs `file_configs` and
    the parameters `file_parameters` have a meaning. `export_configs` are those that are ours to publish; None: all.

    Where configs differ in their facts and modules, `members` has the family of each; what the whole says of itself
    then is what its default config says, but for the description.
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
    members: "Mapping[str, Family]" = field(default_factory=dict)

    def member(self, config_name: str | None) -> "Family":
        """The family of a config; None: the whole.

        Raises ValueError for a config that does not exist, where there are members.
        """
        if config_name is None or not self.members:
            return self
        if config_name not in self.members:
            raise unknown("config", config_name, self.members, of=f" of benchmark {self.info.name!r}")
        return self.members[config_name]

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


def gathered(members: Mapping[str, Family], description: str) -> Family:
    """A family whose configs have families of their own, each of which knows all configs."""
    first = next(iter(members.values()))
    whole = members[first.info.default_config]
    return replace(whole, info=replace(whole.info, description=description), members=MappingProxyType(dict(members)))
