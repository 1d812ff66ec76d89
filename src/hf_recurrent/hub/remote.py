"""A repository on the Hub, and what would make it equal to a local folder."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

REPO_TYPES = ("model", "dataset", "space")
MAIN = "main"
MANIFEST = "Files published with hf_recurrent:"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Remote:
    """What a repository holds. `head` is the commit of `revision`, or of main where there is no such branch yet.

    A file is described by whether it is stored as a large file, and by a digest: SHA-256 of a large one, else git's.

    Attributes:
        files: path -> description of what is there now.
        published: path -> description of what the last publication by this package put there.
        fresh: nobody has committed anything yet.
        branches, tags: name -> commit.
    """

    private: bool
    head: str
    fresh: bool
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
        """What makes one commit of the plan."""
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
    return Remote(
        private=bool(info.private),
        head=head,
        fresh=len(commits) <= 1,
        branches=branches,
        tags={ref.name: ref.target_commit for ref in refs.tags},
        files=files,
        published=published,
    )


def read_files(api: HfApi, where: dict[str, str], commit: str) -> dict[str, tuple[bool, str]]:
    entries = api.list_repo_tree(**where, recursive=True, revision=commit)
    return {entry.path: stored(entry) for entry in entries if isinstance(entry, RepoFile)}


def write_manifest(paths: Iterable[str]) -> str:
    """Description of a commit that says which files are ours: later publications may replace and delete no others."""
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
    """What makes the repository hold exactly `folder`, among the files that are ours; others are left alone."""
    files = local_files(folder)
    there, ours = ({}, {}) if remote is None else (remote.files, remote.published)
    same = {path for path, file in files.items() if path in there and digest(file, there[path][0]) == there[path][1]}
    add = [path for path in files if path not in same]
    delete = sorted(path for path in ours if path in there and path not in files)
    foreign = [path for path in (*add, *delete) if path in there and there[path] != ours.get(path)]
    return Plan(add, delete, sorted(same), [] if remote is None or remote.fresh else foreign)


def digest(path: Path, large: bool) -> str:
    """SHA-256 of a file's bytes where it is a large file, else git's name for them."""
    state = hashlib.sha256() if large else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            state.update(block)
    return state.hexdigest()
