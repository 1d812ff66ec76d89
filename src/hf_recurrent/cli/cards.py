"""`hf-recurrent cards`: a folder of checkpoint folders, such as model_cards/."""

from pathlib import Path
from typing import Annotated

import typer

from .console import err, out

app = typer.Typer(no_args_is_help=True, help="A folder of checkpoint folders: index, checks, browsable page.")
Root = Annotated[Path, typer.Argument(help="The folder that holds the checkpoint folders.")]


@app.command()
def build(
    root: Root = Path("model_cards"),
    page: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("build/model_cards.html"),
) -> None:
    """Build one self-contained HTML page: a sortable table whose rows open to plots, slices and usage."""
    from ..hub.gallery import build_page

    out.print(f"wrote {build_page(root, page)}", markup=False, soft_wrap=True)


@app.command()
def refresh(root: Root = Path("model_cards")) -> None:
    """Render every card and the index again."""
    from ..hub.gallery import refresh

    changed = refresh(root)
    for path in changed:
        out.print(path, markup=False, soft_wrap=True)
    out.print(f"{len(changed)} files changed")


@app.command()
def check(root: Root = Path("model_cards")) -> None:
    """Fail if a card or the index differs from its rendering, or a folder cannot be published."""
    from ..hub.gallery import gallery_problems

    problems = gallery_problems(root)
    for problem in problems:
        err.print(problem, markup=False)
    if problems:
        raise typer.Exit(1)
    out.print(f"{root}: every folder can be published as it is", markup=False, soft_wrap=True)
