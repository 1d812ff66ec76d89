"""Publish a folder: stage the files that belong on the Hub, check them as a user would, send them as one commit."""

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from ..files import no_room
from ..metrics import export_metric
from .checkpoint import one_line
from .disclosure import check_disclosure
from .errors import PublishError
from .push import MAIN, Target, check_destination, local_files, push
from .reload import check_reload
from .secrets import disclosures
from .staging import stage_checkpoint

# git's names of branches and tags, without those that need escaping, other kinds of references and commit ids
REVISION = re.compile(
    r"(?!.*(\.\.|//|/\.|@\{|\.lock$|\.lock/))(?!refs/|HEAD$|[0-9a-f]{7,40}$)[A-Za-z0-9_][A-Za-z0-9_./@{}+-]*(?<![/.])"
)
MAX_LETTERS = 96


def check_repo_id(repo_id: str, argument: str = "repo_id") -> str:
    """`repo_id` if it is a legal `owner/name`; `argument` is what messages call it.

    Raises:
        ValueError: it is not.
    """
    hint = "expected owner/name, each of letters, digits, '-', '_' and '.'"
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ValueError(f"{argument}={repo_id!r}: {hint}")
    if len(repo_id) > MAX_LETTERS or repo_id.endswith(".ipynb"):
        raise ValueError(f"{argument}={repo_id!r}: {hint} (at most {MAX_LETTERS} characters, and not ending in .ipynb)")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{argument}={repo_id!r}: {hint} ({error})") from error
    return repo_id


def check_revision(kind: str, name: str | None) -> str | None:
    """`name` if it may name a branch or tag; `kind` is the argument it was given as.

    Raises:
        ValueError: it may not.
    """
    if name is not None and not REVISION.fullmatch(name):
        raise ValueError(f"{kind}={name!r}: expected a name such as 'main' or 'v1.0'")
    return name


@dataclass(frozen=True)
class Published:
    """Result of publishing, or of a dry run.

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
class Options:
    """Options of publishing: the keyword arguments of `publish_checkpoint`, `publish_benchmark` and `publish_metric`.

    Attributes:
        dry_run: stage and check, and send nothing: works without a token or network.
        private: whether a new repository is private; with an existing one of the other visibility, an error.
        revision: branch to commit to, made from main if it does not exist; None: main.
        tag: name to give to the commit; it never moves.
        message: the commit's summary.
        overwrite: replace files of an existing repository that somebody else put there, or has changed, too.
        api: `huggingface_hub.HfApi` with endpoint and token; None: the user's own.

    Raises:
        ValueError: an illegal name, a tag that is called as a branch, or a message that is blank or no text.
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
        try:
            (self.message or "").encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"message is {self.message!r}, which is not UTF-8: give a text, or none") from error
        for name in ("revision", "tag", "message"):
            for problem in disclosures(getattr(self, name) or ""):
                raise ValueError(f"{name} holds {problem}")
        if self.tag is not None and self.tag in (MAIN, self.revision):
            raise ValueError(f"tag={self.tag!r} is the branch that is published to, or main: use another name")


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares it (see
    `check_reload`), then makes one commit. The same folder again makes no commit, and a failure leaves the Hub
    unchanged. `options` are those of `Options`.

    Raises:
        ValueError: an illegal name, or a folder that cannot be published; nothing was sent.
        PublishError: the staged copy misbehaves, or the Hub cannot be reached or refuses.
    """

    def stage(work: Path) -> Path:
        staged = stage_checkpoint(folder, work / "staged", repo_id)
        check_reload(Path(folder), staged)
        return staged

    return _publish(repo_id, "model", stage, Options(**options))


def publish_benchmark(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish an exported benchmark (see `hf_recurrent.benchmarks.export`) as the dataset repository `repo_id`.

    The examples are compared with the digests on the card first. `options` are those of `Options`, errors those of
    `publish_checkpoint`.
    """
    # all benchmarks are slow to import, and a model needs none
    from ..benchmarks.export import check_dataset_folder

    def stage(work: Path) -> Path:
        check_dataset_folder(folder)
        check_disclosure(Path(folder))
        return Path(folder)

    return _publish(repo_id, "dataset", stage, Options(**options))


def publish_metric(name: str, repo_id: str, **options: Any) -> Published:
    """Publish the metric `name` (see `hf_recurrent.metrics.list_metrics`) as the Space `owner/name`.

    `options` are those of `Options`, errors those of `publish_checkpoint`.
    """

    def stage(work: Path) -> Path:
        staged = export_metric(name, work / name, repo_id)
        check_disclosure(staged)
        return staged

    return _publish(repo_id, "space", stage, Options(**options))


def check_access(repo_id: str, **options: Any) -> None:
    """Raise those errors of `publish_checkpoint` that concern token and repository, before there is a folder."""
    choice = Options(**options)
    check_destination(_target(repo_id, "model", choice), choice.api or HfApi())


def _publish(repo_id: str, repo_type: str, stage: Callable[[Path], Path], options: Options) -> Published:
    """Publish the folder that `stage` returns; it may write into the folder that it is given."""
    target = _target(repo_id, repo_type, options)
    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as work:
        try:
            staged = stage(Path(work))
        except Exception as error:
            if not isinstance(error, OSError) and not no_room(error):
                raise
            problem = error if isinstance(error, OSError) else error.__cause__ or error
            advice = "make space, or name another place by TMPDIR"
            raise PublishError(f"{repo_id} cannot be staged in {work}: {one_line(problem)}: {advice}") from error
        files = {path: file.stat().st_size for path, file in local_files(staged).items()}
        if options.dry_run:
            return Published(repo_type, files)
        summary = options.message or f"Publish {repo_id.partition('/')[2]} with hf_recurrent"
        pushed = push(staged, target, summary, options.api or HfApi())
    return Published(repo_type, files, pushed.url, pushed.commit, tuple(pushed.plan.add), tuple(pushed.plan.delete))


def _target(repo_id: str, repo_type: str, options: Options) -> Target:
    branch = options.revision or MAIN
    return Target(check_repo_id(repo_id), repo_type, options.private, branch, options.tag, options.overwrite)
