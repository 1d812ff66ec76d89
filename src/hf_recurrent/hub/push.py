"""One commit that makes a repository on the Hub equal to a local folder, or no change at all."""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import git_hash, sha_fileobj

from .errors import HUB_ERRORS, REMEDIES, PublishError, explain

REPO_TYPES = ("model", "dataset", "space")
MAIN = "main"
MANIFEST = "Files published with hf_recurrent:"
# of a new repository: git's attributes, a card with the licence, and the first page of a Space
FIRST_FILES = {".gitattributes", "README.md", "index.html", "style.css"}
# the Hub's title of the commit that makes them
FIRST_COMMIT = "initial commit"
CONFLICT = 409
MAX_NAMED = 5


@dataclass(frozen=True)
class Remote:
    """State of a repository. `head` is the commit of `revision`, or of main where there is no such branch yet.

    A file is described by whether it is stored as a large file, and by a digest: SHA-256 of a large one, else git's.

    Attributes:
        files: path -> description of the current content.
        published: path -> description of the content that the last publication by this package put there.
        fresh: there are no files but such as a new repository has, in one commit at most.
        untouched: that commit is the Hub's, too; that of a history that somebody squashed is not.
        branches, tags: name -> commit.
    """

    private: bool
    head: str
    fresh: bool
    untouched: bool
    branches: dict[str, str]
    tags: dict[str, str]
    files: dict[str, tuple[bool, str]] = field(default_factory=dict)
    published: dict[str, tuple[bool, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Paths to add or replace, to delete, and to leave as they are.

    `foreign` are those among the first two that somebody else put there or has changed since.
    """

    add: list[str]
    delete: list[str]
    keep: list[str]
    foreign: list[str]

    @property
    def empty(self) -> bool:
        return not self.add and not self.delete

    def operations(self, folder: Path) -> list[CommitOperationAdd | CommitOperationDelete]:
        """The operations of one commit that carries out the plan."""
        additions = [CommitOperationAdd(path, folder / path) for path in self.add]
        return additions + [CommitOperationDelete(path, is_folder=False) for path in self.delete]


def read_remote(api: HfApi, repo_id: str, repo_type: str, revision: str) -> Remote | None:
    """The repository as it is, None if there is none that the token may see."""
    where = {"repo_id": repo_id, "repo_type": repo_type}
    try:
        info = api.repo_info(**where)
    except RepositoryNotFoundError:
        return None
    refs = api.list_repo_refs(**where)
    branches = {ref.name: ref.target_commit for ref in refs.branches}
    head = branches.get(revision) or branches.get(MAIN) or info.sha
    commits = api.list_repo_commits(**where, revision=head)
    files = read_files(api, where, head)
    last = next((commit for commit in commits if read_manifest(commit.message) is not None), None)
    published = {}
    if last is not None:
        there = files if last.commit_id == head else read_files(api, where, last.commit_id)
        published = {path: there[path] for path in read_manifest(last.message) if path in there}
    fresh = len(commits) <= 1 and set(files) <= FIRST_FILES
    return Remote(
        private=bool(info.private),
        head=head,
        fresh=fresh,
        untouched=fresh and all(commit.title == FIRST_COMMIT for commit in commits),
        branches=branches,
        tags={ref.name: ref.target_commit for ref in refs.tags},
        files=files,
        published=published,
    )


def read_files(api: HfApi, where: dict[str, str], commit: str) -> dict[str, tuple[bool, str]]:
    entries = api.list_repo_tree(**where, recursive=True, revision=commit)
    return {entry.path: stored(entry) for entry in entries if isinstance(entry, RepoFile)}


def write_manifest(paths: Iterable[str]) -> str:
    """Description of a commit with the list of our files: later publications may replace and delete no others."""
    return "\n".join([MANIFEST, *sorted(paths)])


def read_manifest(description: str | None) -> list[str] | None:
    """The paths in a description, None if it is no publication's."""
    first, *paths = (description or "").splitlines() or [""]
    return paths if first == MANIFEST else None


def stored(entry: RepoFile) -> tuple[bool, str]:
    return (True, entry.lfs.sha256) if entry.lfs is not None else (False, entry.blob_id)


def other_type(api: HfApi, repo_id: str, repo_type: str) -> str | None:
    """Another type under which the Hub has a repository of this name."""
    for other in REPO_TYPES:
        if other != repo_type and api.repo_exists(repo_id, repo_type=other):
            return other
    return None


def local_files(folder: Path) -> dict[str, Path]:
    """Path relative to `folder`, with slashes -> file; in sorted order."""
    found = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in found))


