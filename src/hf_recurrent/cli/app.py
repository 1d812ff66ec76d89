"""The command tree."""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from . import benchmark, options, recipes
from .calibrate import calibrate
from .cards import card, cards
from .console import err, out, run
from .convert import convert
from .evaluate import evaluate
from .experts import experts
from .explain import explain
from .export import export
from .fit_probe import fit_probe
from .predict import predict
from .publish import publish
from .serve import serve
from .sweep import sweep
from .train import train

NAME = "hf-recurrent"


app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # training's flags are transformers', with underscores; those of the commands have dashes
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)
app.add_typer(recipes.app, name="recipes")
app.add_typer(benchmark.app, name="benchmark")
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
app.command()(serve)
app.command()(export)
app.command()(predict)


# of a launcher's processes each takes a share; training is started by its own module
SHARED = ("evaluate", "sweep", "fit-probe", "calibrate", "predict")


def print_version(asked: bool) -> None:
    if asked:
        out.print(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def describe(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Transformers that think longer when the problem is harder: train, evaluate, explain, publish."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and context.invoked_subcommand != "train":
        share_out(context)


def share_out(context: typer.Context) -> None:
    """Let the processes that a launcher has started do a command together, of which the first one speaks.

    Raises:
        ValueError: the command is for one process.
    """
    from ..inference.processes import is_first, shared_work

    name = context.invoked_subcommand
    if name not in SHARED:
        raise ValueError(f"`{name}` runs in one process: call it without a launcher; {', '.join(SHARED)} share work")
    context.with_resource(shared_work())
    if not is_first():
        out.quiet = err.quiet = True
        warnings.simplefilter("ignore")


@app.command()
def demo(
    output_dir: Annotated[
        Path,
        typer.Option(
            "--output_dir", "--output-dir", file_okay=False, callback=options.a_folder, help="Folder of the checkpoint."
        ),
    ] = Path("runs/demo"),
    max_steps: Annotated[
        int, typer.Option("--max_steps", "--max-steps", min=1, max=options.MOST, help="Steps of training.")
    ] = 1000,
    seed: options.Seed = 1,
) -> None:
    """Train a small model on chains of functions, and watch it take more steps for longer chains."""
    from .demo import run_demo

    run_demo(output_dir, seed, max_steps)


app.command()(convert)
app.command()(publish)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    sys.exit(run(lambda: app(arguments, prog_name=NAME, standalone_mode=False)))
