"""Publish a folder: stage what belongs on the Hub, check it as a stranger would, send it as one commit."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .names import check_repo_id, check_revision
from .reload import check_reload
from .remote import MAIN, local_files
from .staging import is_publishable, stage_checkpoint


@dataclass(frozen=True)
class Published:
    """What was published, or would be.

    Attributes:
        repo_type: "model", "dataset" or "space".
        files: path -> size in bytes of everything that the repository holds of ours.
        url: the repository's page; None after a dry run.
        commit: the commit that holds the files; None after a dry run.
        changed, deleted: paths that this call added or replaced, and deleted: empty if all was there already.
    """

    repo_type: str
    files: dict[str, int]
    url: str | None = None
    commit: str | None = None
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kind:
    """What can be published. `stage(folder, work, repo_id)` returns a folder that may be sent as it is."""

    repo_type: str
    stage: Callable[[Path, Path, str], Path]
    is_ours: Callable[[str], bool]


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares its outputs
    bit for bit, then makes one commit. The same folder again makes no commit, and a failure leaves the repository as
    it was. `options` are those of `publish`.
    """
    return publish(folder, repo_id, CHECKPOINT, **options)


def publish(
    folder: str | os.PathLike,
    repo_id: str,
    kind: Kind,
    *,
    dry_run: bool = False,
    private: bool | None = None,
    revision: str | None = None,
    tag: str | None = None,
    message: str | None = None,
    api=None,
) -> Published:
    """Publish `folder` as the repository `repo_id` (`owner/name`).

    Args:
        kind: what the folder holds.
        dry_run: stage and check, and send nothing: works without a token or network.
        private: whether a new repository is private; with an existing one of the other visibility, an error.
        revision: branch to commit to, made from main if it does not exist; None: main.
        tag: name to give to the commit.
        message: the commit's summary.
        api: `huggingface_hub.HfApi` with endpoint and token; None: the user's own.

    Raises:
        ValueError: an illegal name, or a folder that cannot be published; nothing was sent.
        PublishError: the staged copy misbehaves, or the Hub cannot be reached or refuses.
    """
    check_repo_id(repo_id)
    check_revision("revision", revision)
    check_revision("tag", tag)
    with _staged(Path(folder), repo_id, kind) as staged:
        files = {path: file.stat().st_size for path, file in local_files(staged).items()}
        if dry_run:
            return Published(kind.repo_type, files)
        from huggingface_hub import HfApi

        from .push import Target, push

        target = Target(repo_id, kind.repo_type, private, revision or MAIN, tag)
        summary = message or f"Publish {repo_id.partition('/')[2]} with hf_recurrent"
        pushed = push(staged, target, summary, kind.is_ours, api or HfApi())
    return Published(
        kind.repo_type, files, pushed.url, pushed.commit, tuple(pushed.plan.add), tuple(pushed.plan.delete)
    )


@contextmanager
def _staged(folder: Path, repo_id: str, kind: Kind) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as work:
        yield kind.stage(folder, Path(work), repo_id)


def _stage_checkpoint(folder: Path, work: Path, repo_id: str) -> Path:
    staged = stage_checkpoint(folder, work / "staged", repo_id)
    check_reload(folder, staged)
    return staged


CHECKPOINT = Kind("model", _stage_checkpoint, is_publishable)
