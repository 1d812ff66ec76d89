"""Git's content hashes: blobs, trees and commits are named by what they hold."""

import hashlib


def blob_id(content: bytes) -> str:
    return _object_id("blob", content)


def lfs_pointer(sha256: str, size: int) -> bytes:
    """What git itself stores of a file in large file storage (git-lfs specification, version 1)."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def tree_ids(blobs: dict[str, str]) -> dict[str, str]:
    """Ids of every folder (the root is ""), given the blob id of every path."""
    children: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for path, oid in blobs.items():
        folder, _, name = path.rpartition("/")
        children.setdefault(folder, {})[name] = ("100644", oid)
        while folder:
            parent, _, _ = folder.rpartition("/")
            children.setdefault(parent, {})
            folder = parent
    ids = {}
    # the deepest first: a folder's id needs those of the folders in it
    for folder in sorted(children, key=lambda path: (path != "", path.count("/")), reverse=True):
        ids[folder] = _tree_id(children[folder])
        if folder:
            parent, _, name = folder.rpartition("/")
            children[parent][name] = ("40000", ids[folder])
    return ids


def commit_id(tree: str, parent: str | None, message: str, author: str, time: int) -> str:
    stamp = f"{author} <{author}@localhost> {time} +0000"
    parents = f"parent {parent}\n" if parent else ""
    return _object_id("commit", f"tree {tree}\n{parents}author {stamp}\ncommitter {stamp}\n\n{message}\n".encode())


def _tree_id(entries: dict[str, tuple[str, str]]) -> str:
    # git sorts a folder as if its name ended with a slash
    names = sorted(entries, key=lambda name: name + "/" * (entries[name][0] == "40000"))
    rows = [f"{entries[name][0]} {name}".encode() + b"\0" + bytes.fromhex(entries[name][1]) for name in names]
    return _object_id("tree", b"".join(rows))


def _object_id(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()