def make_plan(folder: Path, remote: Remote | None) -> Plan:
    """The changes after which the repository holds exactly `folder`, among our files; others are left alone."""
    files = local_files(folder)
    there, ours = ({}, {}) if remote is None else (remote.files, remote.published)
    same = {path for path, file in files.items() if path in there and digest(file, there[path][0]) == there[path][1]}
    add = [path for path in files if path not in same]
    delete = sorted(path for path in ours if path in there and path not in files)
    foreign = [path for path in (*add, *delete) if path in there and there[path] != ours.get(path)]
    return Plan(add, delete, sorted(same), [] if remote is None or remote.untouched else foreign)


def digest(path: Path, large: bool) -> str:
    """SHA-256 of a file's bytes where it is a large file, else git's name for them."""
    with open(path, "rb") as file:
        return sha_fileobj(file).hex() if large else git_hash(file.read())


@dataclass(frozen=True)
class Target:
    """Destination of a folder.

    Attributes:
        private: None leaves an existing repository's visibility, and that of a new one to the Hub: public, unless
            the organisation has another default.
        overwrite: replace files that somebody else put there, or has changed, too.
    """

    repo_id: str
    repo_type: str
    private: bool | None = None
    revision: str = MAIN
    tag: str | None = None
    overwrite: bool = False

    @property
    def where(self) -> dict[str, str]:
        """Arguments of every call of the client."""
        return {"repo_id": self.repo_id, "repo_type": self.repo_type}

    @property
    def address(self) -> str:
        """The repository's page, below the endpoint."""
        return self.repo_id if self.repo_type == "model" else f"{self.repo_type}s/{self.repo_id}"

    def __str__(self) -> str:
        return f"the {self.repo_type} repository {self.repo_id}"


@dataclass(frozen=True)
class Pushed:
    """`url` of the repository, `commit` that holds the folder, and `plan`, empty where nothing had to be done."""

    url: str
    commit: str
    plan: Plan


def push(folder: Path, target: Target, message: str, api: HfApi) -> Pushed:
    """Make `target` equal to `folder` by one commit; a failure leaves the Hub as it was, but for a tag that is missing.

    Only files that an earlier publication put there are replaced or deleted; others are left alone, and if one of them
    is in the way, nothing is done. A repository or branch that does not exist is made; if the commit then fails, it is
    removed again.

    Raises:
        PublishError: one line with a remedy.
    """
    leftovers: list[str] = []
    try:
        with _explained(target, api):
            remote, plan = check(folder, target, api)
            commit = remote.head if remote is not None else None
            if remote is None or not plan.empty or target.revision not in remote.branches:
                commit = _commit(folder, target, message, api, remote, leftovers)
    except PublishError as error:
        raise PublishError("; ".join([str(error), *leftovers])) from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(*leftovers) from error
    url = f"{api.endpoint}/{target.address}"
    if target.tag is not None and (remote is None or target.tag not in remote.tags):
        _tag(target, commit, api, url)
    return Pushed(url, commit, plan)


def check_destination(target: Target, api: HfApi) -> None:
    """Everything about `target` that can be known before there is something to send.

    Raises:
        PublishError: the token is not accepted, or the repository contradicts the target.
    """
    with _explained(target, api):
        check_token(api)
        check_target(api, target, read_remote(api, **target.where, revision=target.revision))


