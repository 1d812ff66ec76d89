"""Uploading: how each file goes, large files by the LFS batch protocol, and the commit that names them."""

import base64
import binascii
import hashlib

from .. import attributes
from ..errors import HubError, bad_request, revision_not_found
from ..messages import Request, Response, json_response
from ..names import check_path
from ..operations import ATTRIBUTES_FILE, SHA256, apply, parse_commit
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
    for file in _list(request.json(), "files"):
        path, size = check_path(file.get("path")), file.get("size")
        try:
            sample = base64.b64decode(file.get("sample", ""), validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise bad_request(f'{path}: "sample" is not valid base64: {error}') from error
        if not isinstance(size, int) or size < len(sample):
            raise bad_request(f'{path}: "size" must be a number of bytes, no less than the sample')
        mode = attributes.upload_mode(lines, path, size, sample)
        answer = {"path": path, "uploadMode": mode, "shouldIgnore": False}
        if path in blobs:
            answer["oid"] = blobs[path].etag
        answers.append(answer)
    return json_response({"files": answers, "commitOid": repository.head(request.parts["revision"]).oid})


@route("lfs-batch", "POST", f"{LFS_OBJECTS}/batch")
def lfs_batch(store: Store, request: Request) -> Response:
    data = request.json()
    operation = data.get("operation")
    if operation != "upload" or data.get("hash_algo", "sha256") != "sha256":
        raise bad_request('"operation" must be upload and "hash_algo" sha256')
    if "basic" not in data.get("transfers", ["basic"]):
        raise bad_request('"transfers" must include basic')
    repository = store.writable(request, "upload files")
    answers = []
    for item in _list(data, "objects"):
        oid, size = item.get("oid"), item.get("size")
        if not (isinstance(oid, str) and SHA256.fullmatch(oid) and isinstance(size, int) and size > 0):
            raise bad_request(f'Each object needs an "oid" of 64 hexadecimal digits and a "size" above 0, not {item}')
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
    if upload is None or upload.oid != request.parts["oid"]:
        raise HubError(403, "The request signature does not match")
    if "authorization" in request.headers:
        raise bad_request("Only one auth mechanism allowed: the address is signed already")
    if "content-length" not in request.headers:
        raise HubError(411, "You must provide the Content-Length HTTP header")
    if len(request.body) != upload.size or hashlib.sha256(request.body).hexdigest() != upload.oid:
        raise bad_request(
            f"The object is not the one announced: expected {upload.size} bytes with sha256 {upload.oid},"
            f" got {len(request.body)} bytes with sha256 {hashlib.sha256(request.body).hexdigest()}"
        )
    upload.repository.lfs[upload.oid] = request.body
    return Response(headers={"ETag": f'"{upload.oid}"'})


@route("lfs-verify", "POST", f"{LFS_OBJECTS}/verify")
def lfs_verify(store: Store, request: Request) -> Response:
    repository = store.writable(request, "upload files")
    data = request.json()
    content = repository.lfs.get(data.get("oid"))
    if content is None:
        raise HubError(404, f"LFS object not found: {data.get('oid')}")
    if len(content) != data.get("size"):
        raise bad_request(f"LFS object {data.get('oid')} has {len(content)} bytes, not {data.get('size')}")
    return json_response({"message": "verified"})


@route("commit", "POST", "/api/{kinds}/{id}/commit/{revision}")
def commit(store: Store, request: Request) -> Response:
    repository = store.writable(request, "commit")
    if not request.headers.get("content-type", "").startswith("application/x-ndjson"):
        raise bad_request("Content-Type must be application/x-ndjson")
    if request.flag("create_pr"):
        raise HubError(501, "Pull requests are not modelled by the loopback Hub")
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


def _list(data: dict, key: str) -> list[dict]:
    items = data.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise bad_request(f'"{key}" must be an array of objects')
    return items
