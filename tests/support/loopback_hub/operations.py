"""The body of a commit: newline-delimited JSON, read into a header and applied to a tree as a whole."""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from typing import Any

from . import attributes
from .cards import check_card
from .errors import bad_request, entry_not_found
from .names import check_path
from .repository import Blob, Repository

ATTRIBUTES_FILE = ".gitattributes"
SHA256 = re.compile(r"[0-9a-f]{64}")
OPERATIONS = ("file", "lfsFile", "deletedFile", "deletedFolder")


@dataclass
class CommitRequest:
    summary: str
    description: str = ""
    parent: str | None = None
    operations: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def parse_commit(body: bytes) -> CommitRequest:
    """Read the lines of a commit; 400 names the line at fault."""
    items = [_parse_line(number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip()]
    if not items or items[0][0] != "header":
        raise bad_request("The first line of a commit must be its header")
    header = items[0][1]
    summary, description, parent = header.get("summary"), header.get("description", ""), header.get("parentCommit")
    if not isinstance(summary, str) or not summary.strip():
        raise bad_request('"summary" is not allowed to be empty')
    if not isinstance(description, str):
        raise bad_request('"description" must be a string')
    if parent is not None and not (isinstance(parent, str) and re.fullmatch(r"[0-9a-f]{7,40}", parent)):
        raise bad_request('"parentCommit" must be a commit id')
    for number, (key, _) in enumerate(items[1:], 2):
        if key not in OPERATIONS:
            raise bad_request(f"Line {number} of the commit: unknown operation {key!r}")
    return CommitRequest(summary, description, parent, items[1:])


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
    _check_no_file_is_a_folder(blobs)
    _check_readme(blobs, before, repository.kind)
    return blobs


def _parse_line(number: int, line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        item = json.loads(line)
    except ValueError as error:
        raise bad_request(f"Line {number} of the commit is not JSON: {error}") from error
    if not isinstance(item, dict) or not isinstance(item.get("key"), str) or not isinstance(item.get("value"), dict):
        raise bad_request(f'Line {number} of the commit must be {{"key": ..., "value": {{...}}}}')
    return item["key"], item["value"]


def _delete(blobs: dict[str, Blob], path: str, folder: bool) -> None:
    doomed = [name for name in blobs if (name.startswith(path + "/") if folder else name == path)]
    if not doomed:
        raise entry_not_found(f"A {'folder' if folder else 'file'} with this name doesn't exist: {path}")
    for name in doomed:
        del blobs[name]


def _regular_blob(value: dict[str, Any]) -> Blob:
    path = value["path"]
    if value.get("encoding", "utf-8") not in ("base64", "utf-8") or not isinstance(value.get("content"), str):
        raise bad_request(f'{path}: "content" must be a string and "encoding" base64 or utf-8')
    content = value["content"].encode()
    if value.get("encoding") == "base64":
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise bad_request(f'{path}: "content" is not valid base64: {error}') from error
    rejection = None
    if len(content) > attributes.SIZE_LIMIT:
        rejection = "files larger than 10 MiB. Please use https://git-lfs.github.com/ to store large files"
    elif attributes.is_binary(content):
        rejection = "binary files. Please use https://git-lfs.github.com/ to store binary files"
    if rejection:
        raise bad_request(f"Your push was rejected because it contains {rejection}. Offending files: - {path}")
    return Blob(content)


def _lfs_blob(repository: Repository, value: dict[str, Any]) -> Blob:
    path, oid = value["path"], value.get("oid")
    if value.get("algo") != "sha256" or not isinstance(oid, str) or not SHA256.fullmatch(oid):
        raise bad_request(f'{path}: "algo" must be sha256 and "oid" 64 hexadecimal digits')
    if oid not in repository.lfs:
        raise bad_request(
            f"Your push was rejected because an LFS pointer pointed to a file that does not exist: {path}"
        )
    content = repository.lfs[oid]
    # copies name no size
    if value.get("size", len(content)) != len(content):
        raise bad_request(f"{path}: size is {value['size']}, but the LFS object has {len(content)} bytes")
    return Blob(content, lfs=True)


def _track(blobs: dict[str, Blob], added: dict[str, Blob]) -> None:
    """Every new LFS file is covered by `.gitattributes`, or git would not know it for one."""
    lines = blobs.get(ATTRIBUTES_FILE, Blob(b"")).content
    for path, blob in sorted(added.items()):
        if blob.lfs and not attributes.is_tracked(lines, path):
            lines = attributes.with_path(lines, path)
            blobs[ATTRIBUTES_FILE] = Blob(lines)


def _check_no_file_is_a_folder(blobs: dict[str, Blob]) -> None:
    for path in blobs:
        parts = path.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in blobs:
                raise bad_request(f"Invalid path: {path!r} - '{'/'.join(parts[:end])}' is a file, not a folder")


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
