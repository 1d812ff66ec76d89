"""The server of a page that looks into any input of a checkpoint, for this machine alone.

Another site could make a visitor's browser call it under a name of its own (DNS rebinding): such names are refused.
"""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...analysis.explain.explanation import check_model
from ...analysis.explain.inside import look_inside
from ..results import read_results
from .page import joined, render

JSON, HOST = "application/json", "127.0.0.1"


class LiveServer(ThreadingHTTPServer):
    """A server of the page of the checkpoint `name` at `address`.

    Raises:
        ValueError: a model that `explain` does not take, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, name: str, model: Any, tokenizer: Any, port: int):
        check_model(model)
        self.model, self.tokenizer, config = model, tokenizer, model.config
        # a rule is set in the config that all passes read
        self.lock = threading.Lock()
        results = read_results(name) if Path(name).is_dir() else None
        example = {} if results is None else results["example"]
        self.page = render(
            "live_template.html",
            title=f"Inside {Path(name).name or name}",
            texts=(example.get("text", ""), example.get("text_pair") or ""),
            pairs=config.capabilities.siamese or (not config.is_causal and getattr(config, "type_vocab_size", 0) > 0),
            style=Markup(joined(("base.css", "table.css", "inside.css", "page.css"))),
            script=Markup(joined(("inside.js",))),
        )
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
        self.respond("/", "text/html; charset=utf-8", lambda: self.server.page)

    def do_POST(self) -> None:
        self.respond("/explain", JSON, self.inside)

    def inside(self) -> str:
        """What is inside of the text, or pair of texts, of the request, as JSON."""
        # a page of another site may send forms and plain text here, but no JSON
        if self.headers.get_content_type() != JSON:
            raise ValueError(f"the request is not of the type {JSON}")
        request, server = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0")))), self.server
        if not isinstance(request, dict) or "text" not in request or request.keys() - {"text", "text_pair"}:
            raise ValueError('the request is not {"text": ...}, with or without a "text_pair"')
        with server.lock:
            found = look_inside(server.model, server.tokenizer, request["text"], request.get("text_pair") or None)
        return json.dumps(found, allow_nan=False)

    def respond(self, path: str, kind: str, make: Callable[[], str]) -> None:
        """Send the content that a function makes, or the reason why there is none."""
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            status, content = HTTPStatus.MISDIRECTED_REQUEST, f"the page is at {self.server.address} only"
        elif self.path.partition("?")[0] != path:
            status, content = HTTPStatus.NOT_FOUND, "there is nothing here: the page is at /"
        else:
            try:
                status, content = HTTPStatus.OK, make()
            # text that is not UTF-8 or not JSON is a ValueError, too
            except ValueError as error:
                status, content = HTTPStatus.BAD_REQUEST, " ".join(str(error).split())
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind if status == HTTPStatus.OK else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""
