"""The recipes of this package, by name: `listops_gut` is the file `listops_gut.yaml`.

Those in `cpu/` are small, and those in `glue/` fine-tune checkpoints on tasks of GLUE.
"""

import functools
from pathlib import Path

import yaml

from ..templating import near_matches

FOLDER = Path(__file__).resolve().parent
# in older versions, as the commands of cards made by them have it
FORMER_FOLDER = Path("training", "recipes")
TITLE = "title: "
LISTED = "; `hf-recurrent recipes list` names them"


@functools.cache
def recipe_files() -> dict[str, Path]:
    """Every recipe's file by its name, those of CPU size last."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda path: (path.parent.name == "cpu", path.parent != FOLDER, path))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def recipe_named(text: str) -> str | None:
    """The name of the recipe that `text` stands for, None if it is none.

    A name may have the suffix `.yaml`, and before it the folder `training/recipes` of older versions. What begins with
    a dot or slash is a path.
    """
    path = Path(text)
    if text.startswith((".", "/")):
        return None
    if path.is_relative_to(FORMER_FOLDER):
        path = path.relative_to(FORMER_FOLDER)
    name = path.as_posix().removesuffix(".yaml")
    return name if name in recipe_files() else None


def find_recipe(text: str) -> Path:
    """The file at the path `text` if there is one, else the recipe of that name, else the path as it is."""
    path, name = Path(text), recipe_named(text)
    return path if path.is_file() or name is None else recipe_files()[name]


def no_recipe(path: Path) -> str:
    """The message about a recipe's file that is not there, with those that were probably meant."""
    near = near_matches(path.name, (other.name for other in path.parent.glob("*.yaml")))
    near = near or near_matches(path.as_posix().removesuffix(".yaml"), recipe_files())
    return f"there is no recipe {path}{near or LISTED}"


def packaged_recipe(text: str) -> Path:
    """The file of the recipe of that name, whatever files there are elsewhere.

    Raises:
        ValueError: there is no such recipe, with those that were probably meant.
    """
    name = recipe_named(text)
    if name is None:
        raise ValueError(f"there is no recipe {text!r}{near_matches(text, recipe_files()) or LISTED}")
    return recipe_files()[name]


def name_of(path: Path) -> str | None:
    """The name of the recipe in a file, None if it is not one of this package."""
    return next((name for name, file in recipe_files().items() if file == path.resolve()), None)


def recipe_title(path: Path) -> str:
    """The title of a recipe of this package: an architecture and what it is trained on."""
    with path.open(encoding="utf-8") as file:
        line = next(line for line in file if line.startswith(TITLE))
    return yaml.safe_load(line.removeprefix(TITLE))
