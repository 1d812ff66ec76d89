"""Who asks: access tokens, their users, and the namespaces these may write to."""

import secrets
from dataclasses import dataclass, field

from .errors import HubError, authentication_required, invalid_token, repository_not_found
from .repository import Repository


@dataclass(frozen=True)
class User:
    name: str
    organizations: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.name, *self.organizations)


@dataclass(frozen=True)
class Token:
    user: User
    role: str
    secret: str = field(default_factory=lambda: "hf_" + secrets.token_hex(17), repr=False)

    def whoami(self) -> dict:
        user = self.user
        return {
            "type": "user",
            "id": user.name,
            "name": user.name,
            "fullname": user.name.title(),
            "isPro": False,
            "orgs": [{"type": "org", "id": name, "name": name, "roleInOrg": "write"} for name in user.organizations],
            "auth": {"type": "access_token", "accessToken": {"displayName": self.role, "role": self.role}},
        }


def identify(authorization: str | None, tokens: list[Token]) -> Token | None:
    """The token of an `Authorization` header, None for the anonymous, 401 for one that nobody has."""
    if authorization is None:
        return None
    scheme, _, secret = authorization.partition(" ")
    for token in tokens:
        if scheme.lower() == "bearer" and secrets.compare_digest(token.secret.encode(), secret.encode()):
            return token
    raise invalid_token()


def check_may_read(repository: Repository | None, token: Token | None) -> Repository:
    """The repository itself; to those who may not see it, it does not exist."""
    if repository is None or (
        repository.private and (token is None or repository.namespace not in token.user.namespaces)
    ):
        raise repository_not_found(anonymous=token is None)
    return repository


def check_may_write(namespace: str, token: Token | None, deed: str) -> Token:
    if token is None:
        raise authentication_required()
    if token.role != "write":
        raise HubError(403, f"Forbidden: a token of role '{token.role}' may not {deed}; use a write token")
    if namespace not in token.user.namespaces:
        raise HubError(403, f'You don\'t have the rights to {deed} under the namespace "{namespace}"')
    return token
