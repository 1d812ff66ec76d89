"""The recipes of this package, by name: `listops_gut` is the file `listops_gut.yaml`.

Those in `cpu/` are small, and those in `glue/` fine-tune checkpoints on tasks of GLUE.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import yaml

from ..utils import near_matches

FOLDER = Path(__file__).resolve().parent
TITLE = "title: "


@functools.cache
def recipe_files() -> dict[str, Path]:
    """Every recipe's file by its name, those of CPU size last."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda path: (path.parent.name == "cpu", path.parent != FOLDER, path))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def recipe_named(text: str) -> str | None:
    """The name of the recipe that `text` stands for, None if it is none.

    A name may have the suffix `.yaml`.
    """
    name = text.removesuffix(".yaml")
    return name if name in recipe_files() else None


def find_recipe(text: str) -> Path:
    """The file at the path `text` if there is one, else the recipe of that name, else the path as it is."""
    path, name = Path(text), recipe_named(text)
    return path if path.is_file() or name is None else recipe_files()[name]


def recipe_path(argv: Sequence[str]) -> Path | None:
    """The file of a command line's recipe, by its path or name; None if it has flags alone."""
    return find_recipe(argv[0]) if argv and not argv[0].startswith("-") else None


def no_recipe(text: str) -> str:
    """The message about a recipe that is not there, with the one that was probably meant."""
    path = Path(text)
    near = near_matches(path.name, (other.name for other in path.parent.glob("*.yaml")))
    near = near or near_matches(text.removesuffix(".yaml"), recipe_files())
    return f"there is no recipe {text}{near or '; `hf-recurrent recipes list` names them'}"


def packaged_recipe(text: str) -> Path:
    """The file of the recipe of that name, whatever files there are elsewhere.

    Raises:
        ValueError: there is no such recipe, with the one that was probably meant.
    """
    name = recipe_named(text)
    if name is None:
        raise ValueError(no_recipe(text))
    return recipe_files()[name]


def name_of(path: Path) -> str | None:
    """The name of the recipe in a file, None if it is not one of this package."""
    return next((name for name, file in recipe_files().items() if file == path.resolve()), None)


def recipe_title(path: Path) -> str:
    """The title of a recipe of this package: an architecture and what it is trained on."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return yaml.safe_load(next(line for line in lines if line.startswith(TITLE)).removeprefix(TITLE))


def flags_of(words: Sequence[str]) -> dict[str, list[str]]:
    """The flags of a command line, by their names with underscores, and the words of each."""
    flags: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, word = word[2:].partition("=")
            name = name.replace("-", "_")
            flags.setdefault(name, [])
            if not equals:
                continue
        if name:
            flags[name].append(word)
    return flags
