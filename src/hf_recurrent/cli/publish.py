"""`hf-recurrent publish`, and the publishing commands of benchmarks."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .console import interruptible, out, quiet_libraries

if TYPE_CHECKING:
    from ..hub.publish import Published


VISIBILITY = "Visibility. If not given: private after training on your own data, else public."


def publish_command(publisher: str, source_type: Any, text: str) -> Callable[..., None]:
    """A command that publishes its argument, of the typer type `source_type`, by a function of `hub.publish`."""

    def publish(
        source: source_type,
        repo_id: Annotated[str, typer.Argument(help="Where to: owner/name.")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and list the files; send nothing.")] = False,
        private: Annotated[bool | None, typer.Option("--private/--public", help=VISIBILITY)] = None,
        revision: Annotated[
            str | None, typer.Option(help="Branch to commit to, made from main if it does not exist.")
        ] = None,
        tag: Annotated[str | None, typer.Option(help="Name to give to the commit.")] = None,
    ) -> None:
        from ..hub import publish as hub_publish

        settings = {"private": private, "revision": revision, "tag": tag, "dry_run": dry_run}
        quiet_libraries()
        with interruptible():
            done = getattr(hub_publish, publisher)(os.fspath(source), repo_id, announce=announce, **settings)
        if done.url is None:
            out.print(f"ready to publish as the {done.repo_type} {repo_id}; nothing was sent", soft_wrap=True)
            return
        verb = "published" if done.changed else "unchanged, no commit:"
        out.print(f"{verb} {done.url} (commit {done.commit[:12]})", soft_wrap=True)

    publish.__doc__ = text
    return publish


publish = publish_command(
    "publish_checkpoint",
    options.Folder,
    """Publish a checkpoint, such as the output folder of a run, as a model repository.

    Stages a clean copy, loads it in a process without this package, compares the outputs, lists what will be sent, and
    makes one commit. A checkpoint that was trained on your own data is private unless you pass --public. Needs a token
    with write access: `hf auth login`, or HF_TOKEN.
    """,
)


def announce(planned: "Published") -> None:
    """Print what will be sent: files with sizes, the visibility, and whether examples are quoted."""
    for line in planned.facts():
        out.print(line, soft_wrap=True, markup=False, highlight=False)
