"""`hf-recurrent card`: the card of one checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from .console import out

app = typer.Typer(no_args_is_help=True, help="The card of one checkpoint.")
Folder = Annotated[Path, typer.Argument(help="A checkpoint folder with card.json.")]


@app.command()
def lint(folder: Folder) -> None:
    """Check a card as publishing does: metadata, figures, local paths, and that it is what card.json renders to."""
    from ..hub.lint import lint_card

    lint_card(folder)
    out.print(f"{folder}: the card can be published", markup=False)


@app.command()
def render(folder: Folder) -> None:
    """Render README.md and the evaluation results again from card.json."""
    from ..hub.card import read_card, write_card
    from ..hub.lint import CARD_FILE

    if not (folder / CARD_FILE).is_file():
        raise ValueError(
            f"{folder} has no {CARD_FILE}: a run of training/run_glue_style.py or training/run_clm.py writes it"
        )
    out.print(f"wrote {write_card(folder, read_card(folder))}", markup=False)
