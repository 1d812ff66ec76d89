"""The card of a data set, README.md, and `eval.yaml`: written from facts, and read back."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...utils import FRONT_MATTER, parse_yaml, plain, template
from ..info import BenchmarkInfo
from ..show import Description
from ..tasks import task_id

README_FILE = "README.md"
EVAL_FILE = "eval.yaml"
FRAMEWORK = "hf-recurrent"
DIGEST_PREFIX = "sha256:"
TEMPLATE = Path(__file__).with_name("dataset_card_template.md")
MAX_CHARACTERS = 300

_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


@dataclass(frozen=True)
class SplitFacts:
    """A split in numbers: its rows, the bytes of its Parquet files, `min`, `mean` and `max` of its slice columns, and
    the number of examples with each label (`labels`, by name; empty where there are none)."""

    name: str
    rows: int
    file_bytes: int
    columns: dict[str, dict[str, float]]
    labels: dict[str, int]


@dataclass(frozen=True)
class ConfigFacts:
    """An exported config.

    `parameters` are those that differ from their defaults, `digest` is that of `rows_digest`, `features` are written as
    in `dataset_info`, `num_bytes` is the memory that all examples take; `example` is from the first split.
    """

    name: str
    info: BenchmarkInfo
    parameters: dict[str, Any]
    digest: str
    features: list[dict[str, Any]]
    num_bytes: int
    splits: list[SplitFacts]
    example: Description

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits)


@dataclass(frozen=True)
class DatasetCard:
    """Facts on the card: `command` makes the same files again with the packages `versions` (name -> version)."""

    info: BenchmarkInfo
    configs: list[ConfigFacts]
    command: str
    versions: dict[str, str]

    def distinct(self, fact: str) -> list[Any]:
        """The distinct values of a fact about the configs, in their order."""
        return list(dict.fromkeys(getattr(config.info, fact) for config in self.configs))

    @property
    def follows_versions(self) -> bool:
        """Whether another version of a package, or of Python, may make other examples."""
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
        """The config that `load_dataset` loads if none is given."""
        names = [config.name for config in self.configs]
        return self.info.default_config if self.info.default_config in names else names[0]


def render_card(card: DatasetCard) -> str:
    """Text of README.md. The same facts always give the same text."""
    from huggingface_hub import DatasetCardData

    filters = {
        # text that cannot end its table cell or break its line
        "cell": lambda value: str(value).replace("|", "\\|").replace("\n", " "),
        "count": "{:,}".format,
        "decimal": "{:.2f}".format,
        "percent": "{:.1%}".format,
        "literal": json.dumps,
        "megabytes": lambda num_bytes: f"{num_bytes / 1e6:.2f} MB",
        "elided": _elided,
        "fence": _fence,
    }
    return template(TEMPLATE, **filters).render(
        card=card,
        info=card.info,
        shown=next(config for config in card.configs if config.name == card.default_config),
        front_matter=DatasetCardData(**plain(_metadata(card))).to_yaml(),
    )


def render_evaluation(card: DatasetCard) -> str:
    """Text of `eval.yaml`, by which the Hub knows a data set as a benchmark."""
    import yaml

    content = {
        "name": card.info.title,
        "description": card.info.description,
        "evaluation_framework": FRAMEWORK,
        "tasks": eval_tasks({config.name: [split.name for split in config.splits] for config in card.configs}),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


def eval_tasks(splits: Mapping[str, Iterable[str]]) -> list[dict[str, str]]:
    """The tasks of `eval.yaml`: every split (by config) that is not for training."""
    return [
        {"id": task_id(config, split), "config": config, "split": split}
        for config, names in splits.items()
        for split in names
        if split != "train"
    ]


def read_metadata(folder: Path) -> dict[str, Any]:
    """The front matter of the card in `folder`.

    Raises ValueError where there is no card of an export.
    """
    if not (folder / README_FILE).is_file():
        raise ValueError(f"it has no {README_FILE}")
    text = (folder / README_FILE).read_text(encoding="utf-8", errors="replace")
    found = FRONT_MATTER.match(text)
    data = parse_yaml(found.group(1), f"the front matter of {README_FILE}") if found else None
    if not isinstance(data, dict) or not isinstance(data.get("hf_recurrent"), dict):
        raise ValueError(f"{README_FILE} has no front matter with a 'hf_recurrent' block")
    return data


def _metadata(card: DatasetCard) -> dict[str, Any]:
    """Hub metadata, the entries that `load_dataset` reads, and our `hf_recurrent` block.

    `dataset_info` has no `splits`: `datasets` compares the numbers of rows in it with those it reads, so that
    `load_dataset(..., filters=...)` would always fail. They are in our block instead.
    """
    info, rows = card.info, sum(config.rows for config in card.configs)
    # the licence, or those of the configs; the Hub takes the name and link of one licence that it does not know
    found = dict.fromkeys((config.info.license, config.info.license_link) for config in card.configs)
    names = list(dict.fromkeys("other" if link else text.split()[0].lower() for text, link in found))
    licenses: dict[str, Any] = {"license": names[0] if len(names) == 1 else names}
    for text, link in found:
        if link:
            licenses |= {"license_name": text.split()[0].lower(), "license_link": link}
    return {
        "pretty_name": info.title,
        **licenses,
        "task_categories": list(
            dict.fromkeys(
                "text-generation"
                if not config.info.label_names
                else "image-classification"
                if config.info.modality == "pixels"
                else "text-classification"
                for config in card.configs
            )
        ),
        "annotations_creators": ["machine-generated" if info.synthetic else "no-annotation"],
        "source_datasets": ["original"],
        "size_categories": [next((name for limit, name in _SIZES if rows < limit), "n>10M")],
        "tags": ["hf_recurrent", *(["synthetic"] if info.synthetic else []), info.name],
        "configs": [
            {
                "config_name": config.name,
                # version and digest are in the key of the local cache, which does not depend on the files' contents
                "version": info.version,
                "description": DIGEST_PREFIX + config.digest,
                **({"default": True} if config.name == card.default_config else {}),
                "data_files": [
                    {"split": split.name, "path": f"{config.name}/{split.name}-*"} for split in config.splits
                ],
            }
            for config in card.configs
        ],
        "dataset_info": [
            {
                "config_name": config.name,
                "features": config.features,
                "download_size": sum(split.file_bytes for split in config.splits),
                "dataset_size": config.num_bytes,
            }
            for config in card.configs
        ],
        "hf_recurrent": {
            "benchmark": info.name,
            "generator_version": info.version,
            "pyarrow": card.versions["pyarrow"],
            "configs": {
                config.name: {
                    "digest": DIGEST_PREFIX + config.digest,
                    "parameters": config.parameters,
                    "splits": {split.name: split.rows for split in config.splits},
                }
                for config in card.configs
            },
        },
    }


def _fence(texts: Mapping[str, str]) -> str:
    """The fence of a block of code that shows some texts: more backticks than any of them has in a row."""
    runs = [len(run) for text in texts.values() for run in re.findall("`+", _elided(text))]
    return "`" * (max([2, *runs]) + 1)


def _elided(text: str) -> str:
    """The beginning of a long text, cut between words."""
    if len(text) <= MAX_CHARACTERS:
        return text
    kept = text[:MAX_CHARACTERS].rsplit(" ", 1)[0]
    return f"{kept} ... ({len(text.split()) - len(kept.split())} more words)"
