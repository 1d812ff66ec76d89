"""HTTP/1.1 on a socket: requests in, responses and injected faults out."""

import contextlib
import socket
import sys
import traceback
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from .errors import HubError
from .faults import Fault
from .messages import Request, Response, error_response, json_response

if TYPE_CHECKING:
    from .server import LoopbackHub

# a client that is slower than this has gone away
IDLE_SECONDS = 60
CHUNK = 1 << 16


class HungUpError(Exception):
    """The connection is to be closed without an answer."""


class Server(ThreadingHTTPServer):
    """A threading server that knows its open connections, so that it can close those which clients keep alive."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, hub: "LoopbackHub"):
        super().__init__(("127.0.0.1", 0), Connection)
        self.hub = hub
        self.open: set[socket.socket] = set()

    def server_bind(self) -> None:
        # unlike HTTPServer's, without asking for the host's name, which can take seconds
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address

    def process_request(self, request: socket.socket, client_address: tuple) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: socket.socket, client_address: tuple) -> None:
        """A client that goes away is no crash; anything else fails the test that the server serves."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            self.hub.crashes.append(traceback.format_exc())

    def close_connections(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "LoopbackHub"
    # headers and body leave together, and at once
    wbufsize = CHUNK
    disable_nagle_algorithm = True
    timeout = IDLE_SECONDS
    server: Server

    def log_message(self, *args: object) -> None:
        """Nothing on stderr: the hub keeps its own log."""

    def serve(self) -> None:
        hub = self.server.hub
        path, _, query = self.path.partition("?")
        request = Request(
            self.command,
            path,
            parse_qs(query, keep_blank_values=True),
            {name.lower(): value for name, value in self.headers.items()},
        )
        fault = hub.fault_for(request)
        try:
            request.body = self._read_body(interrupt=fault is not None and fault.drop_upload)
            if fault is not None and fault.drop:
                raise HungUpError
            response = self._answer(request, fault)
            if fault is not None and fault.lose_answer:
                raise HungUpError
        except HungUpError:
            hub.log(request, None)
            self.close_connection = True
            return
        except HubError as error:
            # the body was not understood, so where the next request starts is not known
            self.close_connection = True
            response = error_response(error)
        hub.log(request, response.status)
        self._send(response, cut=fault is not None and fault.cut)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = serve  # noqa: N815

    def _answer(self, request: Request, fault: Fault | None) -> Response:
        if fault is not None and fault.status is not None:
            return json_response({"error": fault.message}, fault.status, fault.headers)
        try:
            return self.server.hub.answer(request)
        except HubError as error:
            return error_response(error)
        except Exception:
            self.server.hub.crashes.append(traceback.format_exc())
            return json_response({"error": f"The loopback Hub crashed:\n{traceback.format_exc()}"}, 500)

    def _read_body(self, interrupt: bool) -> bytes:
        """The whole body, by length or by chunks; to interrupt, read half of it and hang up."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = self._read_chunks()
        else:
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal():
                raise HubError(400, f"Invalid Content-Length: {length!r}")
            if interrupt:
                self.rfile.read(int(length) // 2)
                raise HungUpError
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                raise HungUpError
        if interrupt:
            raise HungUpError
        return body

    def _read_chunks(self) -> bytes:
        """The chunked transfer coding (RFC 9112, section 7.1), without extensions or trailers."""
        chunks = []
        while True:
            line = self.rfile.readline(CHUNK)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError as error:
                raise (HubError(400, f"Invalid chunk size: {line!r}") if line else HungUpError()) from error
            if size == 0:
                while self.rfile.readline(CHUNK).strip():
                    pass
                return b"".join(chunks)
            chunks.append(self.rfile.read(size))
            self.rfile.readline(CHUNK)

    def _send(self, response: Response, cut: bool) -> None:
        headers = {
            **response.headers,
            "Content-Length": str(len(response.body)),
            "X-Request-Id": self.headers.get("X-Request-Id") or str(uuid.uuid4()),
        }
        self.send_response(response.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        body = b"" if self.command == "HEAD" else response.body
        if cut:
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)
