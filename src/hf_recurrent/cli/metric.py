"""`hf-recurrent metric`: the metrics as folders and Spaces that `evaluate.load` reads."""

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .console import out, table
from .publish import send

app = typer.Typer(no_args_is_help=True, help="Metrics that `evaluate.load` reads without this package.")
Name = Annotated[str, typer.Argument(help="A metric (see `hf-recurrent metric list`).")]


@app.command(name="list")
def list_() -> None:
    """List the metrics."""
    from ..metrics import list_metrics, metric_info

    rows = ((name, metric_info(name).summary) for name in list_metrics())
    out.print(table(None, [("metric", False), ("what it says", False)], rows))


@app.command()
def export(
    name: Name,
    folder: Annotated[Path, typer.Argument(help="New folder, called as the metric is.")],
) -> None:
    """Write a metric as a folder for `evaluate.load`."""
    from ..metrics import export_metric

    out.print(f"wrote {export_metric(name, folder)}", markup=False, soft_wrap=True)


@app.command()
def publish(
    name: Name,
    repo_id: options.RepoId,
    dry_run: options.DryRun = False,
    private: options.Private = None,
    revision: options.Revision = None,
    tag: options.Tag = None,
    message: options.Message = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Publish a metric as a Space called as the metric is: owner/NAME."""
    from ..hub.publish import publish_metric

    send(publish_metric, name, repo_id, dry_run, private, revision, tag, message, overwrite)
