"""Publish a folder: stage the files that belong on the Hub, check them as a user would, send them as one commit."""

import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id

from ..utils import one_line
from .reload import check_reload
from .results import is_own, may_quote, read_results
from .staging import is_publishable, local_files, stage_checkpoint

MAIN = "main"
# git's names of branches and tags, without those that need escaping, other kinds of references and commit ids
REVISION = re.compile(
    r"(?!.*(\.\.|//|/\.|@\{|\.lock$|\.lock/))(?!refs/|HEAD$|[0-9a-f]{7,40}$)[A-Za-z0-9_][A-Za-z0-9_./@{}+-]*(?<![/.])"
)


def check_repo_id(repo_id: str, argument: str = "repo_id") -> None:
    """Raise a ValueError unless `repo_id` is a legal `owner/name`; `argument` is what messages call it."""
    if repo_id.count("/") != 1:
        raise ValueError(f"{argument}={repo_id!r}: expected owner/name, such as your-name/gut-listops")
    validate_repo_id(repo_id)


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
        """Lines with the files, their size, who can see them, and whether examples of a user's own data are quoted."""
        seen = {True: "private", False: "public", None: "as the repository is, public if it is new"}[self.private]
        lines = [f"{size:>14,}  {path}" for path, size in self.files.items()]
        lines.append(f"{len(self.files)} files, {sum(self.files.values()):,} bytes; visibility: {seen}")
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
        revision: branch to commit to, made from main if it does not exist.
        tag: name to give to the commit; a tag that exists is an error.
        announce: is called with what will be sent, before anything is sent.
        api: `huggingface_hub.HfApi` with endpoint and token; None: the user's own.

    Raises:
        ValueError: an illegal name, or a tag with the name of the branch.
    """

    dry_run: bool = False
    private: bool | None = None
    revision: str | None = None
    tag: str | None = None
    announce: Callable[[Published], None] | None = None
    api: HfApi | None = None

    def __post_init__(self) -> None:
        for kind, name in (("revision", self.revision), ("tag", self.tag)):
            if name is not None and not REVISION.fullmatch(name):
                raise ValueError(f"{kind}={name!r}: expected a name such as 'main' or 'v1.0'")
        if self.tag is not None and self.tag in (MAIN, self.revision):
            raise ValueError(f"tag={self.tag!r} is the branch that is published to, or main: use another name")


def publish_checkpoint(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish the checkpoint in `folder`, such as a run's output folder, as the model repository `repo_id`.

    Stages a clean copy (see `stage_checkpoint`), loads it in a process without this package and compares it (see
    `check_reload`), then makes one commit. The same folder again makes no commit, and a failure leaves the files on
    the Hub unchanged. `options` are those of `Options`.

    Raises:
        ValueError: an illegal name, or a folder that cannot be published; nothing was sent.
        OSError: the Hub cannot be reached or refuses.
    """
    check_repo_id(repo_id)
    settings = Options(**options)
    with tempfile.TemporaryDirectory(prefix="hf-recurrent-") as work:
        staged = stage_checkpoint(folder, Path(work) / "staged", repo_id)
        check_reload(Path(folder), staged)
        return publish_folder(staged, repo_id, "model", settings)


def publish_benchmark(folder: str | os.PathLike, repo_id: str, **options: Any) -> Published:
    """Publish an exported benchmark (see `hf_recurrent.benchmarks.export`) as the dataset repository `repo_id`.

    The examples are compared with the digests on the card first. `options` are those of `Options`, errors those of
    `publish_checkpoint`.
    """
    # all benchmarks are slow to import, and a model needs none
    from ..benchmarks.export import check_dataset_folder

    check_repo_id(repo_id)
    settings = Options(**options)
    check_dataset_folder(folder)
    return publish_folder(Path(folder), repo_id, "dataset", settings)


def check_access(repo_id: str, **options: Any) -> None:
    """Raise those errors of `publish_checkpoint` that concern token and repository, before there is a folder."""
    check_repo_id(repo_id)
    _check_target({"repo_id": repo_id, "repo_type": "model"}, Options(**options))


def publish_folder(folder: Path, repo_id: str, repo_type: str, options: Options) -> Published:
    """Make a repository equal to a folder by one commit, among the files that publications write."""
    quotes, results = None, read_results(folder)
    if repo_type == "model" and is_own(results):
        quotes = may_quote(results)
        options = replace(options, private=options.private is not False)
    files = {path: file.stat().st_size for path, file in local_files(folder).items()}
    planned = Published(repo_type, files, options.private, quotes)
    if options.announce is not None:
        options.announce(planned)
    if options.dry_run:
        return planned
    place = {"repo_id": repo_id, "repo_type": repo_type}
    _check_target(place, options)
    api, branch = options.api or HfApi(), options.revision or MAIN
    url = api.create_repo(**place, private=options.private, exist_ok=True)
    if branch != MAIN:
        api.create_branch(**place, branch=branch, exist_ok=True)
    head = api.repo_info(**place, revision=branch)
    ours = is_publishable if repo_type == "model" else lambda path: path.endswith(".parquet")
    stale = [file.rfilename for file in head.siblings if ours(file.rfilename) and file.rfilename not in files]
    try:
        commit = api.create_commit(
            **place,
            operations=[
                *(CommitOperationAdd(path, folder / path) for path in files),
                *(CommitOperationDelete(path, is_folder=False) for path in stale),
            ],
            commit_message=f"Publish {repo_id.partition('/')[2]} with hf_recurrent",
            revision=branch,
            # a commit of somebody else since is not overwritten
            parent_commit=head.sha,
        )
    except RuntimeError as error:
        raise ConnectionError(f"a large file did not arrive: {one_line(error.__cause__ or error)}") from error
    if options.tag is not None:
        api.create_tag(**place, tag=options.tag, revision=commit.oid)
    return replace(planned, url=str(url), commit=commit.oid, changed=commit.oid != head.sha)


def _check_target(place: dict[str, str], options: Options) -> None:
    """Raise a ValueError where the token may not write, or an existing repository contradicts the options."""
    api, name = options.api or HfApi(), place["repo_id"]
    if api.whoami().get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise ValueError("the token may only read: use one with write access")
    try:
        info = api.repo_info(**place)
    except RepositoryNotFoundError:
        return
    if options.private not in (None, info.private):
        there, flag = ("private", "--private") if info.private else ("public", "--public")
        raise ValueError(f"{name} exists and is {there}: pass {flag}, or change that on its settings page")
    if options.tag is not None and options.tag in [tag.name for tag in api.list_repo_refs(**place).tags]:
        raise ValueError(f"tag={options.tag!r} exists in {name}: use another name")
