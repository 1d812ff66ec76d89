"""The body of a commit: newline-delimited JSON, read into a header and applied to a tree as a whole."""

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from . import attributes
from .cards import check_card
from .errors import bad_request, entry_not_found
from .names import check_path
from .repository import Blob, Repository

ATTRIBUTES_FILE = ".gitattributes"


@dataclass
class CommitRequest:
    summary: str
    description: str = ""
    parent: str | None = None
    operations: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def parse_commit(body: bytes) -> CommitRequest:
    """Read the lines of a commit."""
    header, *items = (json.loads(line) for line in body.splitlines() if line.strip())
    value = header["value"]
    operations = [(item["key"], item["value"]) for item in items]
    return CommitRequest(value["summary"], value.get("description", ""), value.get("parentCommit"), operations)


def apply(repository: Repository, blobs: dict[str, Blob], request: CommitRequest) -> dict[str, Blob]:
    """The tree after all operations, deletions first; `blobs` stays as it is. Any refusal is of the whole commit."""
    blobs = dict(blobs)
    before = dict(blobs)
    for key, value in request.operations:
        if key in ("deletedFile", "deletedFolder"):
            _delete(blobs, check_path(str(value.get("path")).removesuffix("/")), folder=key == "deletedFolder")
    added = {}
    for key, value in request.operations:
        if key == "file":
            added[check_path(value.get("path"))] = _regular_blob(value)
        elif key == "lfsFile":
            added[check_path(value.get("path"))] = _lfs_blob(repository, value)
    blobs.update(added)
    _track(blobs, added)
    _check_readme(blobs, before, repository.kind)
    return blobs


def _delete(blobs: dict[str, Blob], path: str, folder: bool) -> None:
    doomed = [name for name in blobs if (name.startswith(path + "/") if folder else name == path)]
    if not doomed:
        raise entry_not_found(f"A {'folder' if folder else 'file'} with this name doesn't exist: {path}")
    for name in doomed:
        del blobs[name]


def _regular_blob(value: dict[str, Any]) -> Blob:
    path, content = value["path"], base64.b64decode(value["content"])
    if len(content) > attributes.SIZE_LIMIT or attributes.is_binary(content):
        raise bad_request(f"Your push was rejected because {path} must be stored with git-lfs")
    return Blob(content)


def _lfs_blob(repository: Repository, value: dict[str, Any]) -> Blob:
    if value["oid"] not in repository.lfs:
        raise bad_request(f"Your push was rejected because {value['path']} points to a file that does not exist")
    return Blob(repository.lfs[value["oid"]], lfs=True)


def _track(blobs: dict[str, Blob], added: dict[str, Blob]) -> None:
    """Every new LFS file is covered by `.gitattributes`, or git would not know it for one."""
    lines = blobs.get(ATTRIBUTES_FILE, Blob(b"")).content
    for path, blob in sorted(added.items()):
        if blob.lfs and not attributes.is_tracked(lines, path):
            lines = attributes.with_path(lines, path)
            blobs[ATTRIBUTES_FILE] = Blob(lines)


def _check_readme(blobs: dict[str, Blob], before: dict[str, Blob], kind: str) -> None:
    readme = blobs.get("README.md")
    if readme is None or readme == before.get("README.md"):
        return
    errors, warnings = check_card(readme.content.decode(errors="replace"), kind)
    if errors:
        raise bad_request(
            "Your push was rejected during YAML metadata verification",
            errors=[{"message": message} for message in errors],
            warnings=[{"message": message} for message in warnings],
        )
