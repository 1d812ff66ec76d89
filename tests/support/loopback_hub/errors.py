"""The one exception of the loopback Hub: what it becomes on the wire."""

from typing import Any


class HubError(Exception):
    """A refusal: a status, a message, and the error code from which clients choose their exception class."""

    def __init__(self, status: int, message: str, code: str | None = None, **extra: Any):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers: dict[str, str] = extra.pop("headers", {})
        self.payload = {"error": message, **extra}


def bad_request(message: str, **extra: Any) -> HubError:
    return HubError(400, message, **extra)


def invalid_token() -> HubError:
    return HubError(401, "Invalid credentials in Authorization header")


def authentication_required(code: str | None = None) -> HubError:
    headers = {"WWW-Authenticate": 'Bearer realm="Authentication required", charset="UTF-8"'}
    return HubError(401, "Invalid username or password.", code, headers=headers)


def repository_not_found(anonymous: bool) -> HubError:
    """Missing and private repositories look alike; the anonymous are asked to log in first."""
    if anonymous:
        return HubError(401, "Invalid username or password.", "RepoNotFound")
    return HubError(404, "Repository not found", "RepoNotFound")


def revision_not_found(revision: str) -> HubError:
    return HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def entry_not_found(message: str, commit: str | None = None) -> HubError:
    headers = {"X-Repo-Commit": commit} if commit else {}
    return HubError(404, message, "EntryNotFound", headers=headers)
