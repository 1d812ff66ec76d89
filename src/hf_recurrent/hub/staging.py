"""From an output folder to a clean folder with exactly the files that belong on the Hub."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .. import files
from ..analysis.tables import CALIBRATION_FILE, EXPERT_FILE, HALTING_FILE, INSIDE_FILE, RECURRENCE_FILE, SWEEP_FILE
from ..registry import ARCHITECTURES
from .base_model import CONVERTED_FILE, LINEAGE_FILE, read_base_model
from .card import lint_card, read_card, write_card
from .checkpoint import write_code
from .converted_card import is_converted, read_converted, write_converted
from .disclosure import check_disclosure
from .inputs import INPUTS_FILE
from .lint import CARD_FILE, README_FILE, image_paths
from .tasks import task_of

CONFIG_FILE = "config.json"
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
TOKENIZER_CONFIG = "tokenizer_config.json"
CONFIGS = ("generation_config.json", TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.jinja")
CODE_FILES = tuple(f"{kind}_{name}.py" for kind in ("configuration", "modeling", "kernels") for name in ARCHITECTURES)
RESULTS = ".eval_results/*.yaml"
ASSETS = "assets/*.png"
# numbers beside a card
STATISTICS = (HALTING_FILE, RECURRENCE_FILE, SWEEP_FILE, EXPERT_FILE, CALIBRATION_FILE, INSIDE_FILE)
# where a checkpoint lay when it was loaded; on the Hub it says nothing, and it may be a local path
ORIGINS = ("_name_or_path", "name_or_path", "_commit_hash")


def is_publishable(path: str) -> bool:
    """Whether a checkpoint's repository may hold `path` (relative, with slashes): the kinds of files that we write."""
    names = (
        README_FILE,
        CARD_FILE,
        CONVERTED_FILE,
        INPUTS_FILE,
        *STATISTICS,
        CONFIG_FILE,
        WEIGHTS_FILE,
        INDEX_FILE,
        *CONFIGS,
        *TOKENIZER_FILES,
    )
    if path in (*names, *CODE_FILES):
        return True
    depth = path.count("/")
    return any(pattern.count("/") == depth and fnmatchcase(path, pattern) for pattern in (SHARDS, RESULTS, ASSETS))


def stage_checkpoint(source: str | os.PathLike, target: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Copy what belongs on the Hub from the checkpoint folder `source` into the new folder `target`.

    The config gets a complete `auto_map`, the code is written by this package, and a card that was rendered from
    `card.json` is rendered for `repo_id` (None: for the folder it names already). Whatever else lies in `source`,
    such as training checkpoints, is left behind.

    Raises:
        ValueError: `source` is no checkpoint of this package, or its card cannot be published.
    """
    source, target = Path(source), Path(target)
    config = read_config(source)
    weights = weight_files(source)
    if not (source / README_FILE).is_file():
        raise ValueError(f"{source} has no {README_FILE}: a published checkpoint needs a model card")
    target.mkdir(parents=True)
    for name in (*weights, *present(source, (*TOKENIZER_FILES, INPUTS_FILE))):
        shutil.copyfile(source / name, target / name)
    for name in present(source, CONFIGS):
        files.write_json(target / name, without_origins(read_json(source / name)))
    auto_map = dict(ARCHITECTURES[config["model_type"]].auto_map)
    files.write_json(target / CONFIG_FILE, {**without_origins(config), "auto_map": auto_map})
    write_code(config["model_type"], target)
    stage_card(source, target, repo_id, config)
    check_disclosure(target)
    return target


def present(source: Path, names: Iterable[str]) -> list[str]:
    """The files of a folder among `names`. Raises ValueError where one is a folder or a link that leads nowhere."""
    there = [name for name in names if os.path.lexists(source / name)]
    for name in there:
        if not (source / name).is_file():
            raise ValueError(f"{source / name} is no file, nor a link to one: remove it, or put the file there")
    return there


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError where it holds anything else."""
    data = files.read_json(path)
    if not isinstance(data, dict):
        raise ValueError(f"{path}: expected an object, got {type(data).__name__}")
    return data


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint of one of our families, naming the class that was saved."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: pass the output folder of a run")
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(f"{folder} has no {CONFIG_FILE}: it is not a checkpoint; pass the output folder of a run")
    config = read_json(folder / CONFIG_FILE)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in ARCHITECTURES:
        raise ValueError(
            f"{folder / CONFIG_FILE}: model_type is {model_type!r}: expected one of {sorted(ARCHITECTURES)}"
        )
    family = ARCHITECTURES[model_type]
    known = [family.prefix + suffix for suffix in family.heads.values()]
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or architectures[0] not in known:
        raise ValueError(f"{folder / CONFIG_FILE}: architectures is {architectures}: expected one of {known}")
    return config


