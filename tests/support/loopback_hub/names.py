"""What repositories, branches, tags and files may be called."""

import re

from .errors import bad_request

KINDS = ("model", "dataset")
NAME = re.compile(r"\b[\w\-.]{1,96}\b", re.ASCII)
COMMIT_ID = re.compile(r"[0-9a-f]{40}")
# git check-ref-format: no control characters, spaces or any of ~^:?*[\, no "..", "@{" or "//"
ILLEGAL_REFERENCE = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/.-]|/\.|[/.]$|\.lock$")
MOST_PATH_BYTES = 1024


def check_repository_id(repository_id: str) -> str:
    """`namespace/name` by the Hub's rules, or 400."""
    parts = repository_id.split("/")
    legal = len(parts) == 2 and all(NAME.fullmatch(part) for part in parts) and len(repository_id) <= 96
    if not legal or "--" in repository_id or ".." in repository_id or repository_id.endswith((".git", ".ipynb")):
        raise bad_request(
            f"Invalid repo name: {repository_id} - must be namespace/name of at most 96 characters, of letters, digits,"
            " '-', '_' or '.', without '--' or '..', neither part starting or ending with '-' or '.', and the name not"
            " ending with '.git' or '.ipynb'"
        )
    return repository_id


def check_reference(name: str, what: str) -> str:
    """A new branch's or tag's name; one that looks like a commit would hide that commit."""
    if not name or ILLEGAL_REFERENCE.search(name) or COMMIT_ID.fullmatch(name):
        raise bad_request(f"Invalid reference for a {what}: {name!r}")
    return name


def check_path(path: object) -> str:
    """A file's path in a repository: relative, without empty, `.`, `..` or `.git` parts."""
    if not isinstance(path, str) or not path:
        raise bad_request(f"Invalid path: {path!r} - must be a non-empty string")
    parts = path.split("/")
    illegal = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
    if (
        illegal
        or "\\" in path
        or any(ord(character) < 32 for character in path)
        or len(path.encode()) > MOST_PATH_BYTES
    ):
        raise bad_request(f"Invalid path: {path!r} - must be relative, without '.', '..' or '.git' parts")
    return path
