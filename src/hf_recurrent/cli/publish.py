"""`hf-recurrent publish`, and what the other publishing commands print."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from . import options
from .console import INTERRUPTED, err, out, quiet_libraries, size, table

if TYPE_CHECKING:
    from ..hub.publish import Published


def publish(
    folder: options.Folder,
    repo_id: options.RepoId,
    dry_run: options.DryRun = False,
    private: options.Private = None,
    revision: options.Revision = None,
    tag: options.Tag = None,
    message: options.Message = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Publish a checkpoint, such as the output folder of a run, as a model repository.

    Stages a clean copy, loads it in a process without this package, compares its outputs bit for bit, and makes one
    commit. Needs a token with write access: `hf auth login`, or HF_TOKEN.
    """
    from ..hub.publish import publish_checkpoint

    send(publish_checkpoint, folder, repo_id, dry_run, private, revision, tag, message, overwrite)


def send(
    publisher: Callable[..., "Published"],
    source: str | Path,
    repo_id: str,
    dry_run: bool,
    private: bool | None,
    revision: str | None,
    tag: str | None,
    message: str | None,
    overwrite: bool,
) -> None:
    """Call `publisher` and report what it did."""
    quiet_libraries()
    try:
        with _stopped_as_interrupted():
            done = publisher(
                os.fspath(source),
                repo_id,
                dry_run=dry_run,
                private=private,
                revision=revision,
                tag=tag,
                message=message,
                overwrite=overwrite,
            )
    except KeyboardInterrupt as stopped:
        for leftover in stopped.args:
            err.print(leftover, markup=False)
        raise typer.Exit(INTERRUPTED) from stopped
    changed = set(done.changed)
    columns = [("file", False), ("size", True)]
    rows = [[path, size(length)] for path, length in done.files.items()]
    if not dry_run and len(changed) < len(rows):
        columns.append(("", False))
        rows = [[path, length, "" if path in changed else "as it was"] for path, length in rows]
    out.print(table(None, columns, rows))
    total = f"{len(done.files)} files, {size(sum(done.files.values()))}"
    if dry_run:
        out.print(f"{total}: ready to publish as the {done.repo_type} {repo_id}; nothing was sent", soft_wrap=True)
        return
    for path in done.deleted:
        out.print(f"deleted {path}", markup=False)
    verb = "published" if done.changed or done.deleted else "unchanged, no commit:"
    out.print(f"{total}: {verb} {done.url} (commit {done.commit[:12]})", soft_wrap=True)


@contextmanager
def _stopped_as_interrupted() -> Iterator[None]:
    """Being told to stop is an interruption too, so that what was made on the Hub is removed again."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
