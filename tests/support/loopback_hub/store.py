"""What the server holds: repositories by kind and name, tokens, and the addresses it signed for uploads."""

import secrets
import threading
from dataclasses import dataclass, field

from . import attributes
from .accounts import Token, check_may_read, check_may_write
from .errors import HubError, authentication_required, bad_request
from .messages import Request
from .names import KINDS, check_repository_id
from .repository import Blob, Repository


@dataclass(frozen=True)
class SignedUpload:
    """Leave to store one object, whoever comes with its address."""

    repository: Repository
    oid: str
    size: int


@dataclass
class Store:
    endpoint: str
    tokens: list[Token]
    page_size: int
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    uploads: dict[str, SignedUpload] = field(default_factory=dict)
    # one request changes or reads the store at a time
    lock: threading.RLock = field(default_factory=threading.RLock)

    def create(self, repository_id: str, kind: str, author: str, *, private: bool = False) -> Repository:
        """A new repository with its initial commit; 409 where it exists, 400 for a name or kind that cannot be."""
        if kind not in KINDS:
            raise bad_request(f'"type" must be one of {list(KINDS)}')
        check_repository_id(repository_id)
        if (kind, repository_id) in self.repositories:
            url = self.url(self.repositories[kind, repository_id])
            raise HubError(409, f"You already created this {kind} repo: {repository_id}", url=url)
        repository = Repository(repository_id, kind, private=private)
        blobs = {".gitattributes": Blob(attributes.initial_attributes(kind))}
        repository.commit("main", blobs, "initial commit", author=author)
        self.repositories[kind, repository_id] = repository
        return repository

    def url(self, repository: Repository) -> str:
        return f"{self.endpoint}/{repository.url_path}"

    def readable(self, request: Request) -> Repository:
        """The repository of a request's path, if its token may see it."""
        return check_may_read(self.repositories.get((request.kind, request.parts["id"])), request.token)

    def writable(self, request: Request, deed: str) -> Repository:
        repository = self.readable(request)
        if request.token is None:
            # over HTTPS clients conclude this from the address; over plain HTTP they need the code
            raise authentication_required("RepoNotFound")
        check_may_write(repository.namespace, request.token, deed)
        return repository

    def sign(self, repository: Repository, oid: str, size: int) -> str:
        """A new address to PUT one object to. Putting the same bytes again does no harm, so a client may repeat it."""
        signature = secrets.token_urlsafe(24)
        self.uploads[signature] = SignedUpload(repository, oid, size)
        return f"{self.endpoint}/lfs-storage/{oid}/{signature}"