def weight_files(folder: Path) -> list[str]:
    """The safetensors files of a checkpoint, as `from_pretrained` picks them: one, or several and their index."""
    if (folder / WEIGHTS_FILE).is_file():
        return [WEIGHTS_FILE]
    if (folder / INDEX_FILE).is_file():
        weight_map = read_json(folder / INDEX_FILE).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ValueError(f"{folder / INDEX_FILE} has no weight_map from weights to files")
        shards = sorted(set(weight_map.values()))
        wrong = [name for name in shards if not fnmatchcase(name, SHARDS) or not (folder / name).is_file()]
        if wrong or not shards:
            raise ValueError(f"{folder / INDEX_FILE} names {wrong or 'no files'}: expected existing files {SHARDS}")
        return [INDEX_FILE, *shards]
    others = sorted(path.name for path in folder.glob("*.bin")) + sorted(path.name for path in folder.glob("*.pt"))
    found = f" (it has {', '.join(others)}, which are never published: save the model again)" if others else ""
    raise ValueError(f"{folder} has no {WEIGHTS_FILE}{found}")


def without_origins(data: dict[str, Any]) -> dict[str, Any]:
    """A config without the places it was loaded from."""
    return {name: value for name, value in data.items() if name not in ORIGINS}


def stage_card(source: Path, target: Path, repo_id: str | None, config: dict[str, Any]) -> None:
    """The card with all it shows: figures, statistics and evaluation results; `config` is that of the checkpoint."""
    for name in present(source, STATISTICS):
        shutil.copyfile(source / name, target / name)
    rendered = (source / CARD_FILE).is_file()
    # the card as it stands, so that an edited one is refused instead of being replaced silently
    lint_card(source)
    text = (source / README_FILE).read_text(encoding="utf-8")
    for name in STATISTICS:
        if name in text and not (target / name).is_file():
            raise ValueError(f"{source} has no {name}, which its {README_FILE} refers to")
    if "AutoTokenizer" in text and not (target / TOKENIZER_CONFIG).is_file():
        raise ValueError(f"{source} has no {TOKENIZER_CONFIG}, but its {README_FILE} loads a tokenizer")
    for image in image_paths(text):
        if not is_publishable(image):
            raise ValueError(f"{source / README_FILE} shows {image}: figures must be {ASSETS}")
        (target / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / image, target / image)
    if rendered:
        data = read_card(source)
        if task_of(config) != data.task:
            raise ValueError(
                f"{source / CARD_FILE} is of a model for {data.task}, but {CONFIG_FILE} names "
                f"{config['architectures']}: copy both from the same run"
            )
        if data.base_model is not None:
            data.base_model.check_license()
        write_card(target, data if repo_id is None else replace(data, repo_id=repo_id))
        return
    if is_converted(source):
        converted = read_converted(source)
        converted.base_model.check_license()
        write_converted(target, converted if repo_id is None else replace(converted, repo_id=repo_id))
        return
    if (source / LINEAGE_FILE).is_file():
        read_base_model(str(source)).check_license()
    shutil.copyfile(source / README_FILE, target / README_FILE)
    for path in sorted(source.glob(RESULTS)):
        (target / path.parent.name).mkdir(exist_ok=True)
        shutil.copyfile(path, target / path.parent.name / path.name)
