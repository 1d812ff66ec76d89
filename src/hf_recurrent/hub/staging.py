"""From an output folder to a clean folder with exactly the files that belong on the Hub."""

import os
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from ..registry import ARCHITECTURES
from ..utils import read_json, read_text, write_json
from .base_model import check_license, read_base_model
from .card import auto_class_of
from .checkpoint import CONFIG_FILE, write_code
from .results import (
    CALIBRATION_FILE,
    EXPERT_FILE,
    INDEX_FILE,
    INSIDE_FILE,
    README_FILE,
    RESULTS_FILE,
    SWEEP_FILE,
    WEIGHTS_FILE,
    lint_card,
    may_quote,
    read_results,
    shown_images,
    weight_files,
    without_quotes,
    write_results,
)

CONFIGS = ("generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "chat_template.jinja")
CODE_FILES = tuple(f"{kind}_{name}.py" for kind in ("configuration", "modeling", "kernels") for name in ARCHITECTURES)
# numbers beside a card
STATISTICS = (SWEEP_FILE, EXPERT_FILE, CALIBRATION_FILE, INSIDE_FILE)
EVAL_RESULTS = ".eval_results/*.yaml"
# what the weights and the card decide on
OTHERS = ("model-*-of-*.safetensors", "assets/*.png", EVAL_RESULTS)
# where a checkpoint lay when it was loaded; on the Hub it says nothing, and it may be a local path
ORIGINS = ("_name_or_path", "name_or_path", "_commit_hash", "is_local", "local_files_only")
# an access token of the Hub, or a path in somebody's home folder
PRIVATE = re.compile(r"\bhf_[A-Za-z0-9]{30,}|(?<![\w.])/(?:home|Users)/\w+|\b[A-Z]:\\+Users\\+\w+")


def is_publishable(path: str) -> bool:
    """Whether a checkpoint's repository may hold `path` (relative, with slashes): the kinds of files that we write."""
    names = (README_FILE, RESULTS_FILE, CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE)
    # a star stands for no slash
    return path in (*names, *CONFIGS, *TOKENIZER_FILES, *CODE_FILES, *STATISTICS) or any(
        fnmatchcase(path, pattern) and path.count("/") == pattern.count("/") for pattern in OTHERS
    )


def local_files(folder: Path) -> dict[str, Path]:
    """Path relative to `folder`, with slashes -> file; in sorted order."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(files.items()))


def stage_checkpoint(source: str | os.PathLike, target: str | os.PathLike, repo_id: str | None = None) -> Path:
    """Copy what belongs on the Hub from the checkpoint folder `source` into the new folder `target`.

    The code is written by this package, the config gets an `auto_map` of its classes, and a card is rendered from
    `results.json`, if there is one, for `repo_id` (None: for the folder that it names already). Whatever else is in
    `source`, such as training checkpoints, is left behind. Examples of a user's own data are left out unless the
    results say that the card quotes them.

    Raises:
        ValueError: `source` is no checkpoint of this package, or its card cannot be published.
    """
    source, target = Path(source), Path(target)
    if not (source / CONFIG_FILE).is_file():
        raise ValueError(f"{source} has no {CONFIG_FILE}: it is not a checkpoint; pass the output folder of a run")
    config = read_json(source / CONFIG_FILE)
    if auto_class_of(config) is None:
        named = config.get("architectures")
        raise ValueError(f"{source / CONFIG_FILE}: architectures is {named}: save a model of this package there")
    # the card as it is, so that an edited one is refused instead of being replaced silently
    lint_card(source)
    if base := read_base_model(str(source)):
        check_license(base)
    results = read_results(source)
    quotes = may_quote(results)
    if results is not None and not quotes:
        results = without_quotes(results)
    names = [*weight_files(source), *TOKENIZER_FILES, *CONFIGS, *STATISTICS]
    names += shown_images(read_text(source / README_FILE), results)
    if results is None:
        names += [README_FILE, *(path.relative_to(source).as_posix() for path in source.glob(EVAL_RESULTS))]
    for name in filter(is_publishable, names):
        path = source / name
        if not path.is_file() or (name == INSIDE_FILE and not quotes):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name in STATISTICS:
            write_json(target / name, read_json(path) if quotes else without_quotes(read_json(path)))
        elif name in CONFIGS:
            write_json(target / name, without_origins(read_json(path)))
        else:
            shutil.copyfile(path, target / name)
    write_json(target / CONFIG_FILE, {**without_origins(config), "auto_map": write_code(config, target)})
    if results is not None:
        write_results(target, results if repo_id is None else {**results, "name": repo_id})
    refuse_private(target)
    return target


def without_origins(config: dict) -> dict:
    """A config without the places it was loaded from."""
    return {name: value for name, value in config.items() if name not in ORIGINS}


def refuse_private(folder: Path) -> None:
    """Raise a ValueError if a card, config or statistics hold an access token, or a path in somebody's home folder."""
    for name, path in local_files(folder).items():
        checked = path.suffix in (".json", ".md", ".yaml") and name not in TOKENIZER_FILES
        if checked and (secret := PRIVATE.search(read_text(path))):
            kind = "an access token" if secret.group().startswith("hf_") else f"the local path {secret.group()}"
            raise ValueError(f"{name} cannot be published: it holds {kind}; take it out")
