"""The command tree."""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

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
from .train import HELP_ALL, train

NAME = "hf-recurrent"


app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    # flags have underscores, as in transformers' examples; hyphens are taken for them
    context_settings={"token_normalize_func": lambda name: name.replace("-", "_"), "max_content_width": 100},
)
app.add_typer(recipes.app, name="recipes")
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(card, name="card")
app.add_typer(cards, name="cards")
# what follows a recipe is for training to read, --help too
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, add_help_option=False)(
    train
)
for command in (evaluate, sweep, fit_probe, calibrate, experts, explain, serve, export, predict, convert, publish):
    app.command()(command)


# commands whose imports take seconds
LOADING = ("train", "evaluate", "sweep", "fit-probe", "calibrate", "predict", "explain", "export", "convert", "demo")
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
    if err.is_terminal and context.invoked_subcommand in LOADING and not {"--help", "--help_all"} & {*sys.argv}:
        err.print("loading PyTorch and transformers ...")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and context.invoked_subcommand != "train":
        share_out(context)


def share_out(context: typer.Context) -> None:
    """Let the processes that a launcher has started do a command together, of which the first one speaks.

    Raises:
        ValueError: the command is for one process.
    """
    from ..deploy.processes import is_first, shared_work

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
        typer.Option(file_okay=False, callback=options.a_folder, help="Folder of the checkpoint."),
    ] = Path("runs/demo"),
    max_steps: Annotated[int, typer.Option(min=1, max=options.MOST, help="Steps of training.")] = 1000,
    seed: options.Seed = 1,
) -> None:
    """Train a small model on chains of functions, and watch it take more steps for longer chains."""
    from .demo import run_demo

    run_demo(output_dir, seed, max_steps)


def command_tree(shows_all: bool = False) -> Any:
    """The commands, whose flags have underscores; options that are hidden are shown if `shows_all`."""
    waiting = [tree := typer.main.get_command(app)]
    for command in waiting:
        for parameter in command.params:
            for names in (parameter.opts, parameter.secondary_opts):
                names[:] = [f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name for name in names]
        hidden = [parameter for parameter in command.params if getattr(parameter, "hidden", False)]
        if hidden and not shows_all:
            command.epilog = f"--help_all shows {len(hidden)} more options."
        for parameter in hidden if shows_all else ():
            parameter.hidden = False
        waiting += getattr(command, "commands", {}).values()
    return tree


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # training has flags of its own
    shows_all = words[:1] != ["train"] and bool(HELP_ALL & {*words})
    words = ["--help" if shows_all and word in HELP_ALL else word for word in words]
    sys.exit(run(lambda: command_tree(shows_all)(words, prog_name=NAME, standalone_mode=False, obj=words)))
