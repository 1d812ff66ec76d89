"""The server of a checkpoint's page, for this machine.

A visitor's browser may be asked by other sites to call it: names of hosts other than this one are refused (DNS
rebinding), and so are requests that another site's page could send without asking first.
"""

import ipaddress
import json
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ...files import parse_json
from ...limits import REQUEST
from .live import Live

JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
# seconds after which a connection that sends nothing is closed
PATIENCE = 30
# bytes up to which a request that is too long is read and forgotten
DISCARDED = 16 << 20


class RefusedError(Exception):
    """A request that gets no answer: its status, and the reason."""

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class LiveServer(ThreadingHTTPServer):
    """A server of a checkpoint's page at `address`.

    Raises:
        ValueError: nothing can listen at this host and port.
    """

    daemon_threads = True

    def __init__(self, live: Live, host: str, port: int):
        self.live = live
        self.host = host
        if ":" in host:
            self.address_family = socket.AF_INET6
        if not host:
            raise ValueError("host is '': pass an address of this machine, such as 127.0.0.1")
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            reason = error.strerror or error
            raise ValueError(
                f"nothing can listen at host {host!r}, port {port}: {reason}; pass another one (--port 0 takes any "
                "that is free)"
            ) from error

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = PATIENCE
    server_version, sys_version = "hf-recurrent", ""

    def do_GET(self) -> None:
        self.respond(self.page)

    def do_POST(self) -> None:
        self.respond(self.explanation)

    def respond(self, make: Callable[[], tuple[str, str]]) -> None:
        """Send the content that a method makes, (type, content), or the reason why it does not."""
        try:
            self.check_host()
            kind, content = make()
            self.reply(HTTPStatus.OK, kind, content)
        except RefusedError as refused:
            self.reply(refused.status, TEXT, str(refused))
        except Exception:
            self.reply(HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, "the server failed: its terminal says why")
            raise

    def page(self) -> tuple[str, str]:
        if self.path.partition("?")[0] != "/":
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing here: the page is at /")
        return HTML, self.server.live.page

    def explanation(self) -> tuple[str, str]:
        if self.path != "/explain":
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing here: send texts to /explain")
        self.check_origin()
        try:
            request = parse_json(self.body().decode(), "the request")
            return JSON, json.dumps(self.server.live.answer(request), allow_nan=False)
        # text that is not UTF-8 is a ValueError, too
        except ValueError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, " ".join(str(error).split())) from error

    def check_host(self) -> None:
        """A name that leads here only because another site's server says so is refused."""
        given = self.headers.get("Host", "")
        try:
            name = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            name = ""
        if name not in ("localhost", self.server.host.lower()) and not is_number(name):
            reason = f"the page is not served under the name {given[:100]!r}: open {self.server.address}"
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, reason)

    def check_origin(self) -> None:
        """Pages of other sites may send forms and plain text anywhere, but no JSON."""
        if self.headers.get_content_type() != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the request is not of the type {JSON}")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{self.headers.get('Host')}":
            raise RefusedError(HTTPStatus.FORBIDDEN, "the request comes from the page of another site")

    def body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is (Content-Length)")
        # no request is as long as a number of more digits
        length = int(length[:15])
        if length > REQUEST.value:
            if length <= DISCARDED:
                self.discard(length)
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(REQUEST.exceeded("the request")))
        return self.rfile.read(length)

    def discard(self, length: int) -> None:
        """Read so many bytes: a browser that cannot send all of its request does not see the reply."""
        while length > 0 and self.rfile.read(min(length, REQUEST.value)):
            length -= REQUEST.value

    def reply(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", f"{self.server.live.policy}; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""


def is_number(host: str) -> bool:
    """Whether a host is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
