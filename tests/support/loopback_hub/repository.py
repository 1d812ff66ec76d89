"""A repository: commits that hold whole trees, branches and tags that name commits, and stored LFS objects."""

import functools
import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

from . import git
from .errors import HubError, revision_not_found
from .names import check_reference

# commit times count from here, a second each, so that the same calls make the same commit ids
FIRST_SECOND = 1_700_000_000


@dataclass(frozen=True)
class Blob:
    content: bytes
    lfs: bool = False

    @property
    def size(self) -> int:
        return len(self.content)

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        return git.lfs_pointer(self.sha256, self.size)

    @functools.cached_property
    def oid(self) -> str:
        """Git's blob id: of the content, or of the pointer that stands for it."""
        return git.blob_id(self.pointer if self.lfs else self.content)

    @property
    def etag(self) -> str:
        """What clients compare with: sha256 of LFS files, git blob id of others."""
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    summary: str
    description: str
    author: str
    time: int
    blobs: dict[str, Blob] = field(repr=False)

    @property
    def files(self) -> dict[str, bytes]:
        return {path: blob.content for path, blob in self.blobs.items()}

    @functools.cached_property
    def trees(self) -> dict[str, str]:
        """Git tree id of every folder; the root is ""."""
        return git.tree_ids({path: blob.oid for path, blob in self.blobs.items()})

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


class Repository:
    """What the server knows of one repository. Paths map to blobs; `main` always exists."""

    def __init__(self, id: str, kind: str, *, private: bool = False):
        self.id = id
        self.kind = kind
        self.private = private
        self.lfs: dict[str, bytes] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self._by_id: dict[str, Commit] = {}

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]

    @property
    def url_path(self) -> str:
        return self.id if self.kind == "model" else f"{self.kind}s/{self.id}"

    @property
    def commits(self) -> list[Commit]:
        """Commits of `main`, newest last; the first is the one that created the repository."""
        return self.history("main")

    def history(self, revision: str) -> list[Commit]:
        commits, commit = [], self.head(revision)
        while commit is not None:
            commits.append(commit)
            commit = self._by_id.get(commit.parent)
        return commits[::-1]

    def head(self, revision: str = "main") -> Commit:
        """The commit that a branch, a tag or a (shortened) commit id names, or 404."""
        oid = self.branches.get(revision) or self.tags.get(revision)
        if oid is None and re.fullmatch(r"[0-9a-f]{7,40}", revision):
            found = [known for known in self._by_id if known.startswith(revision)]
            oid = found[0] if len(found) == 1 else None
        if oid is None:
            raise revision_not_found(revision)
        return self._by_id[oid]

    def commit(
        self, branch: str, blobs: dict[str, Blob], summary: str, description: str = "", author: str = ""
    ) -> Commit:
        """Make `blobs` the tree of `branch`; without a change there is no new commit."""
        parent = self._by_id[self.branches[branch]] if self.branches else None
        if parent is not None and {path: blob.oid for path, blob in blobs.items()} == {
            path: blob.oid for path, blob in parent.blobs.items()
        }:
            return parent
        blobs = dict(sorted(blobs.items()))
        time = FIRST_SECOND + len(self._by_id)
        message = f"{summary}\n\n{description}" if description else summary
        tree = git.tree_ids({path: blob.oid for path, blob in blobs.items()})[""]
        parent_id = parent.oid if parent else None
        oid = git.commit_id(tree, parent_id, message, author, time)
        self._by_id[oid] = Commit(oid, parent_id, summary, description, author, time, blobs)
        self.branches[branch] = oid
        return self._by_id[oid]

    def add_reference(self, kind: str, name: str, revision: str) -> None:
        """A new branch or tag at a revision; 409 where it exists."""
        references = self.branches if kind == "branch" else self.tags
        if check_reference(name, kind) in references:
            raise HubError(409, f"Reference {name!r} already exists: there is a {kind} of this name")
        references[name] = self.head(revision).oid
