"""Publish a folder: stage what belongs on the Hub, check it as a stranger would, send it as one commit."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..benchmarks.export import check_dataset_folder
from ..metrics import export_metric
from .names import check_repo_id, check_revision
from .reload import check_reload
from .remote import MAIN, local_files
from .staging import stage_checkpoint

if TYPE_CHECKING:
    from .push import Target


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
    """What can be published. `stage(source, work, repo_id)` returns a folder that may be sent as it is."""

    repo_type: str
    stage: Callable[[str | os.PathLike, Path, str], Path]


@dataclass(frozen=True)
class Options:
    """How to publish; the keyword arguments of `publish_checkpoint`, `publish_benchmark` and `publish_metric`.

    Attributes:
        dry_run: stage and check, and send nothing: works without a token or network.
        private: whether a new repository is private; with an existing one of the other visibility, an error.
        revision: branch to commit to, made from main if it does not exist; None: main.
        tag: name to give to the commit; it never moves.
        message: the commit's summary.
        overwrite: replace files of an existing repository that somebody else put there, or has changed, too.
        api: `huggingface_hub.HfApi` with endpoint and token; None: the user's own.

    Raises:
        ValueError: an illegal name, or a blank message.
    """

    dry_run: bool = False
    private: bool | None = None
    revision: str | None = None
    tag: str | None = None
    message: str | None = None
    overwrite: bool = False
    api: Any = None

    def __post_init__(self) -> None:
        check_revision("revision", self.revision)
        check_revision("tag", self.tag)
        if self.message is not None and not self.message.strip():
            raise ValueError("message is blank: give a summary of the commit, or none")


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares its outputs
    bit for bit, then makes one commit. The same folder again makes no commit, and a failure leaves the Hub as it was.
    `options` are those of `Options`.

    Raises:
        ValueError: an illegal name, or a folder that cannot be published; nothing was sent.
        PublishError: the staged copy misbehaves, or the Hub cannot be reached or refuses.
    """
    return _publish(folder, repo_id, CHECKPOINT, Options(**options))


def publish_benchmark(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish an exported benchmark (see `hf_recurrent.benchmarks.export`) as the dataset repository `repo_id`.

    The rows are read and compared with the digests on the card first. `options` are those of `Options`, errors those of
    `publish_checkpoint`.
    """
    return _publish(folder, repo_id, BENCHMARK, Options(**options))


def publish_metric(name: str, repo_id: str, **options: Any) -> Published:
    """Publish the metric `name` (see `hf_recurrent.metrics.list_metrics`) as the Space `owner/name`.

    `options` are those of `Options`, errors those of `publish_checkpoint`.
    """
    return _publish(name, repo_id, METRIC, Options(**options))


def check_access(repo_id: str, **options: Any) -> None:
    """Raise now what `publish_checkpoint` would raise of token and repository when there is something to publish."""
    from huggingface_hub import HfApi

    from .push import check_destination

    choice = Options(**options)
    check_destination(_target(repo_id, CHECKPOINT, choice), choice.api or HfApi())


def _publish(source: str | os.PathLike, repo_id: str, kind: Kind, options: Options) -> Published:
    check_repo_id(repo_id)
    with _staged(source, repo_id, kind) as staged:
        files = {path: file.stat().st_size for path, file in local_files(staged).items()}
        if options.dry_run:
            return Published(kind.repo_type, files)
        from huggingface_hub import HfApi

        from .push import push

        summary = options.message or f"Publish {repo_id.partition('/')[2]} with hf_recurrent"
        pushed = push(staged, _target(repo_id, kind, options), summary, options.api or HfApi())
    plan = pushed.plan
    return Published(kind.repo_type, files, pushed.url, pushed.commit, tuple(plan.add), tuple(plan.delete))


def _target(repo_id: str, kind: Kind, options: Options) -> "Target":
    from .push import Target

    return Target(
        check_repo_id(repo_id),
        kind.repo_type,
        options.private,
        options.revision or MAIN,
        options.tag,
        options.overwrite,
    )


@contextmanager
def _staged(source: str | os.PathLike, repo_id: str, kind: Kind) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as work:
        yield kind.stage(source, Path(work), repo_id)


def _stage_checkpoint(folder: str | os.PathLike, work: Path, repo_id: str) -> Path:
    staged = stage_checkpoint(folder, work / "staged", repo_id)
    check_reload(Path(folder), staged)
    return staged


def _check_benchmark(folder: str | os.PathLike, work: Path, repo_id: str) -> Path:
    check_dataset_folder(folder, repo_id.partition("/")[2])
    return Path(folder)


def _export_metric(name: str | os.PathLike, work: Path, repo_id: str) -> Path:
    return export_metric(os.fspath(name), work / os.fspath(name), repo_id)


CHECKPOINT = Kind("model", _stage_checkpoint)
BENCHMARK = Kind("dataset", _check_benchmark)
METRIC = Kind("space", _export_metric)
