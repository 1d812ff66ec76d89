"""What a repository is and holds: its description, trees, paths and history."""

import contextlib
import json
import math
import struct
from typing import Any
from urllib.parse import urlencode

from ..cards import front_matter
from ..errors import bad_request, entry_not_found
from ..messages import Request, Response, json_response
from ..repository import Blob, Commit, Repository
from ..routes import route
from ..store import Store

TAG_KEYS = {"license": "license:{}", "datasets": "dataset:{}", "base_model": "base_model:{}", "language": "{}"}


@route("commits", "GET", "/api/{kinds}/{id}/commits/{revision}")
def commits(store: Store, request: Request) -> Response:
    rows = [
        {
            "id": commit.oid,
            "title": commit.summary,
            "message": commit.description,
            "authors": [{"user": commit.author}],
            "date": commit.date,
        }
        for commit in reversed(store.readable(request).history(request.parts["revision"]))
    ]
    return _page(store, request, rows)


@route("tree", "GET", "/api/{kinds}/{id}/tree/{revision}[/{path+}]")
def tree(store: Store, request: Request) -> Response:
    repository = store.readable(request)
    commit = repository.head(request.parts["revision"])
    folder = (request.parts["path"] or "").strip("/")
    if folder not in commit.trees:
        raise entry_not_found(f'"{folder}" does not exist on "{request.parts["revision"]}"', commit.oid)
    start = f"{folder}/" if folder else ""
    paths = [path for path in [*commit.blobs, *commit.trees] if path and path.startswith(start) and path != folder]
    if not request.flag("recursive"):
        paths = [path for path in paths if "/" not in path[len(start) :]]
    expand = request.flag("expand")
    return _page(store, request, [_entry(repository, commit, path, expand) for path in sorted(paths)])


@route("paths-info", "POST", "/api/{kinds}/{id}/paths-info/{revision}")
def paths_info(store: Store, request: Request) -> Response:
    """Entries of the paths that exist; others are left out."""
    repository = store.readable(request)
    commit = repository.head(request.parts["revision"])
    form = request.form()
    if "paths" not in form:
        raise bad_request('"paths" is required')
    expand = str(form.get("expand", [""])[-1]).lower() in ("1", "true")
    paths = [path.strip("/") for path in form["paths"]]
    known = [path for path in paths if path in commit.blobs or (path and path in commit.trees)]
    return json_response([_entry(repository, commit, path, expand) for path in known])


@route("info", "GET", "/api/{kinds}/{id}/revision/{revision}")
@route("info", "GET", "/api/{kinds}/{id}")
def info(store: Store, request: Request) -> Response:
    repository = store.readable(request)
    commit = repository.head(request.parts.get("revision") or "main")
    described = _describe(repository, commit, with_blobs=request.flag("blobs"))
    wanted = request.query.get("expand", []) + request.query.get("expand[]", [])
    if wanted:
        unknown = [name for name in wanted if name not in described]
        if unknown:
            raise bad_request(f'"expand" has {unknown}: the loopback Hub knows {sorted(described)}')
        described = {name: described[name] for name in ("_id", "id", *wanted)}
    return json_response(described)


def _describe(repository: Repository, commit: Commit, with_blobs: bool) -> dict[str, Any]:
    card = front_matter(commit.files.get("README.md", b"").decode(errors="replace")) or {}
    described = {
        "_id": repository.commits[0].oid[:24],
        "id": repository.id,
        "author": repository.namespace,
        "sha": commit.oid,
        "private": repository.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": _tags(card),
        "cardData": card,
        "createdAt": repository.commits[0].date,
        "lastModified": commit.date,
        "siblings": [_sibling(path, blob, with_blobs) for path, blob in commit.blobs.items()],
    }
    if repository.kind == "model":
        described |= {key: card[key] for key in ("library_name", "pipeline_tag", "model-index") if key in card}
        described |= _model_files(commit)
    return described


def _model_files(commit: Commit) -> dict[str, Any]:
    """What the Hub reads off a model's configuration and weights; files it cannot read are left undescribed."""
    described = {}
    for key, path, read in (("config", "config.json", _config), ("safetensors", "model.safetensors", _parameters)):
        if path in commit.blobs:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, struct.error):
                described[key] = read(commit.blobs[path].content)
    return described


def _config(content: bytes) -> dict[str, Any]:
    config = json.loads(content)
    return {key: config[key] for key in ("architectures", "auto_map", "model_type") if key in config}


def _parameters(content: bytes) -> dict[str, Any]:
    """Parameters by type, from the header of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    parameters: dict[str, int] = {}
    for tensor in (header[name] for name in header if name != "__metadata__"):
        parameters[tensor["dtype"]] = parameters.get(tensor["dtype"], 0) + math.prod(tensor["shape"])
    return {"parameters": parameters, "total": sum(parameters.values())}


def _tags(card: dict[str, Any]) -> list[str]:
    tags = [*card.get("tags", []), *(card[key] for key in ("library_name", "pipeline_tag") if key in card)]
    for key, template in TAG_KEYS.items():
        values = card.get(key, [])
        tags += [template.format(value) for value in (values if isinstance(values, list) else [values])]
    return list(dict.fromkeys(tags))


def _sibling(path: str, blob: Blob, with_blobs: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"rfilename": path}
    if with_blobs:
        row |= {"size": blob.size, "blobId": blob.oid}
        if blob.lfs:
            row["lfs"] = {"sha256": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
    return row


def _entry(repository: Repository, commit: Commit, path: str, expand: bool) -> dict[str, Any]:
    """A file or folder of a tree; expanded, with the last commit that changed it."""
    if path in commit.blobs:
        blob = commit.blobs[path]
        row: dict[str, Any] = {"type": "file", "oid": blob.oid, "size": blob.size, "path": path}
        if blob.lfs:
            row["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
    else:
        row = {"type": "directory", "oid": commit.trees[path], "size": 0, "path": path}
    if expand:
        last = _last_change(repository, commit, path)
        row["lastCommit"] = {"id": last.oid, "title": last.summary, "date": last.date}
    return row


def _last_change(repository: Repository, commit: Commit, path: str) -> Commit:
    def content(of: Commit) -> str | None:
        return of.blobs[path].oid if path in of.blobs else of.trees.get(path)

    last = commit
    for earlier in reversed(repository.history(commit.oid)[:-1]):
        if content(earlier) != content(commit):
            break
        last = earlier
    return last


def _page(store: Store, request: Request, rows: list[dict]) -> Response:
    """One page of a list, with a `Link` to the next where there is more."""
    cursor = request.query.get("cursor", ["0"])[-1]
    if not cursor.isdecimal():
        raise bad_request(f'"cursor" is {cursor!r}: take it from the Link header of the page before')
    end = int(cursor) + store.page_size
    headers = {}
    if end < len(rows):
        query = urlencode({**request.query, "cursor": [str(end)]}, doseq=True)
        headers["Link"] = f'<{store.endpoint}{request.path}?{query}>; rel="next"'
    return json_response(rows[int(cursor) : end], headers=headers)
