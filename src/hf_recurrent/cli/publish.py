"""`hf-recurrent publish`, and the publishing commands of benchmarks and metrics."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import options
from .console import interruptible, out, quiet_libraries, size, table

if TYPE_CHECKING:
    from ..hub.publish import Published


def publish_command(publisher: str, source_type: Any, text: str) -> Callable[..., None]:
    """A command that publishes its argument, of the typer type `source_type`, by a function of `hub.publish`."""

    def publish(
        source: source_type,
        repo_id: options.RepoId,
        dry_run: options.DryRun = False,
        private: options.Private = None,
        revision: options.Revision = None,
        tag: options.Tag = None,
        message: options.Message = None,
        overwrite: options.Overwrite = False,
    ) -> None:
        from ..hub import publish as hub_publish

        settings = {"private": private, "revision": revision, "tag": tag, "message": message, "overwrite": overwrite}
        quiet_libraries()
        with interruptible(), _terminated_as_interrupted():
            done = getattr(hub_publish, publisher)(os.fspath(source), repo_id, dry_run=dry_run, **settings)
        _report(done, repo_id)

    publish.__doc__ = text
    return publish


publish = publish_command(
    "publish_checkpoint",
    options.Folder,
    """Publish a checkpoint, such as the output folder of a run, as a model repository.

    Stages a clean copy, loads it in a process without this package, compares the outputs, and makes one commit. Needs a
    token with write access: `hf auth login`, or HF_TOKEN.
    """,
)


def _report(done: "Published", repo_id: str) -> None:
    """Print the files, and which of them changed; `done` has no address after a dry run."""
    changed = set(done.changed)
    columns = [("file", False), ("size", True)]
    rows = [[path, size(length)] for path, length in done.files.items()]
    if done.url is not None and len(changed) < len(rows):
        columns.append(("", False))
        rows = [[path, length, "" if path in changed else "as it was"] for path, length in rows]
    out.print(table(None, columns, rows))
    total = f"{len(done.files)} files, {size(sum(done.files.values()))}"
    if done.url is None:
        out.print(f"{total}: ready to publish as the {done.repo_type} {repo_id}; nothing was sent", soft_wrap=True)
        return
    for path in done.deleted:
        out.print(f"deleted {path}", markup=False)
    verb = "published" if done.changed or done.deleted else "unchanged, no commit:"
    out.print(f"{total}: {verb} {done.url} (commit {done.commit[:12]})", soft_wrap=True)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM as a KeyboardInterrupt, so that a repository made on the Hub is removed again."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
