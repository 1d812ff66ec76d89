"""`hf-recurrent publish`, and what the other publishing commands print."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import options
from .console import out, quiet_libraries, size, table

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
) -> None:
    """Publish a checkpoint, such as the output folder of a run, as a model repository.

    Stages a clean copy, loads it in a process without this package, compares its outputs bit for bit, and makes one
    commit. Needs a token with write access: `hf auth login`, or HF_TOKEN.
    """
    from ..hub.publish import publish_checkpoint

    send(publish_checkpoint, folder, repo_id, dry_run, private, revision, tag, message)


def send(
    publisher: Callable[..., "Published"],
    folder: Path,
    repo_id: str,
    dry_run: bool,
    private: bool | None,
    revision: str | None,
    tag: str | None,
    message: str | None,
) -> None:
    """Call `publisher` and report what it did."""
    quiet_libraries()
    done = publisher(
        os.fspath(folder),
        repo_id,
        dry_run=dry_run,
        private=private,
        revision=revision,
        tag=tag,
        message=message,
    )
    changed = set(done.changed)
    files = [
        (path, size(length), "" if dry_run or path in changed else "as it was") for path, length in done.files.items()
    ]
    out.print(table(None, [("file", False), ("size", True), ("", False)], files))
    total = f"{len(done.files)} files, {size(sum(done.files.values()))}"
    if dry_run:
        out.print(f"{total}: ready to publish as the {done.repo_type} {repo_id}; nothing was sent")
        return
    for path in done.deleted:
        out.print(f"deleted {path}", markup=False)
    verb = "published" if done.changed or done.deleted else "unchanged, no commit:"
    out.print(f"{total}: {verb} {done.url} (commit {done.commit[:12]})", soft_wrap=True)
