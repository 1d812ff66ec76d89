"""Options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="The folder to publish.")]
RepoId = Annotated[str, typer.Argument(help="Where to: owner/name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and list the files; send nothing.")]
Private = Annotated[
    bool | None, typer.Option("--private/--public", help="Visibility of a new repository; public if not given.")
]
Revision = Annotated[str | None, typer.Option(help="Branch to commit to, made from main if it does not exist.")]
Tag = Annotated[str | None, typer.Option(help="Name to give to the commit.")]
Message = Annotated[str | None, typer.Option(help="Summary of the commit.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that somebody else put there, or has changed, too.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A parameter of the benchmark (see `benchmark list NAME`); may be repeated."
    ),
]
