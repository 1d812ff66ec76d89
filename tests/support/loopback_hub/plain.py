"""Plain requests to the loopback Hub, for what the real client is too polite to send."""

import base64
import http.client
import json
from typing import Any

from .server import LoopbackHub


def connect(hub: LoopbackHub) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(hub.endpoint.removeprefix("http://"), timeout=10)


def send(
    hub: LoopbackHub, method: str, path: str, body: Any = None, *, token: str | bool = True, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body of the answer. A dict goes as JSON; underscores in header names are hyphens.

    `token` is a token, True for the write token or False for none.
    """
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        headers["Authorization"] = f"Bearer {hub.token if token is True else token}"
    connection = connect(hub)
    try:
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def commit_body(*lines: tuple[str, dict], header: bool = True) -> bytes:
    """Newline-delimited JSON of operations, after a header where none is among them."""
    items = [("header", {"summary": "plain"})] * header + list(lines)
    return b"\n".join(json.dumps({"key": key, "value": value}).encode() for key, value in items)


def file_line(path: str, content: bytes = b"text") -> tuple[str, dict]:
    return "file", {"path": path, "encoding": "base64", "content": base64.b64encode(content).decode()}
