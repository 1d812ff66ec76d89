"""Publish a folder: stage the files that belong on the Hub, check them as a user would, send them as one commit."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from ..files import no_room, one_line
from .errors import HUB_ERRORS, PublishError, explain
from .reload import check_reload
from .results import is_own, may_quote, read_results
from .staging import is_publishable, local_files, stage_checkpoint

MAIN = "main"
# git's names of branches and tags, without those that need escaping, other kinds of references and commit ids
REVISION = re.compile(
    r"(?!.*(\.\.|//|/\.|@\{|\.lock$|\.lock/))(?!refs/|HEAD$|[0-9a-f]{7,40}$)[A-Za-z0-9_][A-Za-z0-9_./@{}+-]*(?<![/.])"
)


def check_repo_id(repo_id: str, argument: str = "repo_id") -> str:
    """`repo_id` if it is a legal `owner/name`; `argument` is what messages call it.

    Raises:
        ValueError: it is not.
    """
    hint = "expected owner/name, each of letters, digits, '-', '_' and '.'"
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise ValueError(f"{argument}={repo_id!r}: {hint}")
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
    """What a publication sends, or has sent.

    Attributes:
        repo_type: "model" or "dataset".
        files: path -> size in bytes of everything that the repository will hold of ours.
        private: visibility of a new repository; None leaves it to the Hub: public, unless the organisation has another
            default.
        quotes: whether the card quotes examples of a user's own data; None: the data are not a user's own.
        url: the repository's page; None before anything is sent.
        commit: the commit that holds the files; None before anything is sent.
        changed: whether a commit was made; False if the repository held these very files already.
    """

    repo_type: str
    files: dict[str, int]
    private: bool | None = None
    quotes: bool | None = None
    url: str | None = None
    commit: str | None = None
    changed: bool = False

    def facts(self) -> list[str]:
        """Lines that say how much is sent, who can see it, and whether examples of a user's own data are quoted."""
        seen = {True: "private", False: "public", None: "as the repository is, public if it is new"}[self.private]
        lines = [f"{len(self.files)} files, {sum(self.files.values()):,} bytes; visibility: {seen}"]
        if self.quotes is not None:
            quoted = "the card quotes examples of your data" if self.quotes else "no examples of your data are quoted"
            lines.append(f"{quoted}; the tokenizer's vocabulary may hold words of your data")
        return lines


