"""The command tree."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from . import benchmark, metric, options
from .calibrate import calibrate
from .cards import card, cards
from .console import out, quiet_libraries, run
from .evaluate import evaluate
from .experts import experts
from .explain import explain
from .fit_probe import fit_probe
from .predict import predict
from .publish import publish
from .sweep import sweep

app = typer.Typer(
    name="hf-recurrent",
    help="Transformers that think longer when the problem is harder: benchmarks, evaluation, cards, publishing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(metric.app, name="metric")
app.add_typer(card, name="card")
app.add_typer(cards, name="cards")
app.command()(evaluate)
app.command()(sweep)
app.command()(fit_probe)
app.command()(calibrate)
app.command()(experts)
app.command()(explain)
app.command()(predict)


@app.command()
def convert(
    reference: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Folder with the authors' case.json and weights.safetensors."
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(callback=options.in_a_folder, help="New folder for the converted checkpoint.")
    ],
) -> None:
    """Convert a checkpoint of the authors' code into one that `from_pretrained` loads."""
    from ..changes import new_folder
    from ..convert import load_reference
    from ..hub.checkpoint import save_checkpoint

    quiet_libraries()
    with new_folder(folder, refuse) as built:
        model = load_reference(reference).model
        save_checkpoint(model, built)
    out.print(
        f"{type(model).__name__}, {model.num_parameters():,} parameters: {folder}\n"
        "It has no tokenizer and no card yet; its token ids are the authors' own.",
        markup=False,
    )


def refuse(folder: Path) -> None:
    raise ValueError(f"folder {folder} is not empty: give a new one")


app.command()(publish)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    sys.exit(run(lambda: app(arguments, standalone_mode=False)))
