"""One commit that makes a repository on the Hub equal to a local folder, or no change at all."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from .errors import HUB_ERRORS, PublishError, explain
from .remote import MAIN, Plan, Remote, make_plan, other_type, read_remote


@dataclass(frozen=True)
class Target:
    """Where a folder goes. `private` None leaves an existing repository's visibility and makes a new one public."""

    repo_id: str
    repo_type: str
    private: bool | None = None
    revision: str = MAIN
    tag: str | None = None

    @property
    def address(self) -> str:
        """The repository's page, below the endpoint."""
        return self.repo_id if self.repo_type == "model" else f"{self.repo_type}s/{self.repo_id}"


@dataclass(frozen=True)
class Pushed:
    """`url` of the repository, `commit` that holds the folder, and `plan`, empty where nothing had to be done."""

    url: str
    commit: str
    plan: Plan


def push(folder: Path, target: Target, message: str, is_ours: Callable[[str], bool], api: HfApi) -> Pushed:
    """Make `target` equal to `folder` by one commit; a failure leaves the Hub as it was.

    Files of the repository that are not in `folder` are deleted if `is_ours(path)`, and left alone otherwise. A
    repository or branch that does not exist is made; if the commit then fails, it is removed again.

    Raises:
        PublishError: one line that says what to do.
    """
    leftovers: list[str] = []
    try:
        return _push(folder, target, message, is_ours, api, leftovers)
    except HUB_ERRORS as error:
        problem, cause = explain(error, target.repo_id, api.endpoint), error
    except RuntimeError as error:
        # how the client reports a large file that could not be uploaded
        if not isinstance(error.__cause__, HUB_ERRORS):
            raise
        problem, cause = explain(error.__cause__, target.repo_id, api.endpoint), error
    except (ValueError, HFValidationError) as error:
        # the client's own refusals, such as a card that the Hub finds invalid
        problem, cause = f"{target.repo_id}: {' '.join(str(error).split())}", error
    raise PublishError("; ".join([problem, *leftovers])) from cause


def _push(
    folder: Path,
    target: Target,
    message: str,
    is_ours: Callable[[str], bool],
    api: HfApi,
    leftovers: list[str],
) -> Pushed:
    check_token(api)
    remote = read_remote(api, target.repo_id, target.repo_type, target.revision)
    plan = make_plan(folder, remote, is_ours)
    check_target(api, target, remote, plan)
    url = f"{api.endpoint}/{target.address}"
    if remote is not None and plan.empty and target.revision in remote.branches:
        commit = remote.head
    else:
        commit = _commit(folder, target, message, is_ours, api, remote, leftovers)
    if target.tag is not None and (remote is None or target.tag not in remote.tags):
        api.create_tag(target.repo_id, tag=target.tag, revision=commit, repo_type=target.repo_type)
    return Pushed(url, commit, plan)


def check_token(api: HfApi) -> None:
    """Raise where the token is unknown to the Hub or may only read."""
    role = api.whoami().get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise PublishError("the token may only read: use one with write access")


def check_target(api: HfApi, target: Target, remote: Remote | None, plan: Plan) -> None:
    """Raise where the repository contradicts what was asked for."""
    where = f"{target.repo_type} repository {target.repo_id}"
    if remote is None:
        other = other_type(api, target.repo_id, target.repo_type)
        if other is not None:
            raise PublishError(f"{target.repo_id} is a {other} repository, not a {target.repo_type}: use another name")
        return
    if target.private is not None and target.private != remote.private:
        there = "private" if remote.private else "public"
        raise PublishError(f"the {where} exists and is {there}: change that on its settings page")
    if target.revision in remote.tags:
        raise PublishError(f"revision={target.revision!r} is a tag of the {where}: use a branch")
    there = remote.tags.get(target.tag)
    if there is not None and not (plan.empty and there == remote.head):
        raise PublishError(f"tag={target.tag!r} exists in the {where} and stands for other content: use another name")


def _commit(
    folder: Path,
    target: Target,
    message: str,
    is_ours: Callable[[str], bool],
    api: HfApi,
    remote: Remote | None,
    leftovers: list[str],
) -> str:
    """Commit the folder -> the commit's id. What was made for it is removed again if that fails, or is a leftover."""
    where = {"repo_id": target.repo_id, "repo_type": target.repo_type}
    with contextlib.ExitStack() as undo:
        if remote is None:
            options = {"space_sdk": "gradio"} if target.repo_type == "space" else {}
            api.create_repo(**where, private=target.private, **options)
            undo.callback(_remove_repository, api, target, leftovers)
            remote = read_remote(api, **where, revision=target.revision)
        if target.revision not in remote.branches:
            api.create_branch(**where, branch=target.revision, revision=remote.head)
            undo.callback(_remove_branch, api, target, remote.head, leftovers)
        plan = make_plan(folder, remote, is_ours)
        commit = remote.head if plan.empty else _send(folder, target, message, is_ours, api, remote.head, plan)
        undo.pop_all()
    return commit


def _send(
    folder: Path,
    target: Target,
    message: str,
    is_ours: Callable[[str], bool],
    api: HfApi,
    parent: str,
    plan: Plan,
) -> str:
    """Make the commit -> its id."""
    try:
        return api.create_commit(
            target.repo_id,
            plan.operations(folder),
            commit_message=message,
            repo_type=target.repo_type,
            revision=target.revision,
            parent_commit=parent,
        ).oid
    except BaseException:
        # the commit may have been made and only its answer lost
        with contextlib.suppress(*HUB_ERRORS):
            remote = read_remote(api, target.repo_id, target.repo_type, target.revision)
            if remote is not None and make_plan(folder, remote, is_ours).empty:
                return remote.head
        raise


def _remove_repository(api: HfApi, target: Target, leftovers: list[str]) -> None:
    """Remove the repository made by this call, unless somebody has put something in it."""
    try:
        commits = api.list_repo_commits(target.repo_id, repo_type=target.repo_type)
        if len(commits) <= 1:
            api.delete_repo(target.repo_id, repo_type=target.repo_type)
    except HUB_ERRORS:
        leftovers.append(f"an empty repository was left at {api.endpoint}/{target.address}")


def _remove_branch(api: HfApi, target: Target, head: str, leftovers: list[str]) -> None:
    """Remove the branch made by this call, unless somebody has committed to it."""
    try:
        refs = api.list_repo_refs(target.repo_id, repo_type=target.repo_type)
        if (target.revision, head) in ((ref.name, ref.target_commit) for ref in refs.branches):
            api.delete_branch(target.repo_id, branch=target.revision, repo_type=target.repo_type)
    except HUB_ERRORS:
        leftovers.append(f"the branch {target.revision}, equal to main, was left behind")
