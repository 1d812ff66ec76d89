"""Dataset cards: `DatasetCard` + `dataset_card_template.md` -> README.md."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...templating import template
from ..info import BenchmarkInfo
from ..show import Description
from .metadata import dump_yaml, metadata
from .statistics import SplitFacts

TEMPLATE = Path(__file__).with_name("dataset_card_template.md")
MOST_CHARACTERS = 300


@dataclass(frozen=True)
class ConfigFacts:
    """A config as it was exported.

    `info` are the facts about it. `parameters` are those that differ from their defaults, `digest` is that of
    `rows_digest`, `features` are spelled as in `dataset_info`, `num_bytes` is what all rows take in memory; `example`
    is a row of the split `example_split`.
    """

    name: str
    info: BenchmarkInfo
    description: str
    parameters: dict[str, Any]
    digest: str
    features: list[dict[str, Any]]
    num_bytes: int
    splits: list[SplitFacts]
    example: Description
    example_split: str

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits)


@dataclass(frozen=True)
class DatasetCard:
    """What the card says: `command` makes the same files again with the packages `versions` (name -> version)."""

    info: BenchmarkInfo
    configs: list[ConfigFacts]
    command: str
    versions: dict[str, str]

    def distinct(self, fact: str) -> list[Any]:
        """What the configs say of one fact, in their order, each answer once."""
        return list(dict.fromkeys(getattr(config.info, fact) for config in self.configs))

    @property
    def follows_versions(self) -> bool:
        """Whether another version of a package, or of Python, may make other rows."""
        return any(config.info.packages or not config.info.synthetic for config in self.configs)

    @property
    def limits(self) -> list[str]:
        return list(dict.fromkeys(limit for limits in self.distinct("limits") for limit in limits))

    @property
    def columns(self) -> list[tuple[BenchmarkInfo, list[str]]]:
        """Facts about columns, with the names of the configs that have these columns."""
        known: dict[tuple, tuple[BenchmarkInfo, list[str]]] = {}
        for config in self.configs:
            info = config.info
            key = (*info.text_columns, *info.name_columns, *info.label_names, *info.column_meanings.values())
            known.setdefault(key, (info, []))[1].append(config.name)
        return list(known.values())

    @property
    def default_config(self) -> str:
        """What `load_dataset` without a config loads."""
        names = [config.name for config in self.configs]
        return self.info.default_config if self.info.default_config in names else names[0]


def render_card(card: DatasetCard) -> str:
    """Text of README.md. The same facts always give the same text."""
    filters = {
        "cell": _cell,
        "count": "{:,}".format,
        "decimal": "{:.2f}".format,
        "percent": "{:.1%}".format,
        "literal": json.dumps,
        "megabytes": _megabytes,
        "elided": _elided,
        "fence": _fence,
    }
    shown = next(config for config in card.configs if config.name == card.default_config)
    return template(TEMPLATE, **filters).render(
        card=card, info=card.info, shown=shown, front_matter=dump_yaml(metadata(card)).strip()
    )


def _cell(value: object) -> str:
    """Text that cannot end its table cell or break its line."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.2f} MB"


def _fence(texts: Mapping[str, str]) -> str:
    """What begins and ends a block of code that shows some texts: more backticks than any of them has in a row."""
    runs = [len(run) for text in texts.values() for run in re.findall("`+", _elided(text))]
    return "`" * (max([2, *runs]) + 1)


def _elided(text: str) -> str:
    """The beginning of a long text, cut between words."""
    if len(text) <= MOST_CHARACTERS:
        return text
    kept = text[:MOST_CHARACTERS].rsplit(" ", 1)[0]
    return f"{kept} ... ({len(text.split()) - len(kept.split())} more words)"
