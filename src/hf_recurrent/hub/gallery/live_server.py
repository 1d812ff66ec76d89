"""The server of a checkpoint's page, for this machine alone.

Another site could make a visitor's browser call it under a name of its own (DNS rebinding): such names are refused.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .live import Live

JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
HOST = "127.0.0.1"


class LiveServer(ThreadingHTTPServer):
    """A server of a checkpoint's page at `address`.

    Raises:
        ValueError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, live: Live, port: int):
        self.live = live
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise ValueError(
                f"port {port} cannot be used: {error.strerror}; pass another one (--port 0 takes any that is free)"
            ) from error

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        self.respond("/", lambda: (HTML, self.server.live.page))

    def do_POST(self) -> None:
        self.respond("/explain", self.explanation)

    def respond(self, path: str, make: Callable[[], tuple[str, str]]) -> None:
        """Send the content that a function makes, (type, content), or the reason why it does not."""
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self.reply(HTTPStatus.MISDIRECTED_REQUEST, TEXT, f"the page is at {self.server.address} only")
        elif self.path.partition("?")[0] != path:
            self.reply(HTTPStatus.NOT_FOUND, TEXT, "there is nothing here: the page is at /")
        else:
            try:
                status, (kind, content) = HTTPStatus.OK, make()
            # text that is not UTF-8 or not JSON is a ValueError, too
            except ValueError as error:
                status, kind, content = HTTPStatus.BAD_REQUEST, TEXT, " ".join(str(error).split())
            self.reply(status, kind, content)

    def explanation(self) -> tuple[str, str]:
        # a page of another site may send forms and plain text here, but no JSON
        if self.headers.get_content_type() != JSON:
            raise ValueError(f"the request is not of the type {JSON}")
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        return JSON, json.dumps(self.server.live.answer(request), allow_nan=False)

    def reply(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""
