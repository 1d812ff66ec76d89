"""`hf-recurrent recipes`: the recipes of this package."""

from pathlib import Path
from typing import Annotated

import typer

from ..recipes import packaged_recipe, recipe_files, recipe_title
from . import options
from .console import out, table, wrote
from .train import completed

app = typer.Typer(no_args_is_help=True, help="Recipes of training runs, to train by or to start from.")
Name = Annotated[str, typer.Argument(autocompletion=completed, help="A name of `recipes list`.")]


@app.command("list")
def list_recipes(
    part: Annotated[str, typer.Argument(help="Only recipes with this in their name, such as gut or cpu/.")] = "",
) -> None:
    """List recipes with what they train."""
    rows = [[name, recipe_title(path)] for name, path in recipe_files().items() if part in name]
    if not rows:
        raise ValueError(f"no recipe has {part!r} in its name; `hf-recurrent recipes list` names them all")
    out.print(table(None, [("recipe", False), ("trains", False)], rows))


@app.command()
def show(name: Name) -> None:
    """Print a recipe."""
    out.print(packaged_recipe(name).read_text(encoding="utf-8"), end="", markup=False, soft_wrap=True)


@app.command()
def copy(
    name: Name,
    file: Annotated[
        Path | None,
        typer.Argument(dir_okay=False, callback=options.in_a_folder, help="New file; NAME.yaml here if not given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")] = False,
) -> None:
    """Copy a recipe into a file to edit."""
    from ..utils import write_bytes

    recipe = packaged_recipe(name)
    target = file or Path(recipe.name)
    if target.exists() and not overwrite:
        raise ValueError(f"{target} exists: name another file, or replace it with --overwrite")
    wrote(write_bytes(target, recipe.read_bytes()))
