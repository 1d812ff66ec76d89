"""From an output folder to a clean folder with exactly the files that belong on the Hub."""

import os
import re
import shutil
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .. import files
from ..analysis.tables import CALIBRATION_FILE, EXPERT_FILE, HALTING_FILE, INSIDE_FILE, RECURRENCE_FILE, SWEEP_FILE
from ..registry import ARCHITECTURES
from .base_model import CONVERTED_FILE, LINEAGE_FILE, read_base_model
from .card import lint_card, read_card, write_card
from .card_data import without_quotes
from .checkpoint import write_code
from .converted_card import is_converted, read_converted, write_converted
from .inputs import INPUTS_FILE
from .lint import CARD_FILE, README_FILE, image_paths

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
NAMES = frozenset((README_FILE, CARD_FILE, CONVERTED_FILE, INPUTS_FILE, CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE)).union(
    STATISTICS, CONFIGS, TOKENIZER_FILES, CODE_FILES
)
# an access token of the Hub, or a path in somebody's home folder
PRIVATE = re.compile(r"\bhf_[A-Za-z0-9]{30,}|(?<![\w.])/(?:home|Users)/\w+|\b[A-Z]:\\+Users\\+\w+")


def is_publishable(path: str) -> bool:
    """Whether a checkpoint's repository may hold `path` (relative, with slashes): the kinds of files that we write."""
    patterns = (pattern for pattern in (SHARDS, RESULTS, ASSETS) if pattern.count("/") == path.count("/"))
    return path in NAMES or any(fnmatchcase(path, pattern) for pattern in patterns)


def stage_checkpoint(source: str | os.PathLike, target: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Copy what belongs on the Hub from the checkpoint folder `source` into the new folder `target`.

    The config gets a complete `auto_map`, the code is written by this package, and a card that was rendered from
    `card.json` is rendered for `repo_id` (None: for the folder it names already). Whatever else lies in `source`,
    such as training checkpoints, is left behind. Examples of a user's own data are left out unless the card says that
    it quotes them.

    Raises:
        ValueError: `source` is no checkpoint of this package, or its card cannot be published.
    """
    source, target = Path(source), Path(target)
    config = read_config(source)
    weights = weight_files(source)
    if not (source / README_FILE).is_file():
        raise ValueError(f"{source} has no {README_FILE}: a published checkpoint needs a model card")
    target.mkdir(parents=True)
    for name in (*weights, *TOKENIZER_FILES, INPUTS_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for name in CONFIGS:
        if (source / name).is_file():
            files.write_json(target / name, without_origins(files.read_json(source / name)))
    auto_map = dict(ARCHITECTURES[config["model_type"]].auto_map)
    files.write_json(target / CONFIG_FILE, {**without_origins(config), "auto_map": auto_map})
    write_code(config["model_type"], target)
    stage_card(source, target, repo_id)
    for name, path in local_files(target).items():
        if path.suffix in (".json", ".md", ".yaml") and name not in TOKENIZER_FILES:
            found = PRIVATE.search(path.read_text(encoding="utf-8"))
            if found is not None:
                kind = "an access token" if found.group().startswith("hf_") else f"the local path {found.group()}"
                raise ValueError(f"{source / name} cannot be published: it holds {kind}; take it out")
    return target


def local_files(folder: Path) -> dict[str, Path]:
    """Path relative to `folder`, with slashes -> file; in sorted order."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(found.items()))


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a checkpoint of one of our families, naming the class that was saved."""
    if not (folder / CONFIG_FILE).is_file():
        raise ValueError(f"{folder} has no {CONFIG_FILE}: it is not a checkpoint; pass the output folder of a run")
    config = files.read_json(folder / CONFIG_FILE)
    if not isinstance(config, dict) or config.get("model_type") not in [*ARCHITECTURES]:
        raise ValueError(f"{folder / CONFIG_FILE}: model_type is none of {', '.join(ARCHITECTURES)}")
    family, architectures = ARCHITECTURES[config["model_type"]], config.get("architectures")
    known = [family.prefix + suffix for suffix in family.heads.values()]
    if architectures not in [[name] for name in known]:
        raise ValueError(f"{folder / CONFIG_FILE}: architectures is {architectures}: expected one of {known}")
    return config


def weight_files(folder: Path) -> list[str]:
    """The safetensors files of a checkpoint, as `from_pretrained` picks them: one, or several and their index."""
    if (folder / WEIGHTS_FILE).is_file():
        return [WEIGHTS_FILE]
    if not (folder / INDEX_FILE).is_file():
        raise ValueError(f"{folder} has no {WEIGHTS_FILE}; other formats are never published: save the model again")
    shards = sorted(set(files.read_json(folder / INDEX_FILE)["weight_map"].values()))
    wrong = [name for name in shards if not fnmatchcase(name, SHARDS) or not (folder / name).is_file()]
    if wrong:
        raise ValueError(f"{folder / INDEX_FILE} names {wrong}: expected existing files {SHARDS}")
    return [INDEX_FILE, *shards]


def without_origins(data: dict[str, Any]) -> dict[str, Any]:
    """A config without the places it was loaded from."""
    return {name: value for name, value in data.items() if name not in ORIGINS}


def trained_on_own_data(folder: Path) -> bool:
    """Whether a checkpoint was, or may have been, trained on a user's own data: on no benchmark, and not converted."""
    if (folder / CARD_FILE).is_file():
        return read_card(folder).benchmark.is_own
    return not is_converted(folder)


def quotes_examples(folder: Path) -> bool:
    """Whether the card in a folder was asked to quote examples of a user's own data."""
    return (folder / CARD_FILE).is_file() and files.read_json(folder / CARD_FILE).get("examples", False)


def stage_card(source: Path, target: Path, repo_id: str | None) -> None:
    """The card with all it shows: figures, statistics and evaluation results."""
    # the card as it is, so that an edited one is refused instead of being replaced silently
    lint_card(source)
    quotes = not trained_on_own_data(source) or quotes_examples(source)
    for name in STATISTICS:
        if (source / name).is_file() and (quotes or name != INSIDE_FILE):
            data = files.read_json(source / name)
            files.write_json(target / name, data if quotes else without_quotes(data))
    text = (source / README_FILE).read_text(encoding="utf-8")
    if (source / CARD_FILE).is_file():
        data = read_card(source)
        data = data if quotes else data.without_examples()
        if data.base_model is not None:
            data.base_model.check_license()
        copy_figures(source, target, [plot.path for plot in data.plots])
        write_card(target, data if repo_id is None else replace(data, repo_id=repo_id))
        return
    copy_figures(source, target, image_paths(text))
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


def copy_figures(source: Path, target: Path, names: list[str]) -> None:
    for name in names:
        if not fnmatchcase(name, ASSETS):
            raise ValueError(f"{source / README_FILE} shows {name}: figures must be {ASSETS}")
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, target / name)
