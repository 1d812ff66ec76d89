"""The command tree."""

import sys
from collections.abc import Sequence

import typer

from . import benchmark, card, cards, metric
from .console import run
from .convert import convert
from .evaluate import evaluate
from .experts import experts
from .explain import explain
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
app.add_typer(card.app, name="card")
app.add_typer(cards.app, name="cards")
app.command()(evaluate)
app.command()(sweep)
app.command()(experts)
app.command()(explain)
app.command()(convert)
app.command()(publish)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    sys.exit(run(lambda: app(arguments)))
