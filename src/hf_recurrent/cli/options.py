"""Options that several commands take."""

import os
from pathlib import Path
from typing import Annotated

import typer

# more of anything is a mistake
MOST = 1_000_000


def in_a_folder(path: Path | None) -> Path | None:
    """A path to write to, checked before any work: its folder can be written, or made."""
    if path is None or (path.exists() and not (path.is_file() or path.is_dir())):
        # a device or pipe is written to as it is
        return path
    above = next(place for place in path.absolute().parents if os.path.lexists(place))
    if not above.is_dir():
        raise typer.BadParameter(f"{path} would be in {above}, which is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{path} would be in {above}, where nothing can be written")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{str(path)!r} is not UTF-8") from error
    return path


def a_folder(path: Path | None) -> Path | None:
    """A folder to write into, checked before any work."""
    return path if path is None else in_a_folder(path / "file").parent


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", exists=True, file_okay=False, help="The folder to publish.")]
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

# of commands that evaluate a checkpoint on examples of a benchmark
Benchmark = Annotated[
    str, typer.Argument(help="A benchmark (`hf-recurrent benchmark list`), or the folder or Hub id of an exported one.")
]
Config = Annotated[str | None, typer.Option(help="Configuration; the benchmark's default if not given.")]
Splits = Annotated[list[str] | None, typer.Option(help="May be repeated; the first test split if not given.")]
DataDir = Annotated[str | None, typer.Option(help="Folder with the authors' own files.")]
Limit = Annotated[int, typer.Option(min=1, help="Use this many random examples of each split.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the choice of examples.")]
BatchSize = Annotated[int, typer.Option(min=1, max=MOST, help="Examples in a batch.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", file_okay=False, callback=a_folder, help="Where to write; the checkpoint's folder if not given."
    ),
]
CheckpointRevision = Annotated[str | None, typer.Option(help="Branch, tag or commit of the checkpoint.")]
Device = Annotated[str | None, typer.Option(help="Such as cpu or cuda:1; a GPU is used if there is one.")]
