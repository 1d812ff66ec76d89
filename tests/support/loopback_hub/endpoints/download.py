"""Files by revision and path, whole or by range."""

import mimetypes
import re

from ..errors import HubError, entry_not_found
from ..messages import Request, Response
from ..repository import Blob
from ..routes import route
from ..store import Store


@route("resolve", "GET HEAD", "/[{prefix}/]{id}/resolve/{revision}/{path+}")
def resolve(store: Store, request: Request) -> Response:
    commit = store.readable(request).head(request.parts["revision"])
    blob = commit.blobs.get(request.parts["path"])
    if blob is None:
        raise entry_not_found("Entry not found", commit.oid)
    headers = {
        "ETag": f'"{blob.etag}"',
        "X-Repo-Commit": commit.oid,
        "Accept-Ranges": "bytes",
        "Content-Type": mimetypes.guess_type(request.parts["path"])[0] or "application/octet-stream",
    }
    if blob.lfs:
        headers |= {"X-Linked-Size": str(blob.size), "X-Linked-ETag": f'"{blob.sha256}"'}
    return _ranged(blob, request.headers.get("range"), headers)


def _ranged(blob: Blob, wanted: str | None, headers: dict[str, str]) -> Response:
    """The whole file, or the one range of bytes that was asked for (RFC 9110, section 14)."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "")
    if found is None or not any(found.groups()):
        return Response(200, blob.content, headers)
    first, last = found.groups()
    # "-n" means the last n bytes
    start = int(first) if first else max(0, blob.size - int(last))
    end = min(int(last), blob.size - 1) if first and last else blob.size - 1
    if start > end or (not first and int(last) == 0):
        message = f"The range {wanted} is outside the {blob.size} bytes of the file"
        raise HubError(416, message, headers={"Content-Range": f"bytes */{blob.size}"})
    return Response(
        206, blob.content[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{blob.size}"}
    )
