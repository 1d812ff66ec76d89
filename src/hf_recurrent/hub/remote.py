"""A repository on the Hub, and what would make it equal to a local folder."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

REPO_TYPES = ("model", "dataset", "space")
MAIN = "main"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Remote:
    """What a repository holds. `head` is the commit of `revision`, or of main where there is no such branch yet.

    Attributes:
        files: path -> (whether it is stored as a large file, its digest: SHA-256 of a large file, else git's blob id).
        branches, tags: name -> commit.
    """

    private: bool
    head: str
    branches: dict[str, str]
    tags: dict[str, str]
    files: dict[str, tuple[bool, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Paths to add or replace, to delete, and to leave as they are."""

    add: list[str]
    delete: list[str]
    keep: list[str]

    @property
    def empty(self) -> bool:
        return not self.add and not self.delete

    def operations(self, folder: Path) -> list[CommitOperationAdd | CommitOperationDelete]:
        """What makes one commit of the plan."""
        additions = [CommitOperationAdd(path, folder / path) for path in self.add]
        return additions + [CommitOperationDelete(path, is_folder=False) for path in self.delete]


def read_remote(api: HfApi, repo_id: str, repo_type: str, revision: str) -> Remote | None:
    """The repository as it is, None if there is none that the token may see."""
    try:
        info = api.repo_info(repo_id, repo_type=repo_type)
    except RepositoryNotFoundError:
        return None
    refs = api.list_repo_refs(repo_id, repo_type=repo_type)
    branches = {ref.name: ref.target_commit for ref in refs.branches}
    head = branches.get(revision) or branches.get(MAIN) or info.sha
    entries = api.list_repo_tree(repo_id, recursive=True, revision=head, repo_type=repo_type)
    files = {entry.path: stored(entry) for entry in entries if isinstance(entry, RepoFile)}
    tags = {ref.name: ref.target_commit for ref in refs.tags}
    return Remote(bool(info.private), head, branches, tags, files)


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


def make_plan(folder: Path, remote: Remote | None, is_ours: Callable[[str], bool]) -> Plan:
    """What makes the repository hold exactly `folder`, among the paths that `is_ours`; others are left alone."""
    files = local_files(folder)
    there = {} if remote is None else remote.files
    same = {path for path, file in files.items() if path in there and digest(file, there[path][0]) == there[path][1]}
    return Plan(
        add=[path for path in files if path not in same],
        delete=sorted(path for path in there if path not in files and is_ours(path)),
        keep=sorted(same),
    )


def digest(path: Path, large: bool) -> str:
    """SHA-256 of a file's bytes where it is a large file, else git's name for them."""
    state = hashlib.sha256() if large else hashlib.sha1(b"blob %d\0" % path.stat().st_size)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            state.update(block)
    return state.hexdigest()
