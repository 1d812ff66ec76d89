"""`hf-recurrent metric`: the metrics as folders and Spaces that `evaluate.load` reads."""

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, table, wrote
from .publish import publish_command

app = typer.Typer(no_args_is_help=True, help="Metrics that `evaluate.load` reads without this package.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A metric (see `hf-recurrent metric list`).")]


@app.command(name="list")
def list_() -> None:
    """List the metrics."""
    from ..metrics import list_metrics, metric_info

    rows = ((name, metric_info(name).summary) for name in list_metrics())
    out.print(table(None, [("metric", False), ("meaning", False)], rows))


@app.command()
def export(
    name: Name,
    folder: Annotated[Path, typer.Argument(callback=options.in_a_folder, help="New folder, called as the metric is.")],
) -> None:
    """Write a metric as a folder for `evaluate.load`."""
    from ..metrics import export_metric

    wrote(export_metric(name, folder))


app.command()(
    publish_command("publish_metric", Name, "Publish a metric as a Space called as the metric is: owner/NAME.")
)