def check(folder: Path, target: Target, api: HfApi) -> tuple[Remote | None, Plan]:
    """The repository as it is, and the plan of changes; raises where the token, target or files do not allow them."""
    check_token(api)
    remote = read_remote(api, **target.where, revision=target.revision)
    check_target(api, target, remote)
    plan = make_plan(folder, remote)
    if plan.foreign and not target.overwrite:
        named = ", ".join(plan.foreign[:MAX_NAMED]) + (", ..." if len(plan.foreign) > MAX_NAMED else "")
        raise PublishError(
            f"{target} holds {named}, put there or changed by somebody else: use another name, or overwrite"
        )
    there = remote.tags.get(target.tag) if remote is not None else None
    if there is not None:
        tagged = make_plan(folder, replace(remote, files=read_files(api, target.where, there)))
        if not (plan.empty and tagged.empty):
            raise PublishError(
                f"tag={target.tag!r} exists in {target} and stands for other content: the folder differs from its "
                f"commit {there[:12]} in {len(tagged.add + tagged.delete)} files, and from the head {remote.head[:12]} "
                f"in {len(plan.add + plan.delete)}; use another name"
            )
    return remote, plan


def check_token(api: HfApi) -> None:
    """Raise where the token is unknown to the Hub or may only read."""
    if isinstance(api.token, str) and not re.fullmatch(r"[!-~]+", api.token):
        raise PublishError("the token holds white space or characters that no token has: copy it again")
    user = api.whoami()
    if not isinstance(user, dict) or "name" not in user:
        raise PublishError(f"{api.endpoint} does not answer as a Hub does: check HF_ENDPOINT and the network")
    if user.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise PublishError("the token may only read: use one with write access")


def check_target(api: HfApi, target: Target, remote: Remote | None) -> None:
    """Raise where the repository contradicts the target."""
    branches = {target.revision, MAIN} | (set() if remote is None else set(remote.branches))
    if target.tag in branches:
        raise PublishError(f"tag={target.tag!r} is a branch of {target}: use another name")
    if remote is None:
        other = other_type(api, target.repo_id, target.repo_type)
        if other is not None:
            raise PublishError(f"{target.repo_id} is a {other} repository, not a {target.repo_type}: use another name")
        return
    if target.private is not None and target.private != remote.private:
        there = "private" if remote.private else "public"
        raise PublishError(f"{target} exists and is {there}: change that on its settings page")
    if target.revision in remote.tags:
        raise PublishError(f"revision={target.revision!r} is a tag of {target}: use a branch")


@contextlib.contextmanager
def _explained(target: Target, api: HfApi):
    """Errors of the client as PublishErrors."""
    try:
        yield
    except HUB_ERRORS as error:
        raise PublishError(explain(error, target.repo_id, api.endpoint)) from error
    except RuntimeError as error:
        # how the client reports a large file that could not be uploaded
        if not isinstance(error.__cause__, HUB_ERRORS):
            raise
        raise PublishError(explain(error.__cause__, target.repo_id, api.endpoint)) from error
    except json.JSONDecodeError as error:
        raise PublishError(
            f"{api.endpoint} does not answer as a Hub does: check HF_ENDPOINT and the network"
        ) from error
    except ValueError as error:
        # the client's own refusals, such as a card that the Hub finds invalid
        raise PublishError(f"{target.repo_id}: {' '.join(str(error).split())}") from error


