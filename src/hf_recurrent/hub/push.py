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
    """Make `target` equal to `folder` by one commit; a failure leaves the repository as it was.

    Files of the repository that are not in `folder` are deleted if `is_ours(path)`, and left alone otherwise. A
    repository that does not exist is made; if the commit then fails, it is removed again.

    Raises:
        PublishError: one line that says what to do.
    """
    try:
        return _push(folder, target, message, is_ours, api)
    except HUB_ERRORS as error:
        raise PublishError(explain(error, target.repo_id, api.endpoint)) from error
    except (ValueError, HFValidationError) as error:
        # the client's own refusals, such as a card that the Hub finds invalid
        raise PublishError(f"{target.repo_id}: {' '.join(str(error).split())}") from error


def _push(folder: Path, target: Target, message: str, is_ours: Callable[[str], bool], api: HfApi) -> Pushed:
    check_token(api)
    remote = read_remote(api, target.repo_id, target.repo_type, target.revision)
    plan = make_plan(folder, remote, is_ours)
    check_target(api, target, remote, plan)
    url = f"{api.endpoint}/{target.address}"
    if remote is not None and plan.empty and target.revision in remote.branches:
        commit = remote.head
    else:
        commit = _commit(folder, target, message, is_ours, api, remote)
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
    folder: Path, target: Target, message: str, is_ours: Callable[[str], bool], api: HfApi, remote: Remote | None
) -> str:
    """Commit the folder -> the commit's id. What was made for it is removed again if that fails."""
    where = {"repo_id": target.repo_id, "repo_type": target.repo_type}
    undo = contextlib.ExitStack()
    with undo:
        if remote is None:
            options = {"space_sdk": "gradio"} if target.repo_type == "space" else {}
            api.create_repo(**where, private=target.private, **options)
            undo.callback(_quietly, api.delete_repo, **where)
            remote = read_remote(api, **where, revision=target.revision)
        if target.revision not in remote.branches:
            api.create_branch(**where, branch=target.revision, revision=remote.head)
            undo.callback(_quietly, api.delete_branch, **where, branch=target.revision)
        plan = make_plan(folder, remote, is_ours)
        if plan.empty:
            undo.pop_all()
            return remote.head
        try:
            done = api.create_commit(
                **where,
                operations=plan.operations(folder),
                commit_message=message,
                revision=target.revision,
                parent_commit=remote.head,
            )
        except BaseException:
            # the commit may have been made and only its answer lost
            commit = _committed(folder, target, is_ours, api)
            if commit is None:
                raise
        else:
            commit = done.oid
        undo.pop_all()
        return commit


def _committed(folder: Path, target: Target, is_ours: Callable[[str], bool], api: HfApi) -> str | None:
    """The head of the target if it holds the folder already."""
    with contextlib.suppress(*HUB_ERRORS):
        remote = read_remote(api, target.repo_id, target.repo_type, target.revision)
        if remote is not None and make_plan(folder, remote, is_ours).empty:
            return remote.head
    return None


def _quietly(undo: Callable, **where: str) -> None:
    """Undo what can be undone: the first error is the one to report."""
    with contextlib.suppress(*HUB_ERRORS):
        undo(**where)
