"""Errors that a user can correct, as one line with a remedy; those of the Hub's client above all."""

import os

import torch
from huggingface_hub.errors import (
    BadRequestError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    StrictDataclassError,
)
from safetensors import SafetensorError

from ..files import no_room
from .secrets import masked

# everything that talking to the Hub can raise; connection failures of the HTTP client are HTTPErrors too
HUB_ERRORS = (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled)

REMEDIES = {
    401: "the Hub does not accept the token: run `hf auth login`, or set HF_TOKEN to a valid one",
    403: "the token may not do this: use one with write access to the namespace",
    409: "somebody else is changing the repository: run the command again",
    412: "the repository has changed meanwhile: run the command again",
    413: "a file is too large for the Hub",
    429: "the Hub asks to slow down: run the command again later",
}


class PublishError(RuntimeError):
    """Publishing did not happen; the message is one line and names the remedy."""


def explanation(error: Exception) -> str | None:
    """The message of a command for an error that its user can correct; None for a defect of this package.

    A list of problems has a line for each of them, all else is one line. Access tokens are not shown.
    """
    message = _message(error)
    return None if message is None else masked(message)


def _message(error: Exception) -> str | None:
    # errors of this package name their cause
    if no_room(error) and not (isinstance(error, ValueError | PublishError) and error.__cause__):
        return (
            f"there is no room on the disk for a file ({_joined(error)}): make room, then give the same command again"
        )
    if isinstance(error, HTTPError | ConnectionError):
        return f"the Hub cannot be reached or refuses: {_joined(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"there is not enough memory: {_joined(error)}"
    if isinstance(error, StrictDataclassError | ImportError | SafetensorError | OSError | FloatingPointError):
        return _joined(error)
    return str(error) if isinstance(error, ValueError | PublishError) else None


def explain(error: Exception, repo_id: str, endpoint: str) -> str:
    """One line for an error of `HUB_ERRORS` that was raised while working on `repo_id`."""
    if isinstance(error, LocalTokenNotFoundError):
        return f"{repo_id}: there is no token: run `hf auth login`, or set HF_TOKEN"
    if isinstance(error, OfflineModeIsEnabled):
        return f"{repo_id}: HF_HUB_OFFLINE is set: unset it to publish"
    if not isinstance(error, HfHubHTTPError):
        return f"{repo_id}: {endpoint} cannot be reached ({_first_line(error)}): check the network and HF_ENDPOINT"
    status = error.response.status_code
    reason = error.server_message or _first_line(error)
    if isinstance(error, GatedRepoError):
        remedy = REMEDIES[403]
    elif isinstance(error, RevisionNotFoundError):
        remedy = "there is no such revision"
    elif isinstance(error, RepositoryNotFoundError) and status != 401:
        remedy = "the repository does not exist, or the token may not see it"
    elif isinstance(error, BadRequestError):
        remedy = "the Hub refuses the content"
    elif status >= 500:
        remedy = "the Hub failed: run the command again"
    else:
        remedy = REMEDIES.get(status, "the Hub refuses the request")
    return f"{repo_id}: {remedy} ({status}: {_one_line(reason)})"


def _joined(error: Exception) -> str:
    return " ".join(str(error).split())


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _one_line(text: str) -> str:
    return "; ".join(part.strip() for part in text.splitlines() if part.strip())
