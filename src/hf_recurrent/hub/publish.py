"""Publish a folder: stage what belongs on the Hub, check it as a stranger would, send it as one commit."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ..benchmarks.export import check_dataset_folder
from ..metrics import export_metric
from .lint import README_FILE
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
    """What can be published. `stage(source, work, repo_id)` returns a folder that may be sent as it is."""

    repo_type: str
    stage: Callable[[str | os.PathLike, Path, str], Path]
    is_ours: Callable[[str], bool]


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares its outputs
    bit for bit, then makes one commit. The same folder again makes no commit, and a failure leaves the repository as
    it was. `options` are those of `publish`.
    """
    return publish(folder, repo_id, CHECKPOINT, **options)


def publish_benchmark(folder: str | os.PathLike, repo_id: str, **options) -> Published:
    """Publish an exported benchmark (see `hf_recurrent.benchmarks.export`) as the dataset repository `repo_id`.

    The rows are read and compared with the digests on the card first. `options` are those of `publish`.
    """
    return publish(folder, repo_id, BENCHMARK, **options)


def publish_metric(name: str, repo_id: str, **options) -> Published:
    """Publish the metric `name` (see `hf_recurrent.metrics.list_metrics`) as the Space `owner/name`.

    `options` are those of `publish`.
    """
    return publish(name, repo_id, METRIC, **options)


def publish(
    source: str | os.PathLike,
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
    """Publish `source`, a folder or a metric's name, as the repository `repo_id` (`owner/name`).

    Args:
        kind: what it is.
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
    with _staged(source, repo_id, kind) as staged:
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


def _is_dataset_file(path: str) -> bool:
    return path in (README_FILE, "eval.yaml") or fnmatchcase(path, "*/*.parquet")


def _is_metric_file(path: str) -> bool:
    return path in (README_FILE, "app.py", "requirements.txt") or fnmatchcase(path, "*.py")


CHECKPOINT = Kind("model", _stage_checkpoint, is_publishable)
BENCHMARK = Kind("dataset", _check_benchmark, _is_dataset_file)
METRIC = Kind("space", _export_metric, _is_metric_file)
