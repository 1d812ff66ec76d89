"""Uploading: how each file goes, large files by the LFS batch protocol, and the commit that names them."""

import base64
import hashlib

from .. import attributes
from ..errors import HubError, bad_request, revision_not_found
from ..messages import Request, Response, json_response
from ..operations import ATTRIBUTES_FILE, apply, parse_commit
from ..repository import Blob
from ..routes import route
from ..store import Store

LFS_TYPE = "application/vnd.git-lfs+json"
LFS_OBJECTS = "/[{prefix}/]{id}.git/info/lfs/objects"


@route("preupload", "POST", "/api/{kinds}/{id}/preupload/{revision}")
def preupload(store: Store, request: Request) -> Response:
    repository = store.writable(request, "upload files")
    blobs = repository.head(request.parts["revision"]).blobs
    lines = blobs.get(ATTRIBUTES_FILE, Blob(b"")).content
    answers = []
    for file in request.json()["files"]:
        path, size, sample = file["path"], file["size"], base64.b64decode(file.get("sample", ""))
        mode = attributes.upload_mode(lines, path, size, sample)
        answer = {"path": path, "uploadMode": mode, "shouldIgnore": False}
        if path in blobs:
            answer["oid"] = blobs[path].etag
        answers.append(answer)
    return json_response({"files": answers, "commitOid": repository.head(request.parts["revision"]).oid})


@route("lfs-batch", "POST", f"{LFS_OBJECTS}/batch")
def lfs_batch(store: Store, request: Request) -> Response:
    repository = store.writable(request, "upload files")
    answers = []
    for item in request.json()["objects"]:
        oid, size = item["oid"], item["size"]
        answer = {"oid": oid, "size": size}
        if oid not in repository.lfs:
            verify = f"{store.endpoint}/{repository.url_path}.git/info/lfs/objects/verify"
            answer["actions"] = {"upload": {"href": store.sign(repository, oid, size)}, "verify": {"href": verify}}
        answers.append(answer)
    return json_response({"transfer": "basic", "objects": answers}, headers={"Content-Type": LFS_TYPE})


@route("lfs-upload", "PUT", "/lfs-storage/{oid}/{signature}")
def lfs_upload(store: Store, request: Request) -> Response:
    """As an object store behind signed addresses does it: the address is the leave, and bytes must be as announced."""
    upload = store.uploads.get(request.parts["signature"])
    if upload is None or "authorization" in request.headers:
        raise HubError(403, "The request signature does not match")
    if hashlib.sha256(request.body).hexdigest() != upload.oid:
        raise bad_request(f"The object is not the one announced: expected sha256 {upload.oid}")
    upload.repository.lfs[upload.oid] = request.body
    return Response(headers={"ETag": f'"{upload.oid}"'})


@route("lfs-verify", "POST", f"{LFS_OBJECTS}/verify")
def lfs_verify(store: Store, request: Request) -> Response:
    repository = store.writable(request, "upload files")
    if request.json()["oid"] not in repository.lfs:
        raise HubError(404, "LFS object not found")
    return json_response({"message": "verified"})


@route("commit", "POST", "/api/{kinds}/{id}/commit/{revision}")
def commit(store: Store, request: Request) -> Response:
    repository = store.writable(request, "commit")
    branch = request.parts["revision"]
    if branch not in repository.branches:
        raise revision_not_found(branch)
    parsed = parse_commit(request.body)
    head = repository.head(branch)
    if parsed.parent is not None and not head.oid.startswith(parsed.parent):
        raise HubError(412, "A commit has happened since. Please refresh and try again.")
    blobs = apply(repository, head.blobs, parsed)
    made = repository.commit(branch, blobs, parsed.summary, parsed.description, request.token.user.name)
    url = f"{store.url(repository)}/commit/{made.oid}"
    return json_response({"success": True, "commitOid": made.oid, "commitUrl": url, "hookOutput": ""})
