"""From an output folder to a clean folder with exactly the files that belong on the Hub."""

import os
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .. import files
from ..analysis.tables import CALIBRATION_FILE, EXPERT_FILE, INSIDE_FILE, SWEEP_FILE
from ..registry import ARCHITECTURES
from .base_model import check_license, read_base_model
from .checkpoint import write_code
from .results import (
    README_FILE,
    RESULTS_FILE,
    lint_card,
    may_quote,
    read_results,
    shown_images,
    without_quotes,
    write_results,
)

CONFIG_FILE = "config.json"
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
SHARDS = "model-*-of-*.safetensors"
TOKENIZER_CONFIG = "tokenizer_config.json"
CONFIGS = ("generation_config.json", TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.jinja")
CODE_FILES = tuple(f"{kind}_{name}.py" for kind in ("configuration", "modeling", "kernels") for name in ARCHITECTURES)
EVAL_RESULTS = ".eval_results/*.yaml"
ASSETS = "assets/*.png"
# numbers beside a card
STATISTICS = (SWEEP_FILE, EXPERT_FILE, CALIBRATION_FILE, INSIDE_FILE)
# where a checkpoint lay when it was loaded; on the Hub it says nothing, and it may be a local path
ORIGINS = ("_name_or_path", "name_or_path", "_commit_hash")
NAMES = {README_FILE, RESULTS_FILE, CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE}.union(
    STATISTICS, CONFIGS, TOKENIZER_FILES, CODE_FILES
)
# an access token of the Hub, or a path in somebody's home folder
PRIVATE = re.compile(r"\bhf_[A-Za-z0-9]{30,}|(?<![\w.])/(?:home|Users)/\w+|\b[A-Z]:\\+Users\\+\w+")


def is_publishable(path: str) -> bool:
    """Whether a checkpoint's repository may hold `path` (relative, with slashes): the kinds of files that we write."""
    patterns = (pattern for pattern in (SHARDS, EVAL_RESULTS, ASSETS) if pattern.count("/") == path.count("/"))
    return path in NAMES or any(fnmatchcase(path, pattern) for pattern in patterns)


def stage_checkpoint(source: str | os.PathLike, target: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Copy what belongs on the Hub from the checkpoint folder `source` into the new folder `target`.

    The config gets a complete `auto_map`, the code is written by this package, and a card is rendered from
    `results.json`, if there is one, for `repo_id` (None: for the folder that it names already). Whatever else is in
    `source`, such as training checkpoints, is left behind. Examples of a user's own data are left out unless the
    results say that the card quotes them.

    Raises:
        ValueError: `source` is no checkpoint of this package, or its card cannot be published.
    """
    source, target = Path(source), Path(target)
    config = read_config(source)
    weights = weight_files(source)
    if not (source / README_FILE).is_file():
        raise ValueError(f"{source} has no {README_FILE}: a published checkpoint needs a model card")
    target.mkdir(parents=True)
    for name in (*weights, *TOKENIZER_FILES):
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


def stage_card(source: Path, target: Path, repo_id: str | None) -> None:
    """The card with all it shows: figures, statistics and evaluation results."""
    # the card as it is, so that an edited one is refused instead of being replaced silently
    lint_card(source)
    results, quotes = read_results(source), may_quote(read_results(source))
    base = read_base_model(str(source))
    if base is not None:
        check_license(base)
    for name in STATISTICS:
        if (source / name).is_file() and (quotes or name != INSIDE_FILE):
            data = files.read_json(source / name)
            files.write_json(target / name, data if quotes else without_quotes(data))
    text = (source / README_FILE).read_text(encoding="utf-8")
    if results is not None and not quotes:
        results = without_quotes(results)
    for name in shown_images(text, results):
        if not fnmatchcase(name, ASSETS):
            raise ValueError(f"{source / README_FILE} shows {name}: figures must be {ASSETS}")
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, target / name)
    if results is not None:
        write_results(target, results if repo_id is None else {**results, "name": repo_id})
        return
    shutil.copyfile(source / README_FILE, target / README_FILE)
    for path in sorted(source.glob(EVAL_RESULTS)):
        (target / path.parent.name).mkdir(exist_ok=True)
        shutil.copyfile(path, target / path.parent.name / path.name)
