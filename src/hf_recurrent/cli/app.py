"""The command tree."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from . import benchmark, metric, options, recipes
from .calibrate import calibrate
from .cards import card, cards
from .console import out, run
from .convert import convert
from .evaluate import evaluate
from .experts import experts
from .explain import explain
from .export import export
from .fit_probe import fit_probe
from .predict import predict
from .publish import publish
from .sweep import sweep
from .train import train

NAME = "hf-recurrent"
app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(recipes.app, name="recipes")
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(metric.app, name="metric")
app.add_typer(card, name="card")
app.add_typer(cards, name="cards")
# what follows a recipe is for training to read, --help too
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, add_help_option=False)(
    train
)
app.command()(evaluate)
app.command()(sweep)
app.command()(fit_probe)
app.command()(calibrate)
app.command()(experts)
app.command()(explain)
app.command()(export)
app.command()(predict)


def print_version(asked: bool) -> None:
    if asked:
        out.print(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Transformers that think longer when the problem is harder: train, evaluate, explain, publish."""


@app.command()
def demo(
    output_dir: Annotated[
        Path,
        typer.Option(
            "--output_dir", "--output-dir", file_okay=False, callback=options.a_folder, help="Folder of the run."
        ),
    ] = Path("runs/demo"),
    recipe: Annotated[str, typer.Option(help="What to train instead: ListOps, with a model that halts.")] = "demo",
) -> None:
    """Train a small GUT on ListOps in minutes on a CPU, calibrate it, and watch it take more steps for deeper lists."""
    from .demo import run_demo

    run_demo(recipe, output_dir)


app.command()(convert)
app.command()(publish)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    sys.exit(run(lambda: app(arguments, prog_name=NAME, standalone_mode=False)))
