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
from ..card import read_card
from ..lint import CARD_FILE
from .page import joined, render

LIVE = "live_template.html"
LIVE_STYLES = ("base.css", "table.css", "inside.css", "page.css")
LIVE_SCRIPTS = ("inside.js",)
FIELDS = ("text", "text_pair")
JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
HOST = "127.0.0.1"


class LiveServer(ThreadingHTTPServer):
    """A server of the page of the checkpoint `name` at `address`.

    Raises:
        ValueError: a model that `explain` does not take, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, name: str, model: Any, tokenizer: Any, port: int):
        check_model(model)
        self.model = model
        self.tokenizer = tokenizer
        # a rule is set in the config that all passes read
        self.lock = threading.Lock()
        siamese, causal = model.config.capabilities.siamese, model.config.is_causal
        self.page = render(
            LIVE,
            title=f"Inside {Path(name).name or name}",
            texts=stored_texts(name),
            pairs=siamese or (not causal and getattr(model.config, "type_vocab_size", 0) > 0),
            style=Markup(joined(LIVE_STYLES)),
            script=Markup(joined(LIVE_SCRIPTS)),
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

    def answer(self, request: Any) -> dict[str, Any]:
        """The inside of the text, or pair of texts, of a request, as plain data.

        Raises:
            ValueError: the request is none, or its text cannot be looked into.
        """
        if not isinstance(request, dict) or "text" not in request or not set(request) <= set(FIELDS):
            raise ValueError('the request is not {"text": ...}, with or without a "text_pair"')
        text, pair = request["text"], request.get("text_pair") or None
        with self.lock:
            return look_inside(self.model, self.tokenizer, text, pair)


class Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        self.respond("/", lambda: (HTML, self.server.page))

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
        return JSON, json.dumps(self.server.answer(request), allow_nan=False)

    def reply(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the terminal."""


def stored_texts(name: str) -> tuple[str, str]:
    """The example of the card in a checkpoint folder, a text or a pair; empty texts without one."""
    if not (Path(name) / CARD_FILE).is_file():
        return "", ""
    example = read_card(name).example
    return example.text, example.text_pair or ""
