"""The machine-readable half of a data set: the front matter of its card, and `eval.yaml`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...metrics.serialize import plain
from ..tasks import task_id

if TYPE_CHECKING:
    import datasets

    from ..info import BenchmarkInfo
    from .card import DatasetCard

README_FILE = "README.md"
EVAL_FILE = "eval.yaml"
FRAMEWORK = "hf-recurrent"
DIGEST_PREFIX = "sha256:"

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def metadata(card: "DatasetCard") -> dict[str, Any]:
    """Hub metadata, what `load_dataset` reads, and our `hf_recurrent` block.

    `dataset_info` has no `splits`: `datasets` compares the numbers of rows in it with those it reads, so that
    `load_dataset(..., filters=...)` would always fail. They are in our block instead.
    """
    info = card.info
    return {
        "pretty_name": info.title,
        **_license(card),
        "task_categories": list(dict.fromkeys(map(_task, (config.info for config in card.configs)))),
        "annotations_creators": ["machine-generated" if info.synthetic else "no-annotation"],
        "source_datasets": ["original"],
        "size_categories": [size_category(sum(split.rows for config in card.configs for split in config.splits))],
        "tags": ["hf_recurrent", *(["synthetic"] if info.synthetic else []), info.name],
        "configs": [
            {
                "config_name": config.name,
                # both are in the key of the local cache, which knows nothing of the files' contents
                "version": info.version,
                "description": DIGEST_PREFIX + config.digest,
                **({"default": True} if config.name == card.default_config else {}),
                "data_files": [
                    {"split": split.name, "path": data_files(config.name, split.name)} for split in config.splits
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


def _task(info: "BenchmarkInfo") -> str:
    if not info.label_names:
        return "text-generation"
    return "image-classification" if info.modality == "pixels" else "text-classification"


def _license(card: "DatasetCard") -> dict[str, Any]:
    """The licence, or those of the configs; the Hub has room for one that it does not know."""
    found = dict.fromkeys((config.info.license, config.info.license_link) for config in card.configs)
    names = list(dict.fromkeys("other" if link else text.split()[0].lower() for text, link in found))
    licenses: dict[str, Any] = {"license": names[0] if len(names) == 1 else names}
    for text, link in found:
        if link:
            licenses |= {"license_name": text.split()[0].lower(), "license_link": link}
    return licenses


def data_files(config: str, split: str) -> str:
    """The pattern of a split's files, relative to the repository."""
    return f"{config}/{split}-*"


def size_category(rows: int) -> str:
    """The Hub's name for a number of rows."""
    return next((name for limit, name in _SIZES if rows < limit), "1M<n<10M" if rows < 10_000_000 else "n>10M")


def feature_list(features: "datasets.Features") -> list[dict[str, Any]]:
    """Flat features as `dataset_info` spells them."""
    return [
        {"name": name, "dtype": {"class_label": {"names": {str(i): label for i, label in enumerate(feature.names)}}}}
        if hasattr(feature, "names")
        else {"name": name, "dtype": feature.dtype}
        for name, feature in features.items()
    ]


def eval_tasks(splits: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The tasks of `eval.yaml`: every split (by config) that is not for training."""
    return [
        {"id": task_id(config, split), "config": config, "split": split}
        for config, names in splits.items()
        for split in names
        if split != "train"
    ]


def evaluation(card: "DatasetCard") -> dict[str, Any]:
    """The content of `eval.yaml`, by which the Hub knows a data set as a benchmark."""
    return {
        "name": card.info.title,
        "description": card.info.description,
        "evaluation_framework": FRAMEWORK,
        "tasks": eval_tasks({config.name: {split.name: split for split in config.splits} for config in card.configs}),
    }


def dump_yaml(value: Any) -> str:
    """YAML of plain scalars, keys in the order given."""
    import yaml

    return yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=110)


def read_metadata(folder: Path) -> dict[str, Any]:
    """The front matter of the card in `folder`.

    Raises ValueError where there is no card of an export.
    """
    import yaml

    readme = folder / README_FILE
    if not readme.is_file():
        raise ValueError(f"it has no {README_FILE}")
    try:
        match = _FRONT_MATTER.match(readme.read_text(encoding="utf-8"))
        data = yaml.safe_load(match.group(1)) if match else None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"the front matter of {README_FILE} is not YAML: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("hf_recurrent"), dict):
        raise ValueError(f"{README_FILE} has no front matter with a 'hf_recurrent' block")
    return data