def _commit(folder: Path, target: Target, message: str, api: HfApi, remote: Remote | None, leftovers: list[str]) -> str:
    """Commit the folder -> the commit's id. What was made for it is removed again if that fails, or is a leftover."""
    with contextlib.ExitStack() as undo:
        if remote is None:
            # before the call: its answer may be lost
            undo.callback(_remove_repository, api, target, leftovers)
            _create_repository(api, target, undo)
            remote = read_remote(api, **target.where, revision=target.revision)
            if remote is None or not remote.fresh:
                raise PublishError(f"{target}: {REMEDIES[CONFLICT]}")
        if target.revision not in remote.branches:
            undo.callback(_remove_branch, api, target, remote.head, leftovers)
            with _faster(undo):
                api.create_branch(**target.where, branch=target.revision, revision=remote.head)
        plan = make_plan(folder, remote)
        commit = remote.head if plan.empty else _send(folder, target, message, api, remote.head, plan)
        undo.pop_all()
    return commit


def _create_repository(api: HfApi, target: Target, undo: contextlib.ExitStack) -> None:
    options = {"space_sdk": "static"} if target.repo_type == "space" else {}
    with _faster(undo):
        api.create_repo(**target.where, private=target.private, **options)


@contextlib.contextmanager
def _faster(undo: contextlib.ExitStack):
    """What somebody else was faster to make is theirs: nothing is undone."""
    try:
        yield
    except HfHubHTTPError as error:
        if error.response.status_code == CONFLICT:
            undo.pop_all()
        raise


def _send(folder: Path, target: Target, message: str, api: HfApi, parent: str, plan: Plan) -> str:
    """Make the commit -> its id."""
    try:
        return api.create_commit(
            **target.where,
            operations=plan.operations(folder),
            commit_message=message,
            commit_description=write_manifest([*plan.add, *plan.keep]),
            revision=target.revision,
            parent_commit=parent,
        ).oid
    except Exception as error:
        # the commit may have been made and only its answer lost; who interrupts it wants no tag either
        with contextlib.suppress(*HUB_ERRORS):
            remote = read_remote(api, **target.where, revision=target.revision)
            if remote is not None and remote.head != parent and make_plan(folder, remote).empty:
                return remote.head
        # hf_xet, which uploads large files, raises these for whatever failed
        of_the_hub = isinstance(error, HUB_ERRORS) or isinstance(error.__cause__, HUB_ERRORS)
        if isinstance(error, RuntimeError | OSError) and not of_the_hub:
            reason = " ".join(str(error).split())
            raise PublishError(
                f"{target.repo_id}: a file could not be uploaded ({reason}): run the command again"
            ) from error
        raise


def _remove_repository(api: HfApi, target: Target, leftovers: list[str]) -> None:
    """Remove the repository made by this call, unless somebody has put something in it, on whatever branch."""
    with _tried(leftovers, f"an empty repository may have been left at {api.endpoint}/{target.address}"):
        heads = {ref.target_commit for ref in api.list_repo_refs(**target.where).branches}
        if len(heads) <= 1 and len(api.list_repo_commits(**target.where)) <= 1:
            api.delete_repo(**target.where)


def _remove_branch(api: HfApi, target: Target, head: str, leftovers: list[str]) -> None:
    """Remove the branch made by this call, unless somebody has committed to it."""
    with _tried(leftovers, f"the branch {target.revision}, equal to main, may have been left behind"):
        refs = api.list_repo_refs(**target.where)
        if (target.revision, head) in ((ref.name, ref.target_commit) for ref in refs.branches):
            api.delete_branch(**target.where, branch=target.revision)


@contextlib.contextmanager
def _tried(leftovers: list[str], failure: str):
    """Undoing: what is not there needs no undoing, and what fails is a leftover."""
    try:
        yield
    except RepositoryNotFoundError:
        return
    except HUB_ERRORS:
        leftovers.append(failure)


def _tag(target: Target, commit: str, api: HfApi, url: str) -> None:
    try:
        with _explained(target, api):
            api.create_tag(**target.where, tag=target.tag, revision=commit)
    except PublishError as error:
        raise PublishError(
            f"{url} holds the files (commit {commit[:12]}), but the tag {target.tag} may be missing: {error}"
        ) from error
