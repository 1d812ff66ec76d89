"""The server as tests use it: a context that starts, logs, fails on demand and stops."""

import os
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from . import endpoints  # noqa: F401  fills the table of routes
from .accounts import Token, User, identify
from .connection import Server
from .errors import HubError
from .faults import Fault
from .messages import Request, Response
from .repository import Blob, Repository
from .routes import find_route
from .store import Store

# variables of the surrounding process that would change what a client does
FOREIGN = ("HF_", "HUGGINGFACE", "HUGGING_FACE", "TRANSFORMERS_", "DATASETS_")
SETTINGS = {
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_EVALUATE_OFFLINE": "0",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    "OMP_NUM_THREADS": "1",
}


class Call(NamedTuple):
    """A request that arrived: path without query; status None where the connection was dropped instead."""

    method: str
    path: str
    status: int | None


class LoopbackHub:
    """A Hub on 127.0.0.1 at a free port, with a user "ada" who is a member of "org", and a user "grace" who is not.

    `token` is ada's and may write, `read_token` is ada's and may not, `foreign_token` is grace's and may write.
    `calls` logs every request, `unknown` those for which there is no route. `page_size` is the most entries of a
    list in one answer, small so that tests meet more than one page.
    """

    def __init__(self, page_size: int = 50):
        self.user = "ada"
        ada, grace = User(self.user, ("org",)), User("grace")
        tokens = [Token(ada, "write"), Token(ada, "read"), Token(grace, "write")]
        self.token, self.read_token, self.foreign_token = (token.secret for token in tokens)
        self.calls: list[Call] = []
        self.unknown: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.crashes: list[str] = []
        self._routes_called: list[str | None] = []
        self._server = Server(self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._store = Store(self.endpoint, tokens, page_size)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "LoopbackHub":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.close_connections()
        self._server.server_close()
        if self.crashes and kind is None:
            raise RuntimeError("the loopback Hub crashed:\n" + "\n".join(self.crashes))

    def environment(self, folder: str | os.PathLike, token: str | bool = True) -> dict[str, str]:
        """Variables for a client process: this endpoint, a fresh HF_HOME under `folder`, and nothing inherited.

        As in huggingface_hub, `token` is a token, True for the default one (here the write token) or False for none.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(FOREIGN) and not name.upper().endswith("_PROXY")
        }
        home = tempfile.mkdtemp(prefix="hf-home-", dir=Path(folder))
        settings = {**kept, **SETTINGS, "HF_ENDPOINT": self.endpoint, "HF_HOME": home}
        return {**settings, "HF_TOKEN": self.token if token is True else token} if token else settings

    def repository(self, id: str, kind: str = "model") -> Repository:
        """The server's own view of a repository; KeyError where there is none."""
        with self._store.lock:
            return self._store.repositories[kind, id]

    def repositories(self) -> list[tuple[str, str]]:
        """Kind and id of all there are."""
        with self._store.lock:
            return sorted(self._store.repositories)

    def add_repository(
        self, id: str, kind: str = "model", *, files: dict[str, bytes] | None = None, private: bool = False
    ) -> Repository:
        """A repository that is there already, of whatever namespace, with `files` in a second commit."""
        with self._store.lock:
            owner = id.partition("/")[0]
            repository = self._store.create(id, kind, owner, private=private)
            if files:
                blobs = {**repository.head().blobs, **{path: Blob(content) for path, content in files.items()}}
                repository.commit("main", blobs, "add files", author=owner)
            return repository

    def fail(self, target: str, **effect: object) -> Fault:
        """Let requests fail: by route name ("commit") or by method and path ("GET /api/.*"); fields as of `Fault`."""
        fault = Fault(target, **effect)
        with self._store.lock:
            self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """No more faults."""
        with self._store.lock:
            self.faults.clear()

    def called(self, route: str) -> list[Call]:
        """The calls of one route, in order."""
        with self._store.lock:
            return [call for call, name in zip(self.calls, self._routes_called, strict=True) if name == route]

    def fault_for(self, request: Request) -> Fault | None:
        """The first fault that a request meets."""
        found = find_route(request.method, request.path)
        name = found[0].name if found else None
        with self._store.lock:
            return next((fault for fault in self.faults if fault.strikes(name, request.method, request.path)), None)

    def answer(self, request: Request) -> Response:
        """Authenticate, then hand to the endpoint; HubError is a refusal."""
        found = find_route(request.method, request.path)
        with self._store.lock:
            if found is None:
                self.unknown.append((request.method, request.path))
                raise HubError(404, f"The loopback Hub has no route for {request.method} {request.path}")
            route, request.parts = found
            # addresses of the object store are signed, and know no tokens
            if route.name != "lfs-upload":
                request.token = identify(request.headers.get("authorization"), self._store.tokens)
            return route.endpoint(self._store, request)

    def log(self, request: Request, status: int | None) -> None:
        found = find_route(request.method, request.path)
        with self._store.lock:
            self.calls.append(Call(request.method, request.path, status))
            self._routes_called.append(found[0].name if found else None)