@dataclass(frozen=True)
class Options:
    """Options of publishing: the keyword arguments of `publish_checkpoint` and `publish_benchmark`.

    Attributes:
        dry_run: stage and check, and send nothing: works without a token or network.
        private: visibility of the repository; with an existing one of the other visibility, an error. None: private
            for a checkpoint that was trained on a user's own data, else the Hub's default.
        revision: branch to commit to, made from main if it does not exist; None: main.
        tag: name to give to the commit; a tag that exists is an error.
        message: the commit's summary.
        announce: is called with what will be sent, before anything is sent.
        api: `huggingface_hub.HfApi` with endpoint and token; None: the user's own.

    Raises:
        ValueError: an illegal name, a tag that is called as the branch, or a message that is blank.
    """

    dry_run: bool = False
    private: bool | None = None
    revision: str | None = None
    tag: str | None = None
    message: str | None = None
    announce: Callable[[Published], None] | None = None
    api: HfApi | None = None

    def __post_init__(self) -> None:
        check_revision("revision", self.revision)
        check_revision("tag", self.tag)
        if self.message is not None and not self.message.strip():
            raise ValueError("message is blank: give a summary of the commit, or none")
        if self.tag is not None and self.tag in (MAIN, self.revision):
            raise ValueError(f"tag={self.tag!r} is the branch that is published to, or main: use another name")


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares it (see
    `check_reload`), then makes one commit. The same folder again makes no commit, and a failure leaves the files on
    the Hub unchanged. `options` are those of `Options`.

    Raises:
        ValueError: an illegal name, or a folder that cannot be published; nothing was sent.
        PublishError: the staged copy misbehaves, or the Hub cannot be reached or refuses.
    """
    choice, source = Options(**options), Path(folder)

    def stage(work: Path) -> Path:
        staged = stage_checkpoint(source, work / "staged", repo_id)
        check_reload(source, staged)
        return staged

    return _publish(repo_id, "model", stage, choice)


def publish_benchmark(folder: str | os.PathLike, repo_id: str, **options) -> Published:
    """Publish an exported benchmark (see `hf_recurrent.benchmarks.export`) as the dataset repository `repo_id`.

    The examples are compared with the digests on the card first. `options` are those of `Options`, errors those of
    `publish_checkpoint`.
    """
    # all benchmarks are slow to import, and a model needs none
    from ..benchmarks.export import check_dataset_folder

    def stage(work: Path) -> Path:
        check_dataset_folder(folder)
        return Path(folder)

    return _publish(repo_id, "dataset", stage, Options(**options))


def check_access(repo_id: str, **options) -> None:
    """Raise those errors of `publish_checkpoint` that concern token and repository, before there is a folder."""
    choice = Options(**options)
    api = choice.api or HfApi()
    check_repo_id(repo_id)
    with _explained(repo_id, api):
        _check_target(api, repo_id, "model", choice)


def _publish(repo_id: str, repo_type: str, stage: Callable[[Path], Path], options: Options) -> Published:
    """Publish the folder that `stage` returns; it may write into the folder that it is given."""
    check_repo_id(repo_id)
    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as work:
        try:
            staged = stage(Path(work))
        except Exception as error:
            if not isinstance(error, OSError) and not no_room(error):
                raise
            raise PublishError(
                f"{repo_id} cannot be staged in {work}: {one_line(error.__cause__ or error)}: make space, or name "
                "another place by TMPDIR"
            ) from error
        files = {path: file.stat().st_size for path, file in local_files(staged).items()}
        quotes = None
        results = read_results(staged)
        if repo_type == "model" and is_own(results):
            quotes = may_quote(results)
            if options.private is None:
                options = replace(options, private=True)
        planned = Published(repo_type, files, options.private, quotes)
        if options.announce is not None:
            options.announce(planned)
        return planned if options.dry_run else send(staged, repo_id, planned, options)


def send(folder: Path, repo_id: str, planned: Published, options: Options) -> Published:
    """Make a repository equal to a folder by one commit, among the files that publications write."""
    api, repo_type, branch = options.api or HfApi(), planned.repo_type, options.revision or MAIN
    where = {"repo_id": repo_id, "repo_type": repo_type}
    with _explained(repo_id, api):
        _check_target(api, repo_id, repo_type, options)
        url = api.create_repo(**where, private=options.private, exist_ok=True)
        if branch != MAIN:
            api.create_branch(**where, branch=branch, exist_ok=True)
        head = api.repo_info(**where, revision=branch)
        ours = is_publishable if repo_type == "model" else lambda path: path.endswith(".parquet")
        stale = [
            file.rfilename for file in head.siblings if ours(file.rfilename) and file.rfilename not in planned.files
        ]
        commit = api.create_commit(
            **where,
            operations=[
                *(CommitOperationAdd(path, folder / path) for path in planned.files),
                *(CommitOperationDelete(path, is_folder=False) for path in stale),
            ],
            commit_message=options.message or f"Publish {repo_id.partition('/')[2]} with hf_recurrent",
            revision=branch,
            # a commit of somebody else since is not overwritten
            parent_commit=head.sha,
        )
        if options.tag is not None:
            api.create_tag(**where, tag=options.tag, revision=commit.oid)
    return replace(planned, url=str(url), commit=commit.oid, changed=commit.oid != head.sha)


def _check_target(api: HfApi, repo_id: str, repo_type: str, options: Options) -> None:
    """Raise where the token may not write, or an existing repository contradicts the options."""
    if api.whoami().get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise PublishError("the token may only read: use one with write access")
    try:
        info = api.repo_info(repo_id, repo_type=repo_type)
    except RepositoryNotFoundError:
        return
    if options.private is not None and options.private != info.private:
        there, flag = ("private", "--private") if info.private else ("public", "--public")
        raise PublishError(f"{repo_id} exists and is {there}: pass {flag}, or change that on its settings page")
    if options.tag is not None:
        tags = api.list_repo_refs(repo_id, repo_type=repo_type).tags
        if options.tag in [tag.name for tag in tags]:
            raise PublishError(f"tag={options.tag!r} exists in {repo_id}: use another name")


@contextmanager
def _explained(repo_id: str, api: HfApi) -> Iterator[None]:
    """Errors of the client as PublishErrors."""
    try:
        yield
    except HUB_ERRORS as error:
        raise PublishError(explain(error, repo_id, api.endpoint)) from error
    except PublishError:
        raise
    # ValueError: what the client refuses itself, such as an invalid card; the others: large files that did not arrive
    except (ValueError, RuntimeError, OSError) as error:
        raise PublishError(f"{repo_id}: {one_line(error)}") from error
